"""Checks of a measurement, one function each: they return findings and never raise. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from workloads.evidence.facts import LogFacts, counted
from workloads.exits import Exit
from workloads.nccl.judge import expectation as rules
from workloads.nccl.judge.expectation import Expectation, network_of
from workloads.nccl.judge.measurement import MeasuredRow, MeasuredRun, Measurement, RowFigures
from workloads.nccl.judge.nccl_tests import UNNAMED
from workloads.nccl.problems import failure, problems, remark
from workloads.nccl.result import Comparison, EvidenceFinding
from workloads.nccl.units import BUSBW_FACTORS, algbw, busbw, format_size

RELATIVE = 0.01  # a time is printed with four digits at least
ABSOLUTE = 0.006  # a bandwidth is printed with two decimals
UNIT_ERRORS = {
    8.0: "Gbit/s instead of GB/s",
    1 / 8: "GB/s divided by 8 once too often",
    1e9 / 2**30: "GiB/s instead of GB/s",
    2**30 / 1e9: "binary sizes read as decimal ones",
    1e-3: "the times are in ms, not µs, or the bandwidths in TB/s, not GB/s",
    1e3: "the times are in ns, not µs, or the bandwidths in MB/s, not GB/s",
    1e-6: "the times are in s, not µs",
}


def is_whole(found: Measurement) -> bool:
    """Return whether every run has rows, and the last lines that its tool writes."""
    return bool(found.runs) and all((run.rows or run.guarded) and run.ended for run in found.runs)


def completeness(found: Measurement) -> Iterator[EvidenceFinding]:
    """Find a missing or incomplete result, or a hang. A time-out that did not stop the run is a remark."""
    first_error = "".join(f": {line}" for line in found.errors[:1])
    if found.hang:
        code = Exit.OK if is_whole(found) else Exit.HANG
        yield failure("hang", f"a time-out: {found.hang[0]}", code)
    elif found.form == "none":
        text = "nothing was measured: pass the results with --results FILE"
        yield failure("not-measured", text, Exit.BELOW)
    elif found.form != "unreadable" and not any(run.rows or run.guarded for run in found.runs):
        yield failure("no-rows", f"the output has no row of figures{first_error}", Exit.ERROR)
    elif found.form == "nccl-tests" and not is_whole(found):
        text = "the output ends before `Out of bounds values`: the run did not end, or the file was cut"
        yield failure("truncated", text + first_error, Exit.ERROR)
    for run in found.runs:
        if run.damaged:
            text = f"{counted(len(run.damaged), 'row')} cannot be read, first: {run.damaged[0]}"
            yield failure("damaged", text, Exit.ERROR)
        elif run.rows and run.ended and run.above is not None and run.largest <= run.above:
            text = f"the run measured sizes above {format_size(run.above)}, but the output has no row for them"
            yield failure("damaged", text, Exit.ERROR)


def operations(found: Measurement, expected: Expectation) -> Iterator[EvidenceFinding]:
    """Find a requested operation that is missing, and a table that does not name its operation."""
    there = {row.op for row in found.rows}
    if UNNAMED in there:
        text = "the output does not name the measured operation: name it with --op"
        yield failure("no-operation", text, Exit.ERROR)
        return
    for op in expected.ops:
        if there and op not in there:
            text = f"{op} was requested, but only {', '.join(sorted(there))} was measured"
            yield failure("no-operation", text)


def wrong_data(found: Measurement) -> Iterator[EvidenceFinding]:
    """Find wrong elements in every row, in both columns, and in the tool's own sum."""
    for run in found.runs:
        bad = [row for row in run.rows if any(figures.wrong for figures in row.columns)]
        if bad:
            count = sum(figures.wrong or 0 for figures in bad[0].columns)
            text = (
                f"wrong data in {len(bad)} of {len(run.rows)} rows, first in {bad[0].op} at"
                f" {format_size(bad[0].size)} ({count} elements): no figure of this run is valid"
            )
            yield failure("wrong-data", text, Exit.WRONG_DATA)
        elif run.stated_wrong:
            text = f"the tool counted {run.stated_wrong} wrong values"
            yield failure("wrong-data", text, Exit.WRONG_DATA)


def unchecked(found: Measurement, expected: Expectation) -> Iterator[EvidenceFinding]:
    """Find rows whose data was not checked."""
    rows = [row for row in found.rows if expected.includes(row.op)]
    without = sum(any(figures.wrong is None for figures in row.columns) for row in rows)
    without += sum(run.unverified for run in found.runs)
    if without:
        text = f"the data of {counted(without, 'row')} was not checked: measure with -c 1, or pass --no-check"
        yield remark("unchecked", text) if expected.no_check else failure("unchecked", text)


def disagreements(run: MeasuredRun, ranks: int) -> list[EvidenceFinding]:
    """Find a table that contradicts itself: bandwidths follow from sizes, times and the number of ranks.

    This catches Gbit/s, GiB/s or milliseconds in place of GB/s and microseconds. `ranks` is the requested
    number, used if the table shows none.
    """
    # The largest row has the most digits.
    rows = sorted(run.rows, key=lambda row: -row.size)
    columns = [_disagreement(row, figures, run, ranks) for row in rows for figures in row.columns]
    found = [one for one in columns if one is not None]
    more = f" ({len(found)} such figures)" if len(found) > 1 else ""
    return [one.model_copy(update={"text": one.text + more}) for one in found[:1]]


