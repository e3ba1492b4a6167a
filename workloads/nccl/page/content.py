"""The page's text: the verdict, the facts, the remarks, and what NCCL used."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from infra.catalog.machines import Machine
from workloads.evidence.facts import LogFacts
from workloads.evidence.raw_log import ranges
from workloads.evidence.show import counted
from workloads.hardware.gpu import Gpu
from workloads.nccl.result import Result
from workloads.nccl.units import format_size

Status = Literal["pass", "warn", "fail", "unjudged"]
MEANINGS = {
    0: "everything that was requested was measured, right, and not below a floor",
    1: "usage, or an error before there was a result",
    2: "a result below what was requested",
    3: "wrong data: the figures mean nothing until the cause is found",
    4: "no answer within the time-out",
    5: "this is not what was requested: another transport, a NIC missing, too few hosts, or unhealthy GPUs",
}
FUNCTIONAL = "This is a functional proof, not a fabric measurement."
UNKNOWN = "not in the log"


@dataclass(frozen=True)
class Headline:
    """The page's first lines."""

    status: Status
    badge: str
    sentence: str
    meaning: str
    functional: str | None


def headline(result: Result) -> Headline:
    """Return the verdict. A run without a verdict is never a pass, even if its data is right."""
    verdict = result.verdict
    code = verdict.code if verdict else result.exit_code
    status: Status = verdict.outcome if verdict else ("fail" if result.exit_code else "unjudged")
    functional = None
    if result.proves != "fabric" or result.backend == "gloo":
        # FUNCTIONAL repeats what follows the notice's colon.
        why = (result.notice or "it ran over gloo").partition(":")[0]
        functional = f"{FUNCTIONAL} Its bandwidths show nothing about a network: {why}."
        if status == "pass":
            # Right data on one machine must not look like a fabric's pass.
            status = "unjudged"
    badge = {"pass": "Pass", "warn": "Warning", "fail": "Fail", "unjudged": "Not judged"}[status]
    if status == "unjudged" and functional:
        badge = "Functional proof"
    meaning = f"Exit code {code}: {MEANINGS.get(code, 'unknown to this version')}"
    if status == "unjudged":
        meaning = f"Exit code {code}: measured, and every checked element right; no floor was applied"
    return Headline(status, badge, verdict.reason if verdict else result.reason, meaning, functional)


