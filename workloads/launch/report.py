"""Display of a run's result."""

from __future__ import annotations

from rich.console import Console

from workloads.client.view import say
from workloads.launch.result import RunResult
from workloads.nccl.evidence.raw_log import named
from workloads.nccl.evidence.show import counted, show_evidence


def show(result: RunResult, console: Console) -> None:
    """Print where the ranks ran and how they ended, and the evidence. A failure's traceback is in the log already."""
    if result.nodes:
        ranks = f"{counted(len(result.exit_codes), 'rank')} on {counted(len(result.nodes), 'node')}"
        restarts = f", {counted(result.restarts, 'restart')}" if result.restarts else ""
        say(console, f"{ranks}{restarts}: {', '.join(f'{node.host} ({node.ip})' for node in result.nodes)}")
    if result.seconds:
        say(console, ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in result.seconds.items()))
    if result.failure is not None:
        say(console, f"exit codes: {'; '.join(ends(result.exit_codes))}")
    show_evidence(result.evidence, console)
    say(console, result.reason, None if result.exit_code == 0 else "red")


def ends(codes: list[int | None]) -> list[str]:
    """Return each exit code with its ranks, the rarest first: the cause is seldom what most ranks have."""
    ranks: dict[int | None, list[int]] = {}
    for rank, code in enumerate(codes):
        ranks.setdefault(code, []).append(rank)
    return [
        f"{'none' if code is None else code} of {named(found)}"
        for code, found in sorted(ranks.items(), key=lambda one: len(one[1]))
    ]
