"""The result of a benchmark run, typed: the driver writes it on the cluster; judge, report and compare read it.

Times in µs, bandwidths in GB/s (decimal), sizes in bytes. A field that does not apply is None, never 0.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from workloads.nccl.evidence.facts import Evidence

SCHEMA = "rdma-ray/nccl/2"

Mode = Literal["throughput", "latency", "graph"]
"""N runs back to back; a barrier before each run, not timed; replays of a CUDA graph."""


class Part(BaseModel):
    """A part of the result: frozen, and strict about names, so that a renamed field cannot pass unnoticed."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Member(Part):
    """Who a rank is and where. `node` counts the nodes from 0; `machine` is one value for all pods of a kernel."""

    rank: int
    node: int
    host: str
    machine: str
    ip: str
    node_id: str
    device: str
    gpu: str | None
    pid: int


class Spread(Part):
    """Mean time of one run, over the ranks: the slowest rank's, the ranks' mean, the fastest rank's."""

    max: float
    avg: float
    min: float


class Iterations(Part):
    """Single runs on the slowest rank. `cv` is the standard deviation over the mean."""

    p50: float
    p95: float
    p99: float
    max: float
    cv: float


class RankTime(Part):
    """One rank's mean time of one run, and how many elements it received wrong (None: not checked)."""

    rank: int
    time_us: float
    wrong: int | None


class Pair(Part):
    """One direction between two ranks that were measured together with others: its own bandwidth."""

    sender: int
    receiver: int
    time_us: float
    bandwidth: float


class Row(Part):
    """One operation at one size.

    `variant` tells the measurements of one operation apart (`pairs up`, `rail 3 duplex`). `time_us.max` is what
    `algbw` and `busbw` come from. `nic_bandwidth` is what must cross each NIC of a node at least (None on one node).
    `wrong` is None where data was not checked. `total` is the sum over all pairs of a point-to-point row, `limit`
    the most that the NICs in use can carry for it (None where they are not known).
    """

    op: str
    variant: str | None
    mode: Mode
    dtype: str
    algorithm: str
    size: int
    count: int
    time_us: Spread
    iteration_us: Iterations
    algbw: float
    busbw: float
    nic_bandwidth: float | None
    wrong: int | None
    warnings: list[str]
    ranks: list[RankTime]
    pairs: list[Pair] | None = None
    total: float | None = None
    limit: float | None = None


class World(Part):
    """How many ranks on how many nodes; `machines` counts different kernels."""

    nodes: int
    per_node: int
    ranks: int
    machines: int


class Finding(Part):
    """One thing that the judge has to say: `code` is the exit code that it stands for, 0 for a remark or a warning."""

    code: int
    kind: str
    text: str


class Verdict(Part):
    """The judge's word: the exit code, one line, all findings, and the comparisons that were made."""

    code: int
    outcome: Literal["pass", "warn", "fail"]
    reason: str
    machine: str | None
    findings: list[Finding]
    comparisons: list[Comparison]


class Comparison(Part):
    """A row against a floor. `share` is measured over expected; below 0.90 fails, below 0.95 warns."""

    op: str
    size: int
    measured: float
    expected: float
    share: float
    source: str
    confidence: str


class Result(Part):
    """A whole run. `proves` says what the figures may be taken for: a fabric, or only that the functions work."""

    schema_: str = SCHEMA
    started: float
    finished: float
    spec: dict[str, Any]
    exit_code: int
    reason: str
    rows: list[Row]
    backend: Literal["nccl", "gloo"] | None = None
    world: World | None = None
    proves: Literal["fabric", "function"] | None = None
    notice: str | None = None
    versions: dict[str, str | None] | None = None
    environment: dict[str, str] | None = None
    environment_differs_on: list[int] | None = None
    ranks: list[Member] | None = None
    evidence: Evidence | None = None
    injected_fault: str | None = None
    seconds: dict[str, float] | None = None
    verdict: Verdict | None = None
    job: str | None = None
    cluster: str | None = None
    command: list[str] | None = None

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=lambda name: name.rstrip("_"), populate_by_name=True
    )


Verdict.model_rebuild()
Result.model_rebuild()
