"""Checks of a measurement, one function each: they return findings and never raise. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from workloads.exits import Exit
from workloads.nccl.bandwidth import BUSBW_FACTORS, algbw, busbw
from workloads.nccl.evidence.facts import LogFacts
from workloads.nccl.evidence.problems import failure, problems, remark
from workloads.nccl.evidence.show import counted
from workloads.nccl.judge import expectation as rules
from workloads.nccl.judge.expectation import Expectation
from workloads.nccl.judge.measurement import Figures, MeasuredRow, Measurement, Run
from workloads.nccl.judge.nccl_tests import UNNAMED
from workloads.nccl.result import Comparison, Finding
from workloads.nccl.sizes import format_size

RELATIVE = 0.01  # a time is printed with four digits at least
ABSOLUTE = 0.006  # a bandwidth is printed with two decimals
UNIT_ERRORS = {
    8.0: "Gbit/s instead of GB/s",
    1 / 8: "GB/s divided by 8 once too often",
    1e9 / 2**30: "GiB/s instead of GB/s",
    2**30 / 1e9: "binary sizes read as decimal ones",
    1e-3: "the times are ms and not µs, or the bandwidths TB/s and not GB/s",
    1e3: "the times are ns and not µs, or the bandwidths MB/s and not GB/s",
    1e-6: "the times are s and not µs",
}


def is_whole(measurement: Measurement) -> bool:
    """Return whether every run has rows, and the last lines that its tool writes."""
    return bool(measurement.runs) and all((run.rows or run.guarded) and run.ended for run in measurement.runs)


def completeness(measurement: Measurement) -> Iterator[Finding]:
    """Find a missing or incomplete result, or a hang. A time-out that did not stop the run is a remark."""
    first_error = "".join(f": {line}" for line in measurement.errors[:1])
    if measurement.hang:
        code = Exit.OK if is_whole(measurement) else Exit.HANG
        yield Finding(code=code, kind="hang", text=f"a time-out: {measurement.hang[0]}")
    elif measurement.form == "unreadable":
        return
    elif measurement.form == "none":
        yield failure("not-measured", "nothing was measured: pass the results with --results FILE", Exit.BELOW)
    elif not any(run.rows or run.guarded for run in measurement.runs):
        yield failure("no-rows", f"the output has no row of figures{first_error}", Exit.ERROR)
    elif measurement.form != "rdma-ray" and not is_whole(measurement):
        text = "the output ends before `Out of bounds values`: the run did not end, or the file was cut"
        yield failure("truncated", text + first_error, Exit.ERROR)
    for run in measurement.runs:
        if run.damaged:
            text = f"{len(run.damaged)} rows cannot be read, first: {run.damaged[0]}"
            yield failure("damaged", text, Exit.ERROR)


def operations(measurement: Measurement, expectation: Expectation) -> Iterator[Finding]:
    """Find a requested operation that is missing, and a table that does not name its operation."""
    there = {row.op for run in measurement.runs for row in run.rows}
    if UNNAMED in there:
        text = "the output does not name the measured operation: name it with --op"
        yield failure("no-operation", text, Exit.ERROR)
    elif there:
        for op in expectation.ops:
            if op not in there:
                yield failure("no-operation", f"{op} was requested, and only {', '.join(sorted(there))} was measured")


def wrong_data(measurement: Measurement) -> Iterator[Finding]:
    """Find wrong elements in every row, in both columns, and in the tool's own sum."""
    for run in measurement.runs:
        bad = [row for row in run.rows if any(figures.wrong for figures in row.columns)]
        if bad:
            count = sum(figures.wrong or 0 for figures in bad[0].columns)
            text = (
                f"wrong data in {len(bad)} of {len(run.rows)} rows, first in {bad[0].op} at"
                f" {format_size(bad[0].size)} ({count} elements): no figure of this run is valid"
            )
            yield failure("wrong-data", text, Exit.WRONG_DATA)
        elif run.stated_wrong:
            yield failure("wrong-data", f"the tool counted {run.stated_wrong} wrong values", Exit.WRONG_DATA)


def unchecked(measurement: Measurement, expectation: Expectation) -> Iterator[Finding]:
    """Find rows whose data was not checked."""
    rows = [row for run in measurement.runs for row in run.rows if expectation.includes(row.op)]
    without = sum(any(figures.wrong is None for figures in row.columns) for row in rows)
    without += sum(run.unverified for run in measurement.runs)
    if without:
        found = remark if expectation.no_check else failure
        text = f"the data of {counted(without, 'row')} was not checked: measure with -c 1, or pass --no-check"
        yield found("unchecked", text)


def disagreements(run: Run, ranks: int) -> list[Finding]:
    """Find a table that contradicts itself: bandwidths follow from sizes, times and the number of ranks.

    This catches Gbit/s, GiB/s or milliseconds in place of GB/s and microseconds. `ranks` is the requested number, used
    if the table shows none.
    """
    # The largest row has the most digits.
    rows = sorted(run.rows, key=lambda row: -row.size)
    found = [one for row in rows for figures in row.columns if (one := _disagreement(row, figures, run, ranks))]
    if not found:
        return []
    more = f" ({len(found)} such figures)" if len(found) > 1 else ""
    return [found[0].model_copy(update={"text": found[0].text + more})]


