"""Measurement in the form that the judge reads, whatever tool wrote it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from workloads.evidence.facts import LogFacts
from workloads.nccl.result import EvidenceFinding
from workloads.nccl.units import format_size

Form = Literal["rdma-ray", "nccl-tests", "unreadable", "none"]


@dataclass(frozen=True)
class RowFigures:
    """One column of a row as printed: mean time of one operation in µs, bandwidths in GB/s.

    `wrong` counts elements; None if the data was not checked. The judge recomputes the bandwidths. `time_error` is by
    how many µs the printed time may differ from the measured one.
    """

    time_us: float
    algbw: float
    busbw: float
    wrong: int | None
    time_error: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class MeasuredRow:
    """One operation at one size (bytes). A column that was not measured is None."""

    op: str
    size: int
    dtype: str
    out_of_place: RowFigures | None
    in_place: RowFigures | None = None

    @property
    def name(self) -> str:
        """Operation and size: `all_gather 8 GiB`."""
        return f"{self.op} {format_size(self.size)}"

    @property
    def columns(self) -> tuple[RowFigures, ...]:
        return tuple(column for column in (self.out_of_place, self.in_place) if column is not None)


@dataclass(frozen=True)
class ListedRank:
    """Rank that the output lists: its host, the model of its device, and the communicator it was split into."""

    rank: int
    host: str
    gpu: str
    group: int = 0


@dataclass
class MeasuredRun:
    """One run of a benchmark.

    Attributes:
        ended: The output has the last lines that its tool writes.
        stated_wrong: The tool's own count of wrong elements.
        algorithm: NCCL_ALGO, if the output shows it.
        damaged: Rows that cannot be read.
        guarded: Rows without published figures that have their own checks (point to point, latency).
        unverified: Guarded rows whose data was not checked.
        average: nccl-tests' -a, if the output shows it. The times are those of: 0 rank 0, 1 the ranks' mean, 2 the
            fastest rank, 3 the slowest rank.
        above: Size in bytes that the largest row exceeds, if the output shows the sweep.
    """

    rows: list[MeasuredRow] = field(default_factory=list)
    members: list[ListedRank] = field(default_factory=list)
    ended: bool = False
    stated_wrong: int | None = None
    algorithm: str | None = None
    damaged: list[str] = field(default_factory=list)
    guarded: int = 0
    unverified: int = 0
    average: int | None = None
    above: int | None = None

    @property
    def ranks(self) -> int | None:
        """Size of the communicator that the rows are about, the first; None if no rank is listed."""
        first = min(self.members, key=lambda member: member.rank, default=None)
        return sum(member.group == first.group for member in self.members) if first else None

    @property
    def largest(self) -> int:
        """Size of the largest row in bytes, 0 without rows."""
        return max((row.size for row in self.rows), default=0)

    @property
    def hosts(self) -> list[str]:
        """Host of every rank that the output lists."""
        return [member.host for member in self.members]


@dataclass(frozen=True)
class Measurement:
    """Contents of a results file.

    `hang` and `errors` are lines about a hang or time-out and about why a run failed. `facts` is evidence in the file
    itself, `findings` are problems that its writer recorded.
    """

    form: Form
    runs: tuple[MeasuredRun, ...]
    hang: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    facts: LogFacts | None = None
    findings: tuple[EvidenceFinding, ...] = ()

    @property
    def rows(self) -> list[MeasuredRow]:
        """Rows of all runs."""
        return [row for run in self.runs for row in run.rows]

    @property
    def log(self) -> LogFacts:
        """Facts in the logs; empty without a log."""
        return self.facts or LogFacts()
