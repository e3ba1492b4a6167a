"""The result of a hunt, typed: the driver writes it on the cluster; the client shows and draws it.

Bandwidths in GB/s busbw (decimal), burns in TFLOP/s. A field that does not apply is None, never 0.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from workloads.nccl.hunt.plan import Broken, Fault, Kind, Severity
from workloads.nccl.result import Part

SCHEMA = "rdma-ray/hunt/1"


class Unit(Part):
    """What can be accused: a node with its ranks, or one rank. `nics` are the RDMA devices that its node shows."""

    unit: int
    name: str
    host: str
    ip: str
    machine: str
    node_id: str
    gpu: str | None
    nics: list[str]


class Test(Part):
    """One test. `samples` of one process group; `share` is their median over `reference`, below `limit` it fails."""

    number: int
    round: int
    kind: Kind
    stage: str
    units: list[int]
    rail: int | None
    shifted: bool
    alone: bool
    samples: list[float]
    value: float | None
    reference: float | None
    share: float | None
    limit: float | None
    failed: bool | None
    unsteady: bool
    broken: Broken | None
    detail: str


class Accused(Part):
    """A unit that is named. `tests` are the numbers of the tests that it rests on, `partners` who was in them."""

    unit: int
    name: str
    fault: Fault
    severity: Severity
    share: float | None
    rails: list[int] | None
    nics: list[str]
    tests: list[int]
    partners: list[list[int]]
    text: str
    action: str


class Finding(Part):
    """Something that is wrong and no unit's proven fault."""

    kind: Literal["undecided", "fabric", "intermittent", "fleet", "unjudged"]
    units: list[int]
    tests: list[int]
    text: str


class HuntResult(Part):
    """A whole hunt."""

    schema_: str = SCHEMA
    started: float
    finished: float
    spec: dict[str, Any]
    exit_code: int
    reason: str
    units: list[Unit] = Field(default_factory=list)
    tests: list[Test] = Field(default_factory=list)
    accused: list[Accused] = Field(default_factory=list)
    findings: list[Finding] = Field(default_factory=list)
    network_tests: int = 0
    rail_tests: int = 0
    rounds: int = 0
    backend: Literal["nccl", "gloo"] | None = None
    proves: Literal["fabric", "function"] | None = None
    notice: str | None = None
    versions: dict[str, str | None] | None = None
    injected_fault: str | None = None
    seconds: dict[str, float] | None = None
    job: str | None = None
    cluster: str | None = None
    command: list[str] | None = None

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=lambda name: name.rstrip("_"), populate_by_name=True
    )
