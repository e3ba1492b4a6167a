"""Document that `rdma-ray evidence` writes and `make accept` reads: a stranger's run, without a secret or a name.

Every text in it has a closed form: a word of a list, a version, a zone, a type of resource. Text of any other form is
left out, so that neither a cluster nor a stack file can put its own words into the document.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from infra.settings.load import SETTINGS
from workloads.nccl.point_patterns import DIRECTIONS, PATTERNS
from workloads.nccl.presets import DataType, Mode
from workloads.nccl.units import BUSBW_FACTORS
from workloads.results.documents import ResultPart

_SETTINGS: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_name("settings.yaml").read_text(encoding="utf-8"))
SENT = frozenset(_SETTINGS["sent"].split())
"""Settings whose values are sent."""
KEPT_BACK: Mapping[str, Any] = _SETTINGS["kept back"]
"""Settings of which only whether they are set is sent, with what a rehearsal uses instead."""

_COMPASS = "(?:north|south|central)?(?:north|south|east|west|central)"
_CONTINENT = "us|europe|asia|australia|southamerica|northamerica|me|africa|eu|ap|ca|sa|af|il|mx"
REGION = rf"(?:{_CONTINENT})-(?:gov-)?{_COMPASS}-?\d{{1,2}}"
ZONE = rf"(?:{REGION}(?:-[a-z]{{3}}-\d)?-?[a-z]|[a-z]{{2,5}}\d{{1,2}}-az\d)"
VERSION = r"v?\d{1,7}(?:\.\d{1,7}){0,2}(?:-gke\.\d{1,8}|-eks-[0-9a-f]{7}|\+cu\d{2,3}|\+cpu)?"
TEXTS: Mapping[str, str] = {
    "location": ZONE,
    "network.secondZone": ZONE,
    "ray.version": VERSION,
    "cluster.minVersion": VERSION,
    "cluster.systemMachine": r"[a-z]\d[a-z]{0,2}(?:-(?:standard|highmem|highcpu)-\d{1,3}|\.\d{0,2}x?large)",
}
"""Forms of the sent settings that take any text."""
_IMAGE = r"sha256:[0-9a-f]{64}|\d+\.\d+\.\d+(?:-py\d{2,3})?(?:-cu\d{2,3})?(?:-gpu)?|train-ml-cuda-v\d\.\d\.\d"

NOT_UP = "unknown: the stack is not up"
NOT_READ = "unknown: nothing shows it, or it is not written as a version"
CHANGED = "unknown: the clone differs from its commit"
NOT_ITS_OWN = "unknown: the stack does not install one"
NOT_RECORDED = "unknown: no record of `make up` in this clone"
NOT_MEASURED = "not measured: rdma-ray bench nccl --stack STACK --out results/STACK/nccl"
SCHEMA = "rdma-ray/evidence/1"
SENTENCES = (SCHEMA, NOT_UP, NOT_READ, CHANGED, NOT_ITS_OWN, NOT_RECORDED, NOT_MEASURED)
"""Texts of this module, whose words are nobody's name."""
Unknown = Annotated[str, Field(pattern=f"^(?:{'|'.join(map(re.escape, SENTENCES[1:]))})$")]
TIERS = {"gke": "cloud", "eks": "cloud", "kubernetes": "cluster", "local": "machine"}
"""What a stack's run is a proof of, by its target."""
Day = Annotated[str, Field(pattern=r"^20[2-9]\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])$")]
Version = Annotated[str, Field(pattern=rf"^(?:{VERSION}|[0-9a-f]{{40}}|{_IMAGE})$")]
_PARTS = "project|python|engine|pulumi-(?:gcp|aws|kubernetes)|kubernetes|kuberay|ray|image|driver|cuda|nccl|torch"
VersionOf = Annotated[str, Field(pattern=f"^(?:{_PARTS})$")]
ResourceType = Annotated[
    str, Field(pattern=r"^[a-z][a-z0-9-]{1,30}:[a-zA-Z0-9./-]{1,60}:[A-Z][A-Za-z0-9]{1,60}$", max_length=120)
]
CheckName = Annotated[str, Field(pattern=r"^[a-z]{2,12}(?:-[a-z]{2,12}){0,2}$")]
Kind = Annotated[str, Field(pattern=r"^[a-z]{2,16}(?:-[a-z]{1,12}){0,3}$")]
Operation = Annotated[str, Field(pattern=f"^(?:{'|'.join(BUSBW_FACTORS)})$")]
Variant = Annotated[str, Field(pattern=rf"^(?:{'|'.join(PATTERNS)})(?: \d{{1,3}})? (?:{'|'.join(DIRECTIONS)})$")]
Plugin = Literal["gIB", "Libfabric", "AWS Libfabric", "IB", "Socket", "FastSocket"]
Algorithm = Annotated[
    str, Field(pattern=r"^(?:RING|TREE|NVLS|NVLS_TREE|PAT|COLLNET_DIRECT|COLLNET_CHAIN)/(?:LL|LL128|SIMPLE)$")
]
_GPU = r"(?:NVIDIA |Tesla )?(?:RTX PRO )?[A-Z]{1,2}\d{1,4}[A-Z]?(?:[ -](?:\d{2,3}GB|HBM3e?|SXM\d?|PCIe|NVL))*"
Gpu = Annotated[str, Field(pattern=f"^{_GPU}$")]
Count = Annotated[int, Field(ge=0, le=10**7)]
Measured = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]


