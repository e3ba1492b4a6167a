"""Types of a hunt, from the cluster to the report: tests, accused units, findings and the result.

A hunt accuses *units*: a unit is a node, or a single GPU with `--unit rank`. Units count from 0. Bandwidths are in
GB/s busbw (decimal), burns in TFLOP/s. A field that does not apply is None, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainSerializer

from workloads.evidence.facts import Evidence
from workloads.exits import Exit
from workloads.nccl.hunt.options import HuntOptions
from workloads.nccl.result import NcclResult
from workloads.results.documents import ResultPart

SCHEMA = "rdma-ray/hunt/2"
ISOLATE_BELOW = 0.5  # share of the reference below which a unit slows every job that uses it

Kind = Literal["burn", "intra", "group", "pair", "rail"]
"""One unit's compute; one unit's own ranks; a ring over many units; a ring over two; one rank of each of two."""
NETWORK: tuple[Kind, ...] = ("group", "pair")
"""Kinds that count as tests of a hunt; `rail` tests follow once the unit is known."""
SINGLE: tuple[Literal["burn", "intra"], ...] = ("burn", "intra")
"""Kinds that measure a unit without a partner."""

Broken = Literal["hang", "wrong", "error"]
"""No answer in time; wrong data; failed ranks. Each fails a test whatever its bandwidth."""
Severity = Literal["isolate", "drain"]
"""No job may use the unit; its jobs may finish."""
FindingKind = Literal["undecided", "fabric", "intermittent", "fleet", "unjudged", "transport", "node"]
REMARKS: tuple[FindingKind, ...] = ("intermittent", "node")
"""Findings that leave a hunt clean."""
Fault = Literal["slow", "unsteady", "hang", "wrong", "error", "burn", "intra", "transport", "gpu"]
FAULTS: dict[Fault, str] = {
    "slow": "slow on the network",
    "unsteady": "slow on the network from time to time",
    "hang": "does not answer in time",
    "wrong": "delivers wrong data",
    "error": "breaks the tests that it is in",
    "burn": "computes too slowly",
    "intra": "slow among its own ranks",
    "transport": "does not use the fabric as the other units do",
    "gpu": "has a GPU with errors",
}
ISOLATED: tuple[Fault, ...] = ("wrong", "hang", "error", "gpu")
"""Faults with which no job may use a unit, however fast it is."""

Figure = Annotated[float, PlainSerializer(lambda value: float(f"{value:.6g}"))]
Share = Annotated[float, PlainSerializer(lambda value: round(value, 4))]


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of a test: samples in GB/s busbw (TFLOP/s for a burn), or how it broke."""

    samples: Sequence[float] = ()
    broken: Broken | None = None
    detail: str = ""


@dataclass(frozen=True)
class Report:
    """Seconds per run of each sample on one rank (FLOP/s of a burn), and the number of wrong elements."""

    samples: list[float]
    wrong: int


@dataclass(slots=True)
class GroupProbe:
    """One test of one process group, which is formed and measured: the request, then its result and its judgment.

    Attributes:
        stage: Why it runs.
        suspects: Units in question; the others are known good.
        rail: A rail test uses this rank of the first unit and of the second, or the second's next one if `shifted`.
        count: Samples to take. Several samples are one test.
        alone: No other test ran in its round.
        value: Median of the samples; None for a test that broke.
        reference: Result of a healthy test of this kind.
        share: Value over reference.
        limit: Share below which this test fails.
        failed: None if not judged, or if there is nothing to compare with.
        unsteady: Some of many samples clearly pass and some clearly do not, which fails the test.
    """

    kind: Kind
    units: tuple[int, ...]
    stage: str
    suspects: Annotated[tuple[int, ...], Field(exclude=True)] = ()
    rail: int | None = None
    shifted: bool = False
    count: Annotated[int, Field(exclude=True)] = 1
    number: int = 0
    round: int = 0
    alone: bool = False
    samples: list[Figure] = field(default_factory=list)
    value: Figure | None = None
    reference: Figure | None = None
    share: Share | None = None
    limit: float | None = None
    failed: bool | None = None
    unsteady: bool = False
    broken: Broken | None = None
    detail: str = ""

    def take(self, result: Answer | GroupProbe) -> None:
        """Add a result of this test; the median of all samples counts."""
        self.samples += result.samples
        self.broken, self.detail = result.broken, result.detail
        self.value = median(self.samples) if self.samples and self.broken is None else None

    def again(self, stage: str, count: int, units: tuple[int, ...] | None = None) -> GroupProbe:
        """Return the same test, to run once more."""
        return GroupProbe(self.kind, units or self.units, stage, self.suspects, self.rail, self.shifted, count)

    def partners(self, unit: int) -> tuple[int, ...]:
        return tuple(other for other in self.units if other != unit)


