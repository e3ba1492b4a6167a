"""Result of `rdma-ray run`, which its driver on the cluster emits, and its display."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from workloads.evidence.facts import Evidence
from workloads.evidence.raw_log import named
from workloads.gang.options import Mode
from workloads.nccl.result import EvidenceFinding
from workloads.results.documents import JobResult, ResultPart

if TYPE_CHECKING:
    from rich.console import Console


class RunNode(ResultPart):
    """Node of a run, with its ranks in order."""

    host: str
    ip: str
    node_id: str
    ranks: list[int]


class RunLayout(ResultPart):
    """Parallel sizes, and the ranks of every group by kind: tp, cp, ep, dp, edp, pp (`gang.layout`)."""

    tp: int
    cp: int
    ep: int = 1
    """Absent from results of earlier versions, which had no option for it."""
    dp: int
    pp: int
    groups: dict[str, list[list[int]]]


class RunFailure(ResultPart):
    """First failure: its rank (None for torchrun itself), node and exit code, and the end of its output."""

    rank: int | None
    host: str
    code: int
    text: str


class RunResult(JobResult):
    """Result of a gang: where its ranks ran, how they ended, and how their data traveled.

    Of a Ray driver with --evidence, the ranks are the processes that wrote an NCCL log, in order of their nodes.
    """

    writer: ClassVar[str] = "rdma-ray run"

    schema_: Literal["rdma-ray/run/1"] = "rdma-ray/run/1"
    mode: Mode
    nodes: list[RunNode]
    layout: RunLayout | None = None
    exit_codes: list[int | None]
    """By rank; None for one that was lost with its node."""
    restarts: int = Field(ge=0)
    seconds: dict[str, float]
    """By phase, of all attempts."""
    failure: RunFailure | None = None
    evidence: Evidence | None = None
    transport: str | None = None
    """RDMA transport of the stack; None for sockets."""
    findings: list[EvidenceFinding] = Field([])
    """How the data traveled otherwise than by `transport`. The client finds them; the exit code is the command's."""


def show(result: RunResult, console: Console) -> None:
    """Print where the ranks ran and how they ended, and the evidence. A failure's traceback is in the log already."""
    # The nodes of a cluster have neither rich nor infra.
    from workloads.evidence.facts import counted
    from workloads.evidence.show import show_evidence
    from workloads.terminal.console import say

    unit = "process" if result.mode == "driver" else "rank"
    if result.nodes:
        ranks = (
            f"{counted(sum(len(node.ranks) for node in result.nodes), unit)} on {counted(len(result.nodes), 'node')}"
        )
        restarts = f", {counted(result.restarts, 'restart')}" if result.restarts else ""
        say(console, f"{ranks}{restarts}: {', '.join(f'{node.host} ({node.ip})' for node in result.nodes)}")
    if result.seconds:
        say(console, ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in result.seconds.items()))
    if result.failure is not None:
        say(console, f"exit codes: {'; '.join(ends(result.exit_codes))}")
    show_evidence(result.evidence, console, unit)
    for finding in result.findings:
        say(console, finding.text, "red")
    say(console, result.reason, None if result.exit_code == 0 else "red")


def ends(codes: list[int | None]) -> list[str]:
    """Return each exit code with its ranks, the rarest first: most ranks seldom have the code of the cause."""
    ranks: dict[int | None, list[int]] = {}
    for rank, code in enumerate(codes):
        ranks.setdefault(code, []).append(rank)
    return [
        f"{'none' if code is None else code} of {named(group)}"
        for code, group in sorted(ranks.items(), key=lambda one: len(one[1]))
    ]
