"""The page's text: the verdict, the facts and the tables."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from infra.catalog.machines import Machine
from workloads.nccl.evidence.facts import LogFacts
from workloads.nccl.page.rows import shown
from workloads.nccl.result import Member, Result, Row
from workloads.nccl.sizes import figure, format_size

Status = Literal["pass", "warn", "fail", "unjudged"]
MEANINGS = {
    0: "everything that was requested was measured, right, and not below a floor",
    1: "usage, or an error before there was a result",
    2: "a result below what was requested",
    3: "wrong data: the figures mean nothing until the cause is found",
    4: "no answer within the time-out",
    5: "this is not what was requested: another transport, a NIC missing, or too few hosts",
}
FUNCTIONAL = "This is a functional proof, not a fabric measurement."
NOT_COLLECTED = "not collected"
UNKNOWN = "not in the log"


@dataclass(frozen=True)
class Headline:
    """The page's first lines."""

    status: Status
    badge: str
    sentence: str
    meaning: str
    functional: str | None


@dataclass(frozen=True)
class Table:
    """A table. The first `text` and the last `tail` columns are text, the others figures."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: int = 1
    tail: int = 0
    note: str = ""
    fold: int = 32

    @property
    def long(self) -> bool:
        """Whether the page shows it folded."""
        return len(self.rows) > self.fold

    def numeric(self, index: int) -> bool:
        return self.text <= index < len(self.columns) - self.tail


def headline(result: Result) -> Headline:
    """Return the verdict. A run without a verdict is never a pass, even if its data is right."""
    verdict = result.verdict
    code = verdict.code if verdict else result.exit_code
    status: Status = verdict.outcome if verdict else ("fail" if result.exit_code else "unjudged")
    functional = None
    if result.proves != "fabric" or result.backend == "gloo":
        # What the notice has after a colon is in FUNCTIONAL already.
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
            f"{_count(world.nodes, 'node')} × {world.per_node} ranks on {_count(world.machines, 'machine')}"
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


def comparisons(result: Result) -> Table | None:
    """Return the judge's comparisons; None without any."""
    if result.verdict is None or not result.verdict.comparisons:
        return None
    rows = [
        (
            one.op,
            format_size(one.size),
            figure(one.measured),
            figure(one.expected),
            _percent(one.share),
            f"{one.source} ({one.confidence})",
        )
        for one in result.verdict.comparisons
    ]
    columns = ("operation", "size", "measured GB/s", "published GB/s", "share", "source")
    return Table("Against what is published", columns, rows, tail=1, note="Below 90 % fails, below 95 % warns.")


def percentiles(result: Result) -> Table:
    """Return single runs on the slowest rank, at the largest size of every measurement."""
    rows = []
    for row in shown(result):
        single = row.iteration_us
        times = map(figure, (single.p50, single.p95, single.p99, single.max))
        rows.append((row.name, format_size(row.size), *times, _percent(single.cv)))
    columns = ("measurement", "size", "p50 µs", "p95 µs", "p99 µs", "max µs", "cv")
    note = "On the slowest rank, at the largest size. cv is the standard deviation over the mean."
    return Table("Single runs", columns, rows, note=note)


def spread(result: Result) -> Table:
    """Return the slowest rank of every measurement against the ranks' mean."""
    members = {member.rank: member for member in result.ranks or []}
    rows = []
    for row in shown(result):
        slowest = max(row.ranks, key=lambda time: time.time_us, default=None)
        where = _rank_name(slowest.rank, members) if slowest else "unknown"
        late = row.time_us.max / row.time_us.avg - 1 if row.time_us.avg else 0.0
        times = (row.time_us.max, row.time_us.avg, row.time_us.min)
        rows.append((row.name, where, format_size(row.size), *map(figure, times), f"+{_percent(late)}"))
    columns = ("measurement", "slowest rank", "size", "slowest µs", "mean µs", "fastest µs", "late")
    note = "A collective ends when its last rank does: bandwidths are computed from the slowest rank's time."
    return Table("Slowest rank", columns, rows, text=2, note=note)


def raw(result: Result) -> Table:
    """Return every row."""
    rows = [
        (
            row.name,
            row.dtype,
            format_size(row.size),
            figure(row.time_us.max),
            *(
                "–" if value is None else figure(value)
                for value in (row.algbw, row.busbw, row.nic_bandwidth, row.total, row.limit)
            ),
            "not checked" if row.wrong is None else str(row.wrong),
        )
        for row in result.rows
    ]
    columns = ("measurement", "type", "size", "time µs", "algbw", "busbw", "per NIC", "total", "limit", "#wrong")
    note = "Bandwidths in GB/s (decimal); – if a figure does not apply."
    return Table("Every row", columns, rows, text=2, fold=0, note=note)