Round = tuple[GroupProbe, ...]
"""Tests that share no unit and run concurrently."""


class Rail(ResultPart):
    """Position of a rank in its unit: its GPU, and the RDMA devices that its evidence names, if any.

    Several devices are all candidates: machines such as p5en have two per GPU. No device is named by its number alone.
    """

    gpu: str | None = None
    nics: list[str] = Field(default_factory=list)

    def named(self, number: int) -> str:
        """Return `rail 3 of GPU 3 (mlx5_6 or mlx5_7)`."""
        of = f" of GPU {self.gpu}" if self.gpu is not None else ""
        return f"rail {number}{of}" + (f" ({' or '.join(self.nics)})" if self.nics else "")


class Unit(ResultPart):
    """Unit that a hunt can accuse: a node with its ranks, or one rank."""

    unit: int
    name: str
    host: str
    ip: str
    machine: str
    node_id: str
    gpu: str | None
    rails: list[Rail]


@dataclass(kw_only=True)
class Accused:
    """An accused unit. `tests` are the numbers of the failed tests against it, `partners` the other units in them.

    `rails` are those that are slow alone (None: not tested), `nics` all candidates for them. `evidence` is what NCCL's
    log, the node's NICs and its GPUs show against it. `name`, `nics` and `action` are empty until `on`.
    """

    unit: int
    name: str = ""
    fault: Fault
    severity: Severity
    share: Share | None
    rails: list[int] | None = None
    nics: list[str] = field(default_factory=list)
    tests: list[int]
    partners: list[tuple[int, ...]]
    text: str
    action: str = ""
    evidence: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, unit: int, fault: Fault, failed: Sequence[GroupProbe]) -> Accused:
        """Accuse a unit with these failed tests as the evidence."""
        shares = [test.share for test in failed if test.share is not None]
        share = median(shares) if shares else None
        isolate = fault in ISOLATED or (share is not None and share < ISOLATE_BELOW)
        return cls(
            unit=unit,
            fault=fault,
            severity="isolate" if isolate else "drain",
            share=share,
            tests=[test.number for test in failed],
            partners=[partners for test in failed if (partners := test.partners(unit))],
            text=FAULTS[fault],
        )

    def with_evidence(self, texts: Sequence[str], fault: Fault | None = None) -> Accused:
        """Return a copy with the evidence from NCCL's log or the node about this unit, and the fault that it shows."""
        fault = fault or self.fault
        severity: Severity = "isolate" if fault in ISOLATED else self.severity
        return replace(self, fault=fault, severity=severity, text=FAULTS[fault], evidence=[*self.evidence, *texts])

    def on(self, unit: Unit) -> Accused:
        """Return a copy with the unit's name, its slow NICs, and the next step for the operator of the cluster."""
        match self.fault:
            case "burn":
                then = "look for throttling and ECC errors (nvidia-smi -q -d PERFORMANCE,ECC), then replace it"
            case "intra":
                then = "check NVLink (nvidia-smi nvlink -s) and the PCIe topology (nvidia-smi topo -m), then replace it"
            case "transport":
                then = "check its NICs (rdma link), and NCCL's plugin and the NICs in its pod, then replace it"
            case "gpu":
                then = "run NVIDIA's diagnostics on it (dcgmi diag -r 3), then reset the GPU or replace the node"
            case _ if self.rails:
                named = ", ".join(unit.rails[rail].named(rail) for rail in self.rails)
                then = f"check link, cable and error counters of {named}, then replace the node"
            case _ if self.rails == []:
                checks = "PCIe (lspci -vv, link width), IOMMU and ACS"
                then = f"each rail alone is healthy: check {checks}, then replace the node"
            case _:
                then = "check its NICs' links and error counters and its driver's log, then replace it"
        first = "cordon it now" if self.severity == "isolate" else "drain it"
        nics = list(dict.fromkeys(nic for rail in self.rails or [] for nic in unit.rails[rail].nics))
        return replace(self, name=unit.name, nics=nics, action=f"{first}; {then}")