def _disagreement(row: MeasuredRow, figures: Figures, run: Run, ranks: int) -> Finding | None:
    where = f"{row.op} {format_size(row.size)}"
    expected = algbw(row.size, figures.time_us / 1e6)
    if not _agree(figures.algbw, expected):
        ratio = figures.algbw / expected
        error = next((name for known, name in UNIT_ERRORS.items() if abs(ratio / known - 1) < 0.02), None)
        text = (
            f"{where}: {row.size} bytes in {figures.time_us:g} µs are {expected:.4g} GB/s and not"
            f" {figures.algbw:g}: {error or f'off by a factor of {ratio:.3g}'}"
        )
        return failure("units", text, Exit.ERROR)
    n = run.ranks or ranks
    factor = BUSBW_FACTORS.get(row.op)
    if factor is None or _agree(figures.busbw, expected * factor(n)):
        return None
    text = (
        f"{where}: busbw is {figures.busbw:g} GB/s, and with {n} ranks algbw {figures.algbw:g} gives"
        f" {expected * factor(n):.4g}: another operation, another number of ranks, or another unit"
    )
    # A table that shows its ranks contradicts itself; any other may be correct, but of another run.
    return failure("units", text, Exit.ERROR) if run.ranks else failure("another-run", text)


def _agree(printed: float, expected: float) -> bool:
    return abs(printed - expected) <= RELATIVE * expected + ABSOLUTE


def ranks(run: Run, facts: LogFacts | None, expectation: Expectation) -> Iterator[Finding]:
    """Find too few ranks, too many, or ranks in separate groups."""
    expected, found = expectation.ranks, run.ranks
    of = f"{counted(expectation.nodes, 'node')} of {expectation.machine} have {expected} GPUs"
    if (groups := len({member.group for member in run.members})) > 1:
        yield failure("split", f"the ranks were split into {groups} groups (NCCL_TESTS_SPLIT): no group spans all")
    elif found is None and (facts is None or facts.nranks is None):
        yield failure("ranks-unknown", f"{of}, and neither the output nor a log shows the number of ranks")
    elif found is not None and found < expected:
        yield failure("too-few-ranks", f"{of}, and {found} ranks took part")
    elif found is not None and found > expected:
        yield failure("another-run", f"{of}, and {found} ranks took part: another run's output?")


def hosts(run: Run, facts: LogFacts | None, expectation: Expectation) -> Iterator[Finding]:
    """Check that the ranks ran on as many hosts as nodes were requested, evenly."""
    names = run.hosts or (list(facts.hosts.values()) if facts else [])
    nodes, count = expectation.nodes, len(set(names))
    if not names:
        if nodes > 1 and (facts is None or facts.nnodes is None):
            yield failure("hosts-unknown", f"nothing shows that the ranks were on {nodes} hosts")
    elif count < nodes:
        yield failure("same-host", f"{nodes} nodes were requested, and all ranks are on {counted(count, 'host')}")
    elif count > nodes:
        yield failure("another-run", f"{nodes} nodes were requested, and the ranks are on {count} hosts")
    elif len(names) == expectation.ranks and len(uneven := set(Counter(names).values())) > 1:
        yield failure("uneven", f"the hosts have different numbers of ranks: {sorted(uneven)}")


def same_run(measurement: Measurement) -> Iterator[Finding]:
    """Check that the log is that of the run. Both name hosts as the kernel does, without the domain."""
    facts = measurement.facts
    if facts is None or measurement.form == "rdma-ray":
        return
    logged = sorted({name.split(".")[0] for name in facts.hosts.values()})
    figures = sorted({name.split(".")[0] for run in measurement.runs for name in run.hosts})
    if logged and figures and set(logged).isdisjoint(figures):
        text = f"the log is of {', '.join(logged[:4])}, and the figures are of {', '.join(figures[:4])}"
        yield failure("another-run", text)


def covered(measurement: Measurement, expectation: Expectation) -> Iterator[Finding]:
    """Check that every node has a rank with a log, which shows that node's NICs only."""
    facts = measurement.facts
    hosts = set(facts.hosts.values()) if facts else set()
    if facts and hosts and len(hosts) < min(expectation.nodes, facts.nnodes or expectation.nodes):
        nodes = counted(expectation.nodes, "node")
        yield failure("some-nodes", f"the log covers {len(hosts)} of {nodes}: {', '.join(sorted(hosts)[:4])}")


def times(run: Run) -> Iterator[Finding]:
    """Check that the times are the ranks' mean, as in published figures, or the slowest rank's."""
    if run.average in (0, 2):
        whose = "rank 0's" if run.average == 0 else "the fastest rank's"
        text = f"the times are {whose} (nccl-tests -a {run.average}): the mean is -a 1, the slowest -a 3"
        yield failure("whose-time", text)


