"""What the page says beside its plots: the verdict, the facts and the tables, as plain text. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from infra.catalog.machines import Machine
from workloads.nccl.page.groups import name, shown
from workloads.nccl.report import figure
from workloads.nccl.result import Member, Result, Row, World
from workloads.nccl.sizes import format_size

Status = Literal["pass", "warn", "fail", "unjudged"]
MEANINGS = {
    0: "everything that was asked for was measured, right, and not below a floor",
    1: "usage, or something that broke before there was a result",
    2: "a result below what was asked for",
    3: "wrong data: the figures mean nothing until that is found",
    4: "no answer within the time-out",
    5: "this is not what was asked for: another transport, a NIC missing, or too few hosts",
}
FUNCTIONAL = "This is a functional proof, not a fabric measurement."


@dataclass(frozen=True)
class Headline:
    """The page's first words."""

    status: Status
    badge: str
    sentence: str
    meaning: str
    functional: str | None


@dataclass(frozen=True)
class Table:
    """`text` counts the leading columns that hold words, `tail` those at the end; the others hold figures."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: int = 1
    tail: int = 0
    note: str = ""

    fold: int = 32

    @property
    def long(self) -> bool:
        """Whether it is folded until somebody asks for it."""
        return len(self.rows) > self.fold

    def numeric(self, index: int) -> bool:
        return self.text <= index < len(self.columns) - self.tail


def headline(result: Result) -> Headline:
    """The verdict; a run that nobody judged is never called a pass, however right its data."""
    verdict = result.verdict
    code = verdict.code if verdict else result.exit_code
    status: Status = verdict.outcome if verdict else ("fail" if result.exit_code else "unjudged")
    functional = None
    if result.proves != "fabric" or result.backend == "gloo":
        # The notice may say what it means after a colon, in the words that stand here already.
        why = (result.notice or "it ran over gloo").partition(":")[0]
        functional = f"{FUNCTIONAL} Its bandwidths say nothing about a network: {why}."
        if status == "pass":
            # Right data on one machine passes what it was asked, and no reader may take that for a fabric's pass.
            status = "unjudged"
    badge = {"pass": "Pass", "warn": "Warning", "fail": "Fail", "unjudged": "Not judged"}[status]
    if status == "unjudged" and functional:
        badge = "Functional proof"
    meaning = f"Exit code {code}: {MEANINGS.get(code, 'unknown to this version')}"
    if status == "unjudged":
        meaning = f"Exit code {code}: measured, and every checked element right; no floor was applied"
    return Headline(status, badge, verdict.reason if verdict else result.reason, meaning, functional)


def facts(result: Result, machine: Machine | None) -> list[tuple[str, str]]:
    """What was measured, on what, with what, when and how: name and value."""
    world, spec, versions = result.world, result.spec, result.versions or {}
    hosts = list(dict.fromkeys(member.host for member in result.ranks or []))
    gpus = sorted({member.gpu for member in result.ranks or [] if member.gpu})
    judged = result.verdict.machine if result.verdict else None
    library = f"NCCL {versions['nccl']}" if versions.get("nccl") else result.backend or "unknown: no rank started"
    sizes = sorted({row.size for row in result.rows})
    found: list[tuple[str, str | None]] = [
        ("Machine", machine.name if machine else judged),
        ("GPUs", ", ".join(gpus) or "none"),
        ("World", _world(world) if world else None),
        ("Hosts", _some(hosts, 8)),
        ("Library", library),
        ("Data", _dtypes(result)),
        ("Sizes", f"{format_size(sizes[0])} to {format_size(sizes[-1])}" if sizes else "none measured"),
        ("Runs", _runs(spec)),
        ("Started", _moment(result.started)),
        ("Took", _took(result)),
        ("Job", " on ".join(filter(None, (result.job, result.cluster))) or None),
        ("Command", shlex.join(result.command) if result.command else None),
        ("Fault injected", result.injected_fault),
    ]
    return [(name, value) for name, value in found if value]


def comparisons(result: Result) -> Table | None:
    """The judge's comparisons; None where there are none."""
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
    return Table(
        "Against what is published",
        ("operation", "size", "measured GB/s", "published GB/s", "share", "source"),
        rows,
        tail=1,
        note="Below 90 % fails, below 95 % warns.",
    )