def remarks(result: Result) -> list[str]:
    """Return what distinguishes this run from others, and the rows' warnings."""
    found = []
    if result.injected_fault:
        found.append(f"a fault was injected on purpose: {result.injected_fault}")
    if result.environment_differs_on:
        ranks = _some([str(rank) for rank in result.environment_differs_on], 12)
        found.append(f"the environment of these ranks differs from that of rank 0: {ranks}")
    if unchecked := sum(row.wrong is None for row in result.rows):
        found.append(f"{unchecked} of {len(result.rows)} rows were not checked for wrong data")
    return found + [f"{row.name} at {format_size(row.size)}: {text}" for row in result.rows for text in row.warnings]


def wrong(rows: Sequence[Row], members: Mapping[int, Member]) -> list[str]:
    """Return the ranks that received wrong elements, worst first."""
    counts: dict[int, int] = {}
    for row in rows:
        for time in row.ranks:
            if time.wrong:
                counts[time.rank] = counts.get(time.rank, 0) + time.wrong
    return [
        f"{_rank_name(rank, members)} received {count} wrong elements"
        for rank, count in sorted(counts.items(), key=lambda pair: -pair[1])
    ]


def evidence_tables(result: Result) -> list[Table]:
    """Return transport, counters, versions, environment and topology; missing ones with the reason."""
    evidence = result.evidence
    versions = [(key, value or "not there") for key, value in (result.versions or {}).items()]
    if evidence:
        versions.append(("image", evidence.image or f"{NOT_COLLECTED}: the cluster does not report it"))
    environment = list((result.environment or {}).items())
    topology = list(evidence.topology.items()) if evidence else []
    absent = "the result has none"
    return [
        _transport(result),
        _counters(result),
        _pairs("Versions", "part", "version", versions, absent),
        _pairs("Environment of rank 0", "variable", "value", environment, absent),
        _pairs("Topology", "node", "nvidia-smi topo", topology, _why(result)),
    ]


def ranges(numbers: Sequence[int]) -> str:
    """Format numbers in ascending order, three or more consecutive ones as a range: `0–7, 9`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def _transport(result: Result) -> Table:
    # Ranks of a host with equal logs share a line, so that differences stand out.
    alike: dict[tuple[str, ...], list[int]] = {}
    for one in result.evidence.ranks if result.evidence else []:
        alike.setdefault((_host(one.rank, result), *_log(one.log)), []).append(one.rank)
    rows = [(host, ranges(ranks), *cells) for (host, *cells), ranks in alike.items()]
    columns = ("host", "ranks", "network", "NICs", "GPUDirect RDMA", "channels", "algorithms")
    note = "From NCCL's own log of every rank." if rows else f"{NOT_COLLECTED}: {_why(result)}"
    return Table("What NCCL used", columns, rows, text=len(columns), note=note)


def _log(log: LogFacts | None) -> tuple[str, ...]:
    if log is None:
        return (f"{NOT_COLLECTED}: no log of this rank", *["–"] * 4)
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


def _counters(result: Result) -> Table:
    rows = []
    for one in result.evidence.ranks if result.evidence else []:
        for counter in one.counters or []:
            errors = ", ".join(f"{name} {count}" for name, count in counter.errors.items() if count) or "none"
            figures = f"{counter.sent / 1e9:.1f}", f"{counter.received / 1e9:.1f}"
            rows.append((_host(one.rank, result), counter.nic, errors, *figures))
    why = _why(result) if result.evidence is None else "no node has counters of its NICs"
    note = "During the whole run, of the whole node." if rows else f"{NOT_COLLECTED}: {why}"
    return Table("What the NICs counted", ("host", "NIC", "errors", "sent GB", "received GB"), rows, text=3, note=note)


def _pairs(title: str, name: str, value: str, rows: Sequence[tuple[str, str]], why: str) -> Table:
    return Table(title, (name, value), rows, text=2, note="" if rows else f"{NOT_COLLECTED}: {why}")


def _why(result: Result) -> str:
    if result.backend == "gloo":
        return "gloo has neither NCCL's log nor RDMA NICs"
    return "the result holds no evidence" if result.evidence is None else "the nodes did not report it"


def _host(rank: int, result: Result) -> str:
    return next((member.host for member in result.ranks or [] if member.rank == rank), "unknown")


def _rank_name(rank: int, members: Mapping[int, Member]) -> str:
    member = members.get(rank)
    return f"{rank} on {member.host} ({member.device})" if member else str(rank)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' if number > 1 else ''}"


def _some(names: Sequence[str], most: int) -> str:
    """Join the first `most` different names."""
    unique = list(dict.fromkeys(names))
    return ", ".join(unique[:most]) + (f" and {len(unique) - most} more" if len(unique) > most else "")


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"