def gpus(run: Run, expectation: Expectation) -> Iterator[Finding]:
    """Check that the devices are those of the machine."""
    machine = expectation.row
    models = sorted({member.gpu for member in run.members if member.gpu})
    others = [model for model in models if not re.search(rf"\b{machine.gpu}\b", model)]
    if others:
        text = f"{machine.name} machines have {machine.gpu} GPUs, and the ranks ran on {', '.join(others)}"
        yield failure("other-gpu", text)


def transport(measurement: Measurement, expectation: Expectation) -> Iterator[Finding]:
    """Check in NCCL's log how the data traveled."""
    facts, machine = measurement.facts, expectation.row
    # `NCCL version …` alone, as nccl-tests' output often has it, shows nothing of the transport.
    if facts is not None and facts.nranks is None and not facts.plugins and not facts.channels:
        facts = None
    if facts is None and expectation.nodes < 2:
        return
    if facts is None and expectation.no_log:
        yield remark("no-log", "nothing shows how the data traveled (--no-log)")
        return
    yield from problems(
        facts, nodes=expectation.nodes, nics=machine.nics, transport=machine.transport, ranks=expectation.ranks
    )


def possible(run: Run, facts: LogFacts | None, expectation: Expectation) -> Iterator[Finding]:
    """Find a row above what the NICs can carry, in either column."""
    for row in run.rows:
        limit = rules.ceiling(row.op, expectation, rules.algorithms_of(row.op, run, facts))
        shortest = min((figures.time_us for figures in row.columns), default=0.0)
        if limit is None or not shortest:
            continue
        best = busbw(row.op, row.size, shortest / 1e6, run.ranks or expectation.ranks)
        if best > rules.TOLERANCE * limit:
            text = (
                f"{row.op} {format_size(row.size)}: {best:.1f} GB/s, and the NICs of {expectation.machine}"
                f" allow {limit:.1f}: this did not go through the NICs"
            )
            yield failure("over-limit", text)
            return  # larger rows repeat it


def bandwidth(
    runs: Sequence[Run], facts: LogFacts | None, expectation: Expectation
) -> tuple[list[Comparison], list[Finding]]:
    """Compare every judged row with its published figure."""
    comparisons: list[Comparison] = []
    found: list[Finding] = []
    met: set[str] = set()
    rows = [(run, row) for run in runs for row in rules.headline(run.rows) if row.op in BUSBW_FACTORS]
    for run, row in rows:
        if not expectation.includes(row.op):
            continue
        value = rules.measured(row, run.ranks or expectation.ranks)
        algorithms = rules.algorithms_of(row.op, run, facts)
        floor = rules.floor_of(expectation.row.baselines, row.op, expectation.nodes, row.size, algorithms)
        where = f"{row.op} {format_size(row.size)}"
        if not rules.large_enough(row.size):
            found.append(remark("small", f"{where} is the largest size: below 1 GiB it does not show the fabric"))
        elif value is None:
            found.append(remark("no-column", f"{where} was measured in place only, unlike the published figures"))
        elif floor is not None:
            comparison = rules.compare(row, value, floor)
            comparisons.append(comparison)
            found += _shortfall(where, comparison, floor.gates)
            if floor.gates:
                met.add(row.op)
    requested = expectation.ops or sorted({row.op for _, row in rows})
    missing = [op for op in requested if op not in met]
    # Without --op, one operation with a figure is enough: most operations have no published figure.
    if runs and missing and (expectation.ops or not met):
        found.append(no_baseline(missing, expectation))
    return comparisons, found


def _shortfall(where: str, comparison: Comparison, gates: bool) -> Iterator[Finding]:
    text = f"{where}: {comparison.measured:.1f} GB/s, {comparison.share:.1%} of {comparison.expected:g} GB/s"
    if not gates:
        yield remark("unconfirmed", f"{text}, an unconfirmed figure: it does not gate")
    elif comparison.share < rules.FAIL_BELOW:
        yield failure("below", f"{text} ({comparison.source}), below {rules.FAIL_BELOW:.0%}", Exit.BELOW)
    elif comparison.share < rules.WARN_BELOW:
        yield remark("slow", f"{text} ({comparison.source}), below {rules.WARN_BELOW:.0%}")


def no_baseline(missing: Sequence[str], expectation: Expectation) -> Finding:
    """Report the operations without a published figure to meet, and those that have one."""
    known: dict[tuple[int, str], int] = {}
    for floor in expectation.row.baselines:
        if floor.gates:
            key = (floor.nodes, floor.op)
            known[key] = min(known.get(key, floor.size), floor.size)
    there = "; ".join(
        f"{op} on {counted(nodes, 'node')} from {format_size(size)} on" for (nodes, op), size in sorted(known.items())
    )
    return Finding(
        code=Exit.OK if expectation.no_floor else Exit.BELOW,
        kind="no-baseline",
        text=f"no baseline: no published figure judges {', '.join(missing)} of this size on"
        f" {counted(expectation.nodes, 'node')} of {expectation.machine}; there are figures for"
        f" {there or 'no operation'}; --no-floor does without",
    )
