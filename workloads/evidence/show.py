"""Evidence on the terminal: how the data traveled, the NICs' counters, and missing evidence."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from workloads.evidence.facts import Evidence, LogFacts, counted
from workloads.terminal.console import say

SHOWN = 3  # NICs, warnings and reasons shown; the JSON has all of them


def show_evidence(evidence: Evidence | None, console: Console, unit: str = "rank") -> None:
    """Print the evidence of a run, whose logs are each of a `unit`; nothing if it failed before it had any."""
    for text, style in lines(evidence, unit) if evidence else ():
        say(console, text, style)


def lines(evidence: Evidence, unit: str = "rank") -> Iterator[tuple[str, str | None]]:
    """Yield each line with its style: yellow for lines that need attention."""
    if (log := evidence.log) is not None:
        yield from _log(log, counted(sum(rank.log is not None for rank in evidence.ranks), unit))
    if any(rank.counters is not None for rank in evidence.ranks):
        yield from _counters(evidence)
    if gpus := [gpu for rank in evidence.ranks for gpu in rank.gpus or ()]:
        bad = [gpu for gpu in gpus if gpu.troubles]
        text = (
            f"{counted(len(bad), 'GPU')} of {len(gpus)} throttled or with errors" if bad else "none throttled, no error"
        )
        yield f"evidence: {counted(len(gpus), 'GPU')} by NVML, {text}", "yellow" if bad else None
    if evidence.missing:
        more = f"; and {len(evidence.missing) - SHOWN} more" if len(evidence.missing) > SHOWN else ""
        yield f"evidence missing: {'; '.join(evidence.missing[:SHOWN])}{more}", None


def _log(facts: LogFacts, ranks: str) -> Iterator[tuple[str, str | None]]:
    version = f"NCCL {facts.nccl_version or 'of unknown version'}"
    plugin = f"{facts.plugin} {facts.plugin_version or ''}".strip() if facts.plugin else "not named"
    text = f"evidence: {version} by the logs of {ranks}, network plugin {plugin}"
    carried, direct = len(facts.carried), sum(channel.gdrdma for channel in facts.carried)
    text += f", GPUDirect RDMA on {direct} of {carried} connections" if carried else ", no connection through a NIC"
    if counts := sorted(set(facts.nic_counts.values())):
        each = counted(counts[0], "NIC") if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]} NICs"
        text += f", {each} per node"
    if facts.algorithms:
        text += f", {', '.join(facts.algorithms)}"
    yield text, "yellow" if direct < carried or len(counts) > 1 else None
    if facts.truncated:
        yield "evidence: a log ends within a line or within the initialization", "yellow"
    for warning in facts.warnings[:SHOWN]:
        yield f"NCCL warned: {warning}", "yellow"
    if more := len(facts.warnings[SHOWN:]) + facts.warnings_left_out:
        yield f"NCCL warned in {counted(more, 'more line')}", "yellow"


def _counters(evidence: Evidence) -> Iterator[tuple[str, str | None]]:
    nodes = [rank for rank in evidence.ranks if rank.counters is not None]
    found = [(rank.host, counter) for rank in nodes for counter in rank.counters or []]
    sent = sum(counter.sent for _, counter in found) / 1e9
    received = sum(counter.received for _, counter in found) / 1e9
    bad = [(host, counter) for host, counter in found if counter.errors]
    text = f"evidence: {counted(len(found), 'NIC')} of {counted(len(nodes), 'node')} sent {sent:.1f} GB"
    yield f"{text} and received {received:.1f} GB{'' if bad else ', without an error'}", None
    for host, counter in bad[:SHOWN]:
        errors = ", ".join(f"{name} {count}" for name, count in counter.errors.items())
        yield f"{counter.nic} on {host} counted errors: {errors}", "yellow"
    if len(bad) > SHOWN:
        yield f"{counted(len(bad) - SHOWN, 'more NIC')} counted errors", "yellow"
