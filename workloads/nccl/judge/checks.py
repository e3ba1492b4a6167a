"""What can be wrong with a measurement, each as a function of its own: findings, never an exception. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from workloads.exits import Exit
from workloads.nccl.bandwidth import BUSBW_FACTORS, busbw
from workloads.nccl.evidence.facts import LogFacts
from workloads.nccl.evidence.problems import problems
from workloads.nccl.judge import ceilings, floors
from workloads.nccl.judge.expectation import Expectation
from workloads.nccl.judge.measurement import Measurement, Run
from workloads.nccl.judge.nccl_tests import UNNAMED
from workloads.nccl.result import Comparison, Finding
from workloads.nccl.sizes import format_size


def is_whole(measurement: Measurement) -> bool:
    """Whether every run has a result: rows, and the end that its tool writes."""
    return bool(measurement.runs) and all((run.rows or run.guarded) and run.ended for run in measurement.runs)


def completeness(measurement: Measurement) -> Iterator[Finding]:
    """No result, half a result, a hang. A time-out that did not keep a run from its end is a remark."""
    if measurement.hang:
        code = Exit.OK if is_whole(measurement) else Exit.HANG
        yield Finding(code=code, kind="hang", text=f"a time-out: {measurement.hang[0]}")
    elif measurement.form == "unreadable":
        return
    elif measurement.form == "none":
        yield Finding(
            code=Exit.BELOW, kind="not-measured", text="nothing was measured: give the results with --results FILE"
        )
    elif not any(run.rows or run.guarded for run in measurement.runs):
        told = "".join(f": {line}" for line in measurement.errors[:1])
        yield Finding(code=Exit.ERROR, kind="no-rows", text=f"the output has no row of figures{told}")
    elif measurement.form != "rdma-ray" and not is_whole(measurement):
        told = "".join(f": {line}" for line in measurement.errors[:1])
        yield Finding(
            code=Exit.ERROR,
            kind="truncated",
            text=f"the output breaks off before `Out of bounds values`: the run did not end, or the file was cut{told}",
        )
    for run in measurement.runs:
        if run.damaged:
            yield Finding(
                code=Exit.ERROR,
                kind="damaged",
                text=f"{len(run.damaged)} rows cannot be read, first: {run.damaged[0]}",
            )


def operations(measurement: Measurement, expectation: Expectation) -> Iterator[Finding]:
    """An operation asked for and not there, and a table of which nobody says what it measured."""
    there = {row.op for run in measurement.runs for row in run.rows}
    if UNNAMED in there:
        yield Finding(
            code=Exit.ERROR,
            kind="no-operation",
            text="the output does not say which operation was measured: give it with --op",
        )
    elif there:
        for op in expectation.ops:
            if op not in there:
                yield Finding(
                    code=Exit.NOT_AS_ASKED,
                    kind="no-operation",
                    text=f"{op} was asked for, and only {', '.join(sorted(there))} was measured",
                )


def wrong_data(measurement: Measurement) -> Iterator[Finding]:
    """Wrong elements anywhere: in every row, both columns, and in the tool's own sum."""
    for run in measurement.runs:
        bad = [row for row in run.rows if any(figures.wrong for figures in row.columns)]
        if bad:
            count = sum(figures.wrong or 0 for figures in bad[0].columns)
            yield Finding(
                code=Exit.WRONG_DATA,
                kind="wrong-data",
                text=f"wrong data in {len(bad)} of {len(run.rows)} rows, first in {bad[0].op} at"
                f" {format_size(bad[0].size)} ({count} elements): no figure of this run means anything",
            )
        elif run.stated_wrong:
            yield Finding(
                code=Exit.WRONG_DATA, kind="wrong-data", text=f"the tool counted {run.stated_wrong} wrong values"
            )


def unchecked(measurement: Measurement, expectation: Expectation) -> Iterator[Finding]:
    """Rows whose data nobody checked: fast nonsense would look the same."""
    rows = [row for run in measurement.runs for row in run.rows if _asked(row.op, expectation)]
    without = sum(any(figures.wrong is None for figures in row.columns) for row in rows)
    without += sum(run.unverified for run in measurement.runs)
    if without:
        yield Finding(
            code=Exit.NOT_AS_ASKED if expectation.need_check else Exit.OK,
            kind="unchecked",
            text=f"the data of {_count(without, 'row')} was not checked: measure with -c 1, or say --no-check",
        )


