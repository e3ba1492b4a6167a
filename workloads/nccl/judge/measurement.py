"""What somebody measured, whatever the tool that wrote it down: the form that the judge reads. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from workloads.nccl.evidence.facts import LogFacts
from workloads.nccl.result import Finding

Form = Literal["rdma-ray", "nccl-tests", "nccl-tests JSON", "unreadable", "none"]


class UnreadableError(Exception):
    """A file that holds no measurement that can be read; the message says what is wrong with it."""


@dataclass(frozen=True)
class Figures:
    """One column of a row as it was printed: mean time of one operation in µs, bandwidths in GB/s.

    `wrong` counts elements; None where the data was not checked. Nothing here is believed before it was recomputed.
    """

    time_us: float
    algbw: float
    busbw: float
    wrong: int | None


@dataclass(frozen=True)
class MeasuredRow:
    """One operation at one size (bytes). A column that was not measured is None."""

    op: str
    size: int
    dtype: str
    out_of_place: Figures | None
    in_place: Figures | None

    @property
    def columns(self) -> tuple[Figures, ...]:
        return tuple(column for column in (self.out_of_place, self.in_place) if column is not None)


@dataclass(frozen=True)
class Run:
    """One run of a benchmark: its rows, and who took part.

    `ranks` counts those of the communicator that the rows are about, `hosts` names the host of every rank that the
    output lists, `gpus` the models of their devices. `groups` counts the communicators that the ranks were split into.
    `ended` is whether the output has the end that its tool writes. `stated_wrong` is the tool's own sum of wrong
    elements. `algorithm` is NCCL_ALGO where the output shows it. `damaged` are rows that could not be read.
    `guarded` counts rows that no published figure is about and that have guards of their own (point to point, latency),
    `unverified` those of them whose data was not checked. `average` is nccl-tests' -a where the output shows it:
    whose times these are (0 rank 0's, 1 the ranks' mean, 2 the fastest rank's, 3 the slowest rank's).
    """

    rows: tuple[MeasuredRow, ...]
    ranks: int | None = None
    hosts: tuple[str, ...] = ()
    gpus: frozenset[str] = frozenset()
    groups: int = 1
    ended: bool = True
    stated_wrong: int | None = None
    algorithm: str | None = None
    damaged: tuple[str, ...] = ()
    guarded: int = 0
    unverified: int = 0
    average: int | None = None


@dataclass(frozen=True)
class Measurement:
    """All that a results file says.

    `hang` are lines that tell of a hang or a time-out, `errors` those that tell why a run broke. `facts` is the
    evidence that the file carries itself. `findings` are what its writer already knew to be wrong.
    """

    form: Form
    runs: tuple[Run, ...]
    hang: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    facts: LogFacts | None = None
    findings: tuple[Finding, ...] = ()