def plain(value: object, form: Any) -> Any:
    """Return a value if it has a form of this module, else None."""
    try:
        return TypeAdapter(form).validate_python(value, strict=True)
    except ValidationError:
        return None


class EngineOperation(ResultPart):
    """Operation of the engine on one resource, and how long the provider took."""

    op: Literal["create", "update", "delete"]
    type: ResourceType
    seconds: int = Field(ge=0, le=86_400)


class EngineRun(ResultPart):
    """One `make up` or `make down`. `complete`: it succeeded. `unfinished` counts operations without an end."""

    date: Day
    command: Literal["up", "destroy"]
    complete: bool
    unfinished: Count
    operations: list[EngineOperation] = Field(max_length=2000)


class CheckCount(ResultPart):
    """Findings of one check of `doctor`."""

    check: CheckName
    severity: Literal["error", "warning"]
    count: Count


class DoctorSummary(ResultPart):
    """What `doctor` found, by check."""

    exit_code: Literal[0, 1, 2]
    findings: list[CheckCount] = Field(max_length=200)
    passed: list[CheckName] = Field(max_length=200)
    skipped: list[CheckName] = Field(max_length=200)
    absent: list[CheckName] = Field(max_length=200)


class SizeTime(ResultPart):
    """One operation at one size: bytes, µs of the slowest rank, GB/s, wrong elements (null: not checked)."""

    op: Operation
    variant: Variant | None
    mode: Mode
    dtype: DataType
    size: int = Field(ge=1, le=2**40)
    time_us: Measured
    algbw: Measured
    busbw: Measured
    wrong: int | None = Field(ge=0, le=2**63)


class ConnectionCount(ResultPart):
    """Connections of NCCL's log that are alike."""

    transport: Literal["NET", "P2P", "SHM", "NVLS", "COLLNET"]
    plugin: Plugin | None
    gdrdma: bool
    count: Count


class TransportSummary(ResultPart):
    """How the data traveled, by NCCL's log. `nics` counts those in use of each node, the most first."""

    plugin: Plugin | None
    plugin_version: Version | None
    provider: Literal["efa", "tcp", "verbs"] | None
    ranks_with_log: Count
    nics: list[Count] = Field(max_length=1000)
    connections: list[ConnectionCount] = Field(max_length=100)
    algorithms: list[Algorithm] = Field(max_length=30)
    warnings: Count
    missing: Count


class JudgedShare(ResultPart):
    """A row against a published figure, GB/s."""

    op: Operation
    size: int = Field(ge=1, le=2**40)
    measured: Measured
    expected: Measured


class BenchSummary(ResultPart):
    """The latest benchmark as the judge sees it now: `findings` are its kinds, `code` its exit code."""

    date: Day
    backend: Literal["nccl", "gloo"] | None
    code: int = Field(ge=0, le=255)
    outcome: Literal["pass", "warn", "fail"]
    proves: Literal["fabric", "function"] | None
    findings: list[Kind] = Field(max_length=100)
    nodes: Count
    ranks_per_node: Count
    machines: Count
    gpus: list[Gpu] = Field(max_length=10)
    rows: list[SizeTime] = Field(max_length=5000)
    comparisons: list[JudgedShare] = Field(max_length=1000)
    transport: TransportSummary | None


class SentEvidence(ResultPart):
    """All of the document. `tier`: a cloud's account, a cluster of the user's, or one machine."""

    model_config = ConfigDict(alias_generator=lambda name: name.rstrip("_"), populate_by_name=True)

    schema_: Annotated[str, Field(pattern=f"^{SCHEMA}$")]
    date: Day
    tier: Literal["cloud", "cluster", "machine"]
    target: Literal["gke", "eks", "kubernetes", "local"]
    region: Annotated[str, Field(pattern=f"^{REGION}$")] | None
    versions: dict[VersionOf, Version | Unknown]
    settings: dict[str, bool | int | str]
    set_: list[str]
    not_set: list[str]
    runs: list[EngineRun] | Unknown
    doctor: DoctorSummary | Unknown
    bench: BenchSummary | Unknown

    @field_validator("settings")
    @classmethod
    def _values_have_a_form(cls, settings: dict[str, bool | int | str]) -> dict[str, bool | int | str]:
        for path, value in settings.items():
            if path not in SENT:
                raise ValueError(f"{path[:60]!r} is not a setting that is sent")
            words = {word for setting in SETTINGS[path].values() for word in setting.every_name}
            form = "|".join([*map(re.escape, words), TEXTS.get(path, r"[^\s\S]")])
            if isinstance(value, str) and not re.fullmatch(form, value):
                raise ValueError(f"the value of {path} does not have its form")
        return settings

    @field_validator("set_", "not_set")
    @classmethod
    def _names_are_settings(cls, paths: list[str]) -> list[str]:
        if unknown := [path[:60] for path in paths if path not in KEPT_BACK]:
            raise ValueError(f"{unknown[0]!r} is not a setting of which only the name is sent")
        return paths

    def to_json(self) -> str:
        """Return the document as it is written: in a stable order, for a person to read."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"
