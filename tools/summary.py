"""Summary of `make up`: resources, measurements, durations, addresses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from workloads.nccl.report import largest
from workloads.nccl.result import Result
from workloads.nccl.sizes import format_size


def setup_seconds(root: Path) -> dict[str, float]:
    """Return the durations that `tools/setup.py` recorded just before, by phase; empty if make did not run it."""
    file = root / ".tools" / "setup.json"
    found: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}
    return found


def print_summary(stack: str, outputs: dict[str, Any], seconds: dict[str, float], results: Path) -> None:
    """Print the summary and write it to `results`/summary.json.

    Args:
        outputs: Outputs of the stack, with masked secrets.
        seconds: Duration of each phase of `make up`.
    """
    benchmark = Result.model_validate_json((results / "nccl" / "result.json").read_text())
    training = json.loads((results / "digits.json").read_text())
    accuracy, epochs, world = training["accuracy"], len(training["epochs"]), training["world"]
    nodes, ray = outputs["nodes"], outputs["ray"]
    console = Console(highlight=False)
    console.print()
    console.rule(f"stack [bold]{stack}[/] is up and works")
    facts = Table.grid(padding=(0, 2))
    facts.add_row("nodes", f"1 head, {nodes['min']} workers of {nodes['cpusPerNode']} CPUs, Ray {ray['version']}")
    facts.add_row("benchmark", f"{benchmark.reason}; {benchmark.notice or 'over the fabric'}")
    facts.add_row("training", f"{accuracy:.2%} of the test digits right after {epochs} epochs on {world} workers")
    facts.add_row("times", ", ".join(f"{phase} {value:.0f} s" for phase, value in seconds.items()))
    facts.add_row("dashboard", f"{ray['dashboard']} (requires the token)")
    facts.add_row("token", f"bin/pulumi stack output ray --show-secrets --stack {stack}")
    facts.add_row("results", f"{results.relative_to(Path.cwd()) if results.is_relative_to(Path.cwd()) else results}/")
    facts.add_row("take it down", f"make down STACK={stack}")
    console.print(facts)
    console.print(_largest_rows(benchmark))
    rounded = {phase: round(value, 1) for phase, value in seconds.items()}
    summary = {"stack": stack, "nodes": nodes, "accuracy": accuracy, "seconds": rounded}
    (results / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")


def _largest_rows(benchmark: Result) -> Table:
    """Return one row per operation at its largest size, which shows bandwidth instead of latency."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("operation", "size", "time", "algbw GB/s", "busbw GB/s", "#wrong"):
        table.add_column(heading, justify="left" if heading == "operation" else "right")
    for row in largest(benchmark.rows):
        wrong = "not checked" if row.wrong is None else str(row.wrong)
        time = f"{row.time_us.max / 1000:.2f} ms"
        table.add_row(row.title, format_size(row.size), time, f"{row.algbw:.3f}", f"{row.busbw:.3f}", wrong)
    return table
