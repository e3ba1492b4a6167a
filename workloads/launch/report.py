"""Display of a run's result, and the files that follow from it."""

from __future__ import annotations

from rich.console import Console

from workloads.client.view import say
from workloads.launch.result import RunResult
from workloads.nccl.evidence.show import counted, show_evidence


def show(result: RunResult, console: Console) -> None:
    """Print how the run ended, where it ran, and the evidence. The traceback is in the log already."""
    ranks = f"{counted(len(result.exit_codes), 'rank')} on {counted(len(result.nodes), 'node')}"
    if result.nodes:
        restarts = f", {counted(result.restarts, 'restart')}" if result.restarts else ""
        say(console, f"{ranks}{restarts}: {', '.join(f'{node.host} ({node.ip})' for node in result.nodes)}")
    show_evidence(result.evidence, console)
    say(console, result.reason, None if result.exit_code == 0 else "red")