def _disagreement(row: MeasuredRow, figures: RowFigures, run: MeasuredRun, ranks: int) -> EvidenceFinding | None:
    expected = algbw(row.size, figures.time_us / 1e6)
    coarse = figures.time_error / figures.time_us
    if not _agree(figures.algbw, expected, coarse):
        ratio = figures.algbw / expected if expected else math.inf
        error = next((name for known, name in UNIT_ERRORS.items() if abs(ratio / known - 1) < 0.02), None)
        text = (
            f"{row.name}: {row.size} bytes in {figures.time_us:g} µs are {expected:.4g} GB/s and not"
            f" {figures.algbw:g}: {error or f'off by a factor of {ratio:.3g}'}"
        )
        return failure("units", text, Exit.ERROR)
    n = run.ranks or ranks
    factor = BUSBW_FACTORS.get(row.op)
    if factor is None or _agree(figures.busbw, expected * factor(n), coarse):
        return None
    text = (
        f"{row.name}: busbw is {figures.busbw:g} GB/s, but with {n} ranks algbw {figures.algbw:g} gives"
        f" {expected * factor(n):.4g}: another operation, another number of ranks, or another unit"
    )
    # A table that shows its ranks contradicts itself; any other may be correct, but of another run.
    return failure("units", text, Exit.ERROR) if run.ranks else failure("another-run", text)


def _agree(printed: float, expected: float, coarse: float) -> bool:
    return abs(printed - expected) <= (RELATIVE + coarse / max(1 - coarse, 0.5)) * expected + ABSOLUTE


def ranks(run: MeasuredRun, log: LogFacts, expected: Expectation) -> Iterator[EvidenceFinding]:
    """Find too few ranks, too many, or ranks in separate groups."""
    found, groups = run.ranks, len({member.group for member in run.members})
    of = f"{counted(expected.nodes, 'node')} of {expected.machine} have {expected.ranks} GPUs"
    if groups > 1:
        text = f"the ranks were split into {groups} groups (NCCL_TESTS_SPLIT): no group spans all"
        yield failure("split", text)
    elif found is None:
        if log.nranks is None:
            text = f"{of}, but neither the output nor a log shows the number of ranks"
            yield failure("ranks-unknown", text)
    elif found < expected.ranks:
        yield failure("too-few-ranks", f"{of}, but {found} ranks took part")
    elif found > expected.ranks:
        yield failure("another-run", f"{of}, but {found} ranks took part: another run's output?")


def hosts(run: MeasuredRun, log: LogFacts, expected: Expectation) -> Iterator[EvidenceFinding]:
    """Check that the ranks ran on as many hosts as nodes were requested, evenly."""
    names = run.hosts or list(log.hosts.values())
    nodes, count = expected.nodes, len(set(names))
    requested = f"{nodes} nodes were requested, and"
    if not names:
        if nodes > 1 and log.nnodes is None:
            yield failure("hosts-unknown", f"nothing shows that the ranks were on {nodes} hosts")
    elif count < nodes:
        yield failure("same-host", f"{requested} all ranks are on {counted(count, 'host')}")
    elif count > nodes:
        yield failure("another-run", f"{requested} the ranks are on {count} hosts")
    elif len(names) == expected.ranks and len(uneven := set(Counter(names).values())) > 1:
        yield failure("uneven", f"the hosts have different numbers of ranks: {sorted(uneven)}")


def same_run(found: Measurement) -> Iterator[EvidenceFinding]:
    """Check that the log is that of the run. Both name hosts as the kernel does, without the domain."""
    logged = sorted({name.split(".")[0] for name in found.log.hosts.values()})
    figures = sorted({name.split(".")[0] for run in found.runs for name in run.hosts})
    if found.form != "rdma-ray" and logged and figures and set(logged).isdisjoint(figures):
        text = f"the log is from {', '.join(logged[:4])}, but the figures are from {', '.join(figures[:4])}"
        yield failure("another-run", text)


def covered(found: Measurement, expected: Expectation) -> Iterator[EvidenceFinding]:
    """Check that every node has a rank with a log, which shows that node's NICs only."""
    hosts = sorted(set(found.log.hosts.values()))
    if 0 < len(hosts) < min(expected.nodes, found.log.nnodes or expected.nodes):
        nodes = counted(expected.nodes, "node")
        yield failure("some-nodes", f"the log covers {len(hosts)} of {nodes}: {', '.join(hosts[:4])}")


def times(run: MeasuredRun) -> Iterator[EvidenceFinding]:
    """Check that the times are the ranks' mean, as in published figures, or the slowest rank's."""
    if run.average in (0, 2):
        whose = "rank 0's" if run.average == 0 else "the fastest rank's"
        text = f"the times are {whose} (nccl-tests -a {run.average}): the mean is -a 1, the slowest -a 3"
        yield failure("whose-time", text)