def facts(result: Result, machine: Machine | None) -> list[tuple[str, str]]:
    """Return the facts of the run: name and value."""
    world, spec, versions, rows = result.world, result.spec, result.versions or {}, result.rows
    members = result.ranks or []
    sizes = sorted({row.size for row in rows})
    total = f"{result.finished - result.started:.0f} s"
    parts = ", ".join(f"{part} {seconds:.0f} s" for part, seconds in (result.seconds or {}).items() if seconds >= 1)
    found: list[tuple[str, str | None]] = [
        ("Machine", machine.name if machine else result.verdict.machine if result.verdict else None),
        ("GPUs", ", ".join(sorted({member.gpu for member in members if member.gpu})) or "none"),
        (
            "World",
            f"{counted(world.nodes, 'node')} × {world.per_node} ranks on {counted(world.machines, 'machine')}"
            if world
            else None,
        ),
        ("Hosts", _some([member.host for member in members], 8)),
        (
            "Library",
            f"NCCL {versions['nccl']}" if versions.get("nccl") else result.backend or "unknown: no rank started",
        ),
        ("Data", ", ".join(dict.fromkeys(row.dtype for row in rows))),
        ("Sizes", f"{format_size(sizes[0])} to {format_size(sizes[-1])}" if sizes else "none measured"),
        (
            "Runs",
            f"{spec.iterations} timed after {spec.warmup or 0} to warm up, at each size" if spec.iterations else "",
        ),
        ("Started", datetime.fromtimestamp(result.started, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")),
        ("Took", f"{total} ({parts})" if parts else total),
        ("Job", " on ".join(filter(None, (result.job, result.cluster)))),
        ("Command", shlex.join(result.command) if result.command else None),
        ("Fault injected", result.injected_fault),
    ]
    return [(name, value) for name, value in found if value]


def remarks(result: Result) -> list[str]:
    """Return what distinguishes this run from others, and the rows' warnings."""
    found = []
    if result.injected_fault:
        found.append(f"a fault was injected on purpose: {result.injected_fault}")
    if result.short_runs:
        found.append(result.short_runs)
    if result.environment_differs_on:
        ranks = _some([str(rank) for rank in result.environment_differs_on], 12)
        found.append(f"the environment of these ranks differs from that of rank 0: {ranks}")
    if unchecked := sum(row.wrong is None for row in result.rows):
        found.append(f"{unchecked} of {len(result.rows)} rows were not checked for wrong data")
    return found + [f"{row.name} at {format_size(row.size)}: {text}" for row in result.rows for text in row.warnings]


def wrong(result: Result) -> list[str]:
    """Return the ranks that received wrong elements, worst first."""
    counts: Counter[int] = Counter()
    for row in result.rows:
        for time in row.ranks:
            counts[time.rank] += time.wrong or 0
    worst = counts.most_common()
    return [f"{rank_name(rank, result)} received {count} wrong elements" for rank, count in worst if count]


def transport(result: Result) -> list[tuple[str, ...]]:
    """Return what NCCL used by host and ranks. Ranks of a host with equal logs share a line; differences stand out."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for one in result.evidence.ranks if result.evidence else []:
        alike.setdefault((result.host(one.rank), *_log(one.log)), []).append(one.rank)
    return [(host, ranges(ranks), *cells) for (host, *cells), ranks in alike.items()]


def _log(log: LogFacts | None) -> tuple[str, ...]:
    if log is None:
        return ("not collected: no log of this rank", *["–"] * 4)
    network = " ".join(filter(None, (log.plugin, log.plugin_version))) or UNKNOWN
    known, direct = len({*log.gdrdma_hcas, *log.no_gdrdma_hcas}), len(set(log.gdrdma_hcas))
    across = [channel for channel in log.channels if channel.transport == "NET"]
    kinds = sorted({f"NET/{channel.plugin}{'/GDRDMA' if channel.gdrdma else ''}" for channel in across})
    others = sorted({channel.transport for channel in log.channels} - {"NET"})
    return (
        network + (" (log truncated)" if log.truncated else ""),
        f"{len(log.hcas)}: {_some(log.hcas, 8)}" if log.hcas else UNKNOWN,
        f"{direct} of {known} NICs" if known else UNKNOWN,
        ", ".join([*kinds, *others]) or UNKNOWN,
        _some(log.algorithms, 8) or UNKNOWN,
    )


def gpus(result: Result) -> list[tuple[str, ...]]:
    """Return the health of every GPU: host, rank, GPU, clock before and after, limits, temperature, power, errors."""
    ranks = result.evidence.ranks if result.evidence else []
    return [
        (result.host(rank.rank), str(rank.rank), gpu.pci, *_health(gpu)) for rank in ranks for gpu in rank.gpus or ()
    ]


def _health(gpu: Gpu) -> tuple[str, ...]:
    before, after = gpu.before, gpu.after
    limits = [f"{name} {seconds:.1f} s" for name, seconds in gpu.limited_s.items() if seconds >= 0.05]
    return (
        f"{_known(before.sm_mhz)}, {_known(after.sm_mhz)} of {_known(after.sm_max_mhz)}",
        ", ".join(limits) or ("none" if gpu.limited_s else "not counted"),
        f"{_known(before.temperature_c)}, {_known(after.temperature_c)}",
        f"{_known(before.power_w)}, {_known(after.power_w)} of {_known(after.power_limit_w)}",
        ", ".join(gpu.errors) or "none",
    )


def _known(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def no_evidence(result: Result) -> str:
    """Return why a result has no evidence."""
    if result.backend == "gloo":
        return "gloo has neither NCCL's log nor RDMA NICs"
    return "the result holds no evidence" if result.evidence is None else "the nodes did not report it"


def rank_name(rank: int, result: Result) -> str:
    """Return a rank with its host and device."""
    member = next((member for member in result.ranks or [] if member.rank == rank), None)
    return f"{rank} on {member.host} ({member.device})" if member else str(rank)


def _some(names: Sequence[str], most: int) -> str:
    """Join the first `most` different names."""
    unique = list(dict.fromkeys(names))
    return ", ".join(unique[:most]) + (f" and {len(unique) - most} more" if len(unique) > most else "")
