"""Results of benchmark runs: the driver writes them on the cluster; judge, report, page and compare read them.

Times in µs, bandwidths in GB/s (decimal), sizes in bytes. A field that does not apply is None, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from workloads.evidence.facts import Evidence, LogFacts
from workloads.nccl.options import BenchOptions, MultiGpuOptions
from workloads.nccl.presets import Mode
from workloads.nccl.units import format_size
from workloads.results.documents import JobResult, ResultPart, percentile

SCHEMA = "rdma-ray/nccl/3"
SHORT_RUN = 2**20
"""Bytes from which an operation takes longer than its launch from Python."""
SHORT_RUNS: dict[Mode, str] = {
    "throughput": "throughput mode times the launch from Python where it takes longer than the operation",
    "latency": "latency mode times the operation alone, launched before the GPU reaches it",
    "graph": "graph mode times the operation within a CUDA graph of all runs",
}
MULTIGPU_SCHEMA = "rdma-ray/multigpu/1"


def micro(seconds: float) -> float:
    """Return µs, rounded as in results."""
    return round(seconds * 1e6, 2)


class Process(ResultPart):
    """Process of a rank and its host. `machine` is the same for all pods on one kernel."""

    rank: int
    host: str
    machine: str
    ip: str
    node_id: str
    pid: int


class Member(Process):
    """A rank of a benchmark. `node` counts the nodes from 0."""

    node: int
    device: str
    gpu: str | None


class Spread(ResultPart):
    """Mean time of one run on the slowest rank, on all ranks, and on the fastest rank."""

    max: float
    avg: float
    min: float


class Iterations(ResultPart):
    """Single runs on the slowest rank. `cv` is the standard deviation over the mean."""

    p50: float
    p95: float
    p99: float
    max: float
    cv: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Iterations:
        """Summarize the seconds of single runs."""
        p50, p95, p99, longest = (micro(percentile(seconds, percent)) for percent in (50, 95, 99, 100))
        cv = pstdev(seconds) / mean if (mean := fmean(seconds)) else 0.0
        return cls(p50=p50, p95=p95, p99=p99, max=longest, cv=round(cv, 4))


class RankTime(ResultPart):
    """One rank's mean time of one run, and the number of wrong elements it received (None: not checked)."""

    rank: int
    time_us: float
    wrong: int | None


class Pair(ResultPart):
    """One direction between two ranks, measured concurrently with the row's other pairs."""

    sender: int
    receiver: int
    time_us: float
    bandwidth: float


class RowKey(ResultPart):
    """Identity of a row. `variant` distinguishes the measurements of one operation (`pairs up`, `rail 3 duplex`)."""

    op: str
    variant: str | None
    mode: Mode
    dtype: str
    size: int

    @property
    def key(self) -> RowKey:
        """The identity alone."""
        return RowKey(op=self.op, variant=self.variant, mode=self.mode, dtype=self.dtype, size=self.size)

    @property
    def title(self) -> str:
        """`all_reduce`, `p2p pairs up`."""
        return f"{self.op} {self.variant}" if self.variant else self.op

    @property
    def name(self) -> str:
        """The title, with the mode unless it is throughput: `all_reduce, latency mode`."""
        return self.title if self.mode == "throughput" else f"{self.title}, {self.mode} mode"


class Row(RowKey):
    """One operation at one size.

    `algbw` and `busbw` derive from `time_us.max`. `nic_bandwidth` is the minimal traffic through each NIC of a node
    (None on one node). `wrong` is None if data was not checked. `total` is the sum over all pairs of a point-to-point
    row, `limit` the most that the NICs in use can carry for it (None if unknown).
    """

    algorithm: str
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


class World(ResultPart):
    """Number of ranks and nodes; `machines` counts different kernels."""

    nodes: int = Field(ge=1)
    per_node: int = Field(ge=1)
    ranks: int = Field(le=2**17)  # the checks of point-to-point rows list all of them
    machines: int

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.ranks != self.nodes * self.per_node:
            raise ValueError(f"{self.nodes} nodes of {self.per_node} ranks are not {self.ranks} ranks")
        return self


class EvidenceFinding(ResultPart):
    """One finding of the judge. `code` is its exit code, 0 for a remark or a warning."""

    code: int
    kind: str
    text: str


class Comparison(ResultPart):
    """A row against a floor. `share` is measured over expected; below 0.90 fails, below 0.95 warns."""

    op: str
    size: int
    measured: float
    expected: float
    share: float
    source: str
    confidence: str


class Verdict(ResultPart):
    """The judge's verdict: the exit code, one line, all findings, and the comparisons."""

    code: int
    outcome: Literal["pass", "warn", "fail"]
    reason: str
    machine: str | None
    findings: list[EvidenceFinding]
    comparisons: list[Comparison]


class NcclResult(JobResult):
    """Common fields of the results of jobs that run NCCL or gloo."""

    notice: str | None = None
    injected_fault: str | None = None


class BenchResult(NcclResult):
    """Result of a benchmark. `proves`: the figures measure a fabric, or only prove that the functions work."""

    writer: ClassVar[str] = "rdma-ray bench nccl"

    schema_: str = SCHEMA
    spec: BenchOptions
    rows: list[Row]
    world: World | None = None
    proves: Literal["fabric", "function"] | None = None
    environment: dict[str, str] | None = None
    environment_differs_on: list[int] | None = None
    ranks: list[Member] | None = None
    evidence: Evidence | None = None
    seconds: dict[str, float] | None = None
    verdict: Verdict | None = None

    @property
    def short_runs(self) -> str | None:
        """Description of what the rows below 1 MiB on GPUs measure; None without such rows."""
        modes = {row.mode for row in self.rows if row.size < SHORT_RUN}
        if self.backend != "nccl" or not modes:
            return None
        notes = [what for mode, what in SHORT_RUNS.items() if mode in modes]
        return f"rows below {format_size(SHORT_RUN)}: {'; '.join(notes)}"

    def host(self, rank: int) -> str:
        """Return the host of a rank."""
        return next((member.host for member in self.ranks or [] if member.rank == rank), "unknown")


class DeviceTensor(ResultPart):
    """One tensor of a multi-GPU check: its elements' value before the all-reduce, and all elements after it."""

    device: str
    start: float
    values: list[float]


class MultiGpuWorker(Process):
    """One worker of a multi-GPU check. `no_nccl` is why it cannot use NCCL, None if it can."""

    no_nccl: str | None
    tensors: list[DeviceTensor]
    wrong: int
    log: LogFacts | None
    group_destroyed: bool


class MultiGpuResult(NcclResult):
    """A multi-GPU check. Each element of each tensor has to be `expected`."""

    writer: ClassVar[str] = "rdma-ray bench multigpu"

    schema_: str = MULTIGPU_SCHEMA
    spec: MultiGpuOptions
    workers: list[MultiGpuWorker]
    ran: str | None = None
    machines: int | None = None
    expected: float | None = None
    group: str | None = None