def percentiles(result: Result) -> Table:
    """Single runs on the slowest rank, at the largest size of every measurement."""
    rows = [
        (
            name(row),
            format_size(row.size),
            *(figure(value) for value in (row.iteration_us.p50, row.iteration_us.p95)),
            *(figure(value) for value in (row.iteration_us.p99, row.iteration_us.max)),
            _percent(row.iteration_us.cv),
        )
        for row in shown(result)
    ]
    return Table(
        "Single runs",
        ("measurement", "size", "p50 µs", "p95 µs", "p99 µs", "max µs", "cv"),
        rows,
        note="On the slowest rank, at the largest size. cv is the standard deviation over the mean.",
    )


def spread(result: Result) -> Table:
    """The slowest rank of every measurement by name, against the ranks' mean."""
    members = {member.rank: member for member in result.ranks or []}
    rows = []
    for row in shown(result):
        slowest = max(row.ranks, key=lambda time: time.time_us, default=None)
        where = _who(slowest.rank, members) if slowest else "unknown"
        late = row.time_us.max / row.time_us.avg - 1 if row.time_us.avg else 0.0
        times = (row.time_us.max, row.time_us.avg, row.time_us.min)
        rows.append((name(row), where, format_size(row.size), *map(figure, times), f"+{_percent(late)}"))
    return Table(
        "Slowest rank",
        ("measurement", "slowest rank", "size", "slowest µs", "mean µs", "fastest µs", "late"),
        rows,
        text=2,
        note="A collective ends when its last rank does: the slowest rank's time is what bandwidths come from.",
    )


def raw(result: Result) -> Table:
    """Every row."""
    return Table(
        "Every row",
        ("measurement", "type", "size", "time µs", "algbw", "busbw", "per NIC", "total", "limit", "#wrong"),
        [
            (
                name(row),
                row.dtype,
                format_size(row.size),
                figure(row.time_us.max),
                *(_figure(value) for value in (row.algbw, row.busbw, row.nic_bandwidth, row.total, row.limit)),
                "not checked" if row.wrong is None else str(row.wrong),
            )
            for row in result.rows
        ],
        text=2,
        fold=0,
        note="Bandwidths in GB/s (decimal); – where a figure does not apply.",
    )


def remarks(result: Result) -> list[str]:
    """The rows' warnings, and what makes this run unlike others."""
    found = [f"{name(row)} at {format_size(row.size)}: {text}" for row in result.rows for text in row.warnings]
    unchecked = [row for row in result.rows if row.wrong is None]
    if unchecked:
        found.insert(0, f"{len(unchecked)} of {len(result.rows)} rows were not checked for wrong data")
    if result.environment_differs_on:
        ranks = _some([str(rank) for rank in result.environment_differs_on], 12)
        found.insert(0, f"the environment of these ranks differs from that of rank 0: {ranks}")
    if result.injected_fault:
        found.insert(0, f"a fault was injected on purpose: {result.injected_fault}")
    return found


def wrong(rows: Sequence[Row], members: Mapping[int, Member]) -> list[str]:
    """Who received wrong elements, worst first."""
    counts: dict[int, int] = {}
    for row in rows:
        for time in row.ranks:
            if time.wrong:
                counts[time.rank] = counts.get(time.rank, 0) + time.wrong
    return [
        f"{_who(rank, members)} received {count} wrong elements"
        for rank, count in sorted(counts.items(), key=lambda pair: -pair[1])
    ]


def _world(world: World) -> str:
    nodes = f"{world.nodes} node{'s' if world.nodes > 1 else ''}"
    return f"{nodes} × {world.per_node} ranks on {world.machines} machine{'s' if world.machines > 1 else ''}"


def _who(rank: int, members: Mapping[int, Member]) -> str:
    member = members.get(rank)
    return f"{rank} on {member.host} ({member.device})" if member else str(rank)


def _some(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _dtypes(result: Result) -> str | None:
    return ", ".join(dict.fromkeys(row.dtype for row in result.rows)) or None


def _runs(spec: Mapping[str, object]) -> str | None:
    if "iterations" not in spec:
        return None
    return f"{spec['iterations']} timed after {spec.get('warmup', 0)} to warm up, at each size"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _took(result: Result) -> str:
    total = f"{result.finished - result.started:.0f} s"
    parts = ", ".join(f"{part} {seconds:.0f} s" for part, seconds in (result.seconds or {}).items() if seconds >= 1)
    return f"{total} ({parts})" if parts else total


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def _figure(value: float | None) -> str:
    return "–" if value is None else figure(value)