class HuntFinding(ResultPart):
    """A problem that is not a proven fault of one unit. `tests` are the numbers of the tests that show it.

    undecided: one of `units`, and too few known-good partners to decide which. fabric: slow only while other tests run,
    or only on the path between two units. intermittent: failed once and not again. fleet: all of it below the floor.
    unjudged: nothing to compare with. transport: all units do not use the fabric as requested, or nothing shows what
    `units` use. node: what a node's NICs and GPUs counted, which explains no failure.
    """

    kind: FindingKind
    units: list[int]
    tests: list[int]
    text: str


class HuntVerdict(ResultPart):
    """Result of a search. `network_tests` counts groups and pairs with repeats and controls, `rounds` all rounds."""

    tests: list[GroupProbe] = Field(default_factory=list)
    accused: list[Accused] = Field(default_factory=list)
    findings: list[HuntFinding] = Field(default_factory=list)
    network_tests: int = 0
    rail_tests: int = 0
    rounds: int = 0

    @property
    def clean(self) -> bool:
        """No unit is accused, nothing is undecided, slow or unknown, and no data was wrong, not even once."""
        remarks = all(finding.kind in REMARKS for finding in self.findings)
        return remarks and not self.accused and all(test.broken != "wrong" for test in self.tests)


class HuntResult(NcclResult, HuntVerdict):
    """A whole hunt."""

    writer: ClassVar[str] = "rdma-ray bench hunt"

    schema_: str = SCHEMA
    spec: HuntOptions
    units: list[Unit] = Field(default_factory=list)
    proves: Literal["fabric", "function"] | None = None
    evidence: Evidence | None = None
    seconds: dict[str, float] | None = None


def fields_of(verdict: HuntVerdict, units: Sequence[Unit]) -> dict[str, Any]:
    """Return the fields of a HuntResult that come from a search's verdict."""
    accused = [one.on(units[one.unit]) for one in verdict.accused]
    return {**dict(verdict), "units": list(units), "accused": accused}


def conclude(verdict: HuntVerdict, units: Sequence[Unit]) -> tuple[Exit, str]:
    """Return exit code and reason. The most severe fault decides, in the judge's order: wrong data, another path than
    the fabric or a GPU with errors, a hang, slow units.
    """
    cost = f"{verdict.network_tests} tests in {verdict.rounds} rounds"
    if verdict.clean:
        failed_once = sum(finding.kind == "intermittent" for finding in verdict.findings)
        remark = f", {failed_once} that failed once but not again" if failed_once else ""
        return Exit.OK, f"no unit is accused: {len(units)} units, {cost}{remark}"
    parts = [f"{units[one.unit].name} {one.text}" for one in verdict.accused]
    parts += [
        f"{finding.kind}: {', '.join(units[unit].name for unit in finding.units[:4]) or 'the whole fleet'}"
        for finding in verdict.findings
        if finding.kind not in REMARKS
    ]
    if not parts:
        parts = ["wrong data in one test but not again"]
    faults: set[str | None] = {one.fault for one in verdict.accused}
    faults |= {"wrong" for test in verdict.tests if test.broken == "wrong"}
    for finding in verdict.findings:
        if finding.kind == "transport":
            faults.add("transport")
        if finding.kind == "undecided":
            faults.update(verdict.tests[number].broken for number in finding.tests)
    order = (
        ("wrong", Exit.WRONG_DATA),
        ("transport", Exit.NOT_AS_ASKED),
        ("gpu", Exit.NOT_AS_ASKED),
        ("hang", Exit.HANG),
        ("error", Exit.HANG),
    )
    code = next((code for fault, code in order if fault in faults), Exit.BELOW)
    return code, f"{'; '.join(parts)} ({cost})"