def gpus(run: MeasuredRun, expected: Expectation) -> Iterator[EvidenceFinding]:
    """Check that the devices are those of the machine."""
    machine = expected.row
    models = sorted({member.gpu for member in run.members if member.gpu})
    others = [model for model in models if not re.search(rf"\b{machine.gpu}\b", model)]
    if others:
        text = f"{machine.name} machines have {machine.gpu} GPUs, but the ranks ran on {', '.join(others)}"
        yield failure("other-gpu", text)


def transport(found: Measurement, expected: Expectation) -> Iterator[EvidenceFinding]:
    """Check in NCCL's log how the data traveled."""
    nodes, machine, log = expected.nodes, expected.row, found.log
    # `NCCL version …` alone, as nccl-tests' output often has it, shows nothing of the transport.
    known = log.nranks is not None or log.plugins or log.channels
    if not known and expected.no_log and nodes > 1:
        yield remark("no-log", "nothing shows how the data traveled (--no-log)")
    elif known or nodes > 1:
        yield from problems(
            log if known else None,
            nodes=nodes,
            nics=machine.nics,
            network=network_of(expected.transport or machine.transport, gpu_direct=machine.gpu_direct),
            ranks=expected.ranks,
        )


def possible(run: MeasuredRun, log: LogFacts, expected: Expectation) -> Iterator[EvidenceFinding]:
    """Find a row above the limit of the NICs, in either column."""
    for row in run.rows:
        limit = rules.ceiling(row.op, expected, rules.algorithms_of(row.op, run, log))
        shortest = min((figures.time_us + figures.time_error for figures in row.columns), default=0.0)
        if limit is None or not shortest:
            continue
        best = busbw(row.op, row.size, shortest / 1e6, run.ranks or expected.ranks)
        if best > rules.TOLERANCE * limit:
            text = (
                f"{row.name}: {best:.1f} GB/s, but the NICs of {expected.machine} allow {limit:.1f}:"
                " this did not go through the NICs"
            )
            yield failure("over-limit", text)
            return  # larger rows repeat it


def bandwidth(
    runs: Sequence[MeasuredRun], log: LogFacts, expected: Expectation
) -> tuple[list[Comparison], list[EvidenceFinding]]:
    """Compare every judged row with its published figure."""
    comparisons: list[Comparison] = []
    found: list[EvidenceFinding] = []
    met: set[str] = set()
    rows = [(run, row) for run in runs for row in rules.headline(run.rows) if row.op in BUSBW_FACTORS]
    for run, row in rows:
        if not expected.includes(row.op):
            continue
        value = rules.measured(row, run.ranks or expected.ranks)
        algorithms = rules.algorithms_of(row.op, run, log)
        floor = rules.floor_of(expected.row.baselines, row.op, expected.nodes, row.size, algorithms)
        if not rules.large_enough(row.size):
            text = f"{row.name} is the largest size: below {format_size(rules.MIN_SIZE)} it does not show the fabric"
            found.append(remark("small", text))
        elif value is None:
            text = f"{row.name} was measured in place only, unlike the published figures"
            found.append(remark("no-column", text))
        elif floor is not None:
            comparisons.append(rules.compare(row, value, floor))
            found += _shortfall(row, comparisons[-1], floor.gates)
            met |= {row.op} if floor.gates else set()
    requested = expected.ops or sorted({row.op for _, row in rows})
    missing = [op for op in requested if op not in met]
    # Without --op, one operation with a figure is enough: most operations have no published figure.
    if runs and missing and (expected.ops or not met):
        found.append(no_baseline(missing, expected))
    return comparisons, found


def _shortfall(row: MeasuredRow, comparison: Comparison, gates: bool) -> Iterator[EvidenceFinding]:
    share, source = comparison.share, comparison.source
    text = f"{row.name}: {comparison.measured:.1f} GB/s, {share:.1%} of {comparison.expected:g} GB/s"
    if not gates:
        yield remark("unconfirmed", f"{text}, an unconfirmed figure: it does not gate")
    elif share < rules.FAIL_BELOW:
        yield failure("below", f"{text} ({source}), below {rules.FAIL_BELOW:.0%}", Exit.BELOW)
    elif share < rules.WARN_BELOW:
        yield remark("slow", f"{text} ({source}), below {rules.WARN_BELOW:.0%}")


def no_baseline(missing: Sequence[str], expected: Expectation) -> EvidenceFinding:
    """Report the operations without a published figure to meet, and those that have one."""
    floors = sorted(expected.row.baselines, key=lambda floor: -floor.size)
    smallest = {(floor.nodes, floor.op): floor.size for floor in floors if floor.gates}
    there = "; ".join(
        f"{op} on {counted(nodes, 'node')} from {format_size(size)} on"
        for (nodes, op), size in sorted(smallest.items())
    )
    text = (
        f"no baseline: no published figure judges {', '.join(missing)} of this size on"
        f" {counted(expected.nodes, 'node')} of {expected.machine}; there are figures for"
        f" {there or 'no operation'}; pass --no-floor to skip it"
    )
    return failure("no-baseline", text, Exit.OK if expected.no_floor else Exit.BELOW)