def ranks(run: Run, facts: LogFacts | None, expectation: Expectation) -> Iterator[Finding]:
    """Too few ranks, too many, or split into groups that never met."""
    wanted, found = expectation.ranks, run.ranks
    of = f"{_count(expectation.nodes, 'node')} of {expectation.machine} have {wanted} GPUs"
    if run.groups > 1:
        yield _wrong("split", f"the ranks were split into {run.groups} groups (NCCL_TESTS_SPLIT): no group spans all")
    elif found is None and (facts is None or facts.nranks is None):
        yield _wrong("ranks-unknown", f"{of}, and neither the output nor a log says how many ranks there were")
    elif found is not None and found < wanted:
        yield _wrong("too-few-ranks", f"{of}, and {found} ranks took part")
    elif found is not None and found > wanted:
        yield _wrong("another-run", f"{of}, and {found} ranks took part: another run's output?")


def hosts(run: Run, facts: LogFacts | None, expectation: Expectation) -> Iterator[Finding]:
    """Whether the ranks were on as many hosts as nodes were asked for, and as many on each as it has GPUs."""
    names = run.hosts or (tuple(facts.hosts.values()) if facts else ())
    nodes, count = expectation.nodes, len(set(names))
    if not names:
        if nodes > 1 and (facts is None or facts.nnodes is None):
            yield _wrong("hosts-unknown", f"nothing says that the ranks were on {nodes} hosts")
    elif count < nodes:
        yield _wrong("same-host", f"{nodes} nodes were asked for, and all ranks are on {_count(count, 'host')}")
    elif count > nodes:
        yield _wrong("another-run", f"{nodes} nodes were asked for, and the ranks are on {count} hosts")
    elif len(names) == expectation.ranks and len(uneven := set(Counter(names).values())) > 1:
        yield _wrong("uneven", f"the hosts have different numbers of ranks: {sorted(uneven)}")


def same_run(measurement: Measurement) -> Iterator[Finding]:
    """Whether the log is that of the run: both name hosts as the kernel does, without the domain."""
    facts = measurement.facts
    if facts is None or measurement.form == "rdma-ray":
        return
    logged = {name.split(".")[0] for name in facts.hosts.values()}
    measured = {name.split(".")[0] for run in measurement.runs for name in run.hosts}
    if logged and measured and not logged & measured:
        yield _wrong(
            "another-run",
            f"the log is of {', '.join(sorted(logged)[:4])}, and the figures are of {', '.join(sorted(measured)[:4])}",
        )


def covered(measurement: Measurement, expectation: Expectation) -> Iterator[Finding]:
    """Whether every node has a rank whose log is there: one node's says nothing of the NICs of another."""
    facts = measurement.facts
    hosts = set(facts.hosts.values()) if facts else set()
    if facts and hosts and len(hosts) < min(expectation.nodes, facts.nnodes or expectation.nodes):
        yield _wrong(
            "some-nodes",
            f"the log covers {len(hosts)} of {_count(expectation.nodes, 'node')}: {', '.join(sorted(hosts)[:4])}",
        )


def times(run: Run) -> Iterator[Finding]:
    """Whether the times are the ranks' mean, as in published figures, or the slowest rank's."""
    if run.average in (0, 2):
        whose = "rank 0's" if run.average == 0 else "the fastest rank's"
        yield _wrong(
            "whose-time", f"the times are {whose} (nccl-tests -a {run.average}): the mean is -a 1, the slowest -a 3"
        )


def gpus(run: Run, expectation: Expectation) -> Iterator[Finding]:
    """Whether the devices are those of the machine."""
    others = sorted(name for name in run.gpus if not re.search(rf"\b{expectation.gpu}\b", name))
    if others:
        yield _wrong(
            "other-gpu", f"a {expectation.machine} has {expectation.gpu}, and the ranks ran on {', '.join(others)}"
        )


def transport(measurement: Measurement, expectation: Expectation) -> list[Finding]:
    """What NCCL's log says of the way that the data took."""
    facts = measurement.facts
    # `NCCL version …` alone, as nccl-tests' output often has it, shows nothing of the way.
    shows = facts is not None and (facts.nranks is not None or bool(facts.plugins or facts.channels))
    if not shows:
        if expectation.nodes < 2:
            return []
        if not expectation.need_log:
            return [Finding(code=Exit.OK, kind="no-log", text="nothing shows how the data travelled (--no-log)")]
        facts = None
    return problems(
        facts,
        nodes=expectation.nodes,
        nics=expectation.nics,
        transport=expectation.transport,
        ranks=expectation.ranks,
    )


def possible(run: Run, facts: LogFacts | None, expectation: Expectation) -> Iterator[Finding]:
    """Rows above what the NICs can carry, in either column."""
    for row in run.rows:
        limit = ceilings.ceiling(row.op, expectation, floors.algorithms_of(row.op, run, facts))
        if limit is None:
            continue
        shortest = min((figures.time_us for figures in row.columns), default=0.0)
        best = busbw(row.op, row.size, shortest / 1e6, run.ranks or expectation.ranks) if shortest else 0.0
        if best > ceilings.TOLERANCE * limit:
            yield _wrong(
                "over-limit",
                f"{row.op} {format_size(row.size)}: {best:.1f} GB/s, and the NICs of"
                f" {expectation.machine} allow {limit:.1f}: this did not go through the NICs",
            )
            return  # what is true of one row is true of the larger ones


def bandwidth(
    runs: Sequence[Run], facts: LogFacts | None, expectation: Expectation
) -> tuple[list[Comparison], list[Finding]]:
    """Every judged row beside its published figure, and what follows from that."""
    comparisons: list[Comparison] = []
    found: list[Finding] = []
    met: set[str] = set()
    rows = [(run, row) for run in runs for row in floors.headline(run.rows) if row.op in BUSBW_FACTORS]
    for run, row in rows:
        if not _asked(row.op, expectation):
            continue
        value = floors.measured(row, run.ranks or expectation.ranks)
        known = floors.algorithms_of(row.op, run, facts)
        floor = floors.floor_of(expectation.floors, row.op, expectation.nodes, row.size, known)
        where = f"{row.op} {format_size(row.size)}"
        if not floors.large_enough(row.size):
            found.append(_remark("small", f"{where} is the largest size: below 1 GiB it says nothing of the fabric"))
        elif value is None:
            found.append(_remark("no-column", f"{where} was measured in place only, unlike the published figures"))
        elif floor is not None:
            comparison = floors.compare(row, value, floor)
            comparisons.append(comparison)
            found += _shortfall(where, comparison, floor.gates)
            if floor.gates:
                met.add(row.op)
    asked = expectation.ops or sorted({row.op for _, row in rows})
    missing = [op for op in asked if op not in met]
    # Without --op one operation with a figure is enough: most operations have none anywhere.
    if runs and missing and (expectation.ops or not met):
        found.append(no_baseline(missing, expectation))
    return comparisons, found


def _shortfall(where: str, comparison: Comparison, gates: bool) -> Iterator[Finding]:
    text = f"{where}: {comparison.measured:.1f} GB/s, {comparison.share:.1%} of {comparison.expected:g} GB/s"
    if not gates:
        yield _remark("unconfirmed", f"{text}, a figure that nobody confirmed: it does not judge")
    elif comparison.share < floors.FAIL_BELOW:
        yield Finding(
            code=Exit.BELOW, kind="below", text=f"{text} ({comparison.source}), below {floors.FAIL_BELOW:.0%}"
        )
    elif comparison.share < floors.WARN_BELOW:
        yield _remark("slow", f"{text} ({comparison.source}), below {floors.WARN_BELOW:.0%}")


def no_baseline(missing: Sequence[str], expectation: Expectation) -> Finding:
    """Which operation has no figure to meet, and for which there are some."""
    known: dict[tuple[str, int], int] = {}
    for floor in expectation.floors:
        if floor.gates:
            key = (floor.op, floor.nodes)
            known[key] = min(known.get(key, floor.size), floor.size)
    there = "; ".join(
        f"{op} on {_count(nodes, 'node')} from {format_size(size)} on"
        for (op, nodes), size in sorted(known.items(), key=lambda item: (item[0][1], item[0][0]))
    )
    return Finding(
        code=Exit.BELOW if expectation.need_floor else Exit.OK,
        kind="no-baseline",
        text=f"no baseline: no published figure judges {', '.join(missing)} of this size on"
        f" {_count(expectation.nodes, 'node')} of {expectation.machine}; there are figures for"
        f" {there or 'no operation'}; --no-floor does without",
    )


def _asked(op: str, expectation: Expectation) -> bool:
    return not expectation.ops or op in expectation.ops


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _wrong(kind: str, text: str) -> Finding:
    return Finding(code=Exit.NOT_AS_ASKED, kind=kind, text=text)


def _remark(kind: str, text: str) -> Finding:
    return Finding(code=Exit.OK, kind=kind, text=text)
