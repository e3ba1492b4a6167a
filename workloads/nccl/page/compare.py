"""Comparison of two runs of the same benchmark, row by row: which rows became slower or are missing.

From 1 MiB up the figure is busbw, the slowest rank's mean, which floors and training steps depend on. Below 1 MiB, and
in latency mode at any size, it is the median of the single runs: a single late run of twenty moves the mean by more
than the threshold and shows nothing about the fabric. The output has both figures, so that a reader sees whether the
whole distribution moved or a few runs did.

Threshold: (new − old) / old < −5 % is a defect (microsoft/superbenchmark: docs/user-tutorial/data-diagnosis.mdx, read
2026-11).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from rich.console import Console

from workloads.exits import Exit, WorkloadError
from workloads.nccl.result import BenchResult, Row, RowKey
from workloads.nccl.units import figure, format_size
from workloads.results.documents import ResultPart
from workloads.terminal.console import say, table_of

SMALL = 2**20  # bytes
CLOSEST = 5  # rows to show if none moved: the slowest


class Change(RowKey):
    """A row in both runs. `before` and `after` are busbw in GB/s (decimal), or the median latency in µs.

    Percentages are changes of speed; negative is worse. `cv` is the larger of the two runs' spreads: standard deviation
    over mean of single runs.
    """

    figure: Literal["busbw", "latency"]
    before: float
    after: float
    percent: float
    percent_by_median: float
    percent_by_mean: float
    cv: float
    moved: Literal["slower", "faster", "no"]


class Compared(ResultPart):
    """Outcome of a comparison. `missing` rows are in A only, `added` ones in B only."""

    code: Exit = Exit.OK
    reason: str = ""
    threshold_percent: float
    rows: list[Change]
    missing: list[RowKey]
    added: list[RowKey]
    remarks: list[str]

    @property
    def slower(self) -> list[Change]:
        """Rows that are slower in B, the largest change first."""
        return sorted((one for one in self.rows if one.moved == "slower"), key=lambda one: one.percent)


def compare(a: BenchResult, b: BenchResult, threshold: float = 5.0, *, anyway: bool = False) -> Compared:
    """Compare B with A; `threshold` in percent.

    The exit code is 3 for wrong data in either run, 2 if a row is slower by more than the threshold or missing in B,
    otherwise 0. `anyway` compares runs on different machines, numbers of ranks or types, with a remark.

    WorkloadError if the runs do not compare, a run has no rows or one row twice, or a row's figure is not positive.
    """
    one, other = _setting(a), _setting(b)
    if None in (one["machine"], other["machine"]):
        one["machine"] = other["machine"] = None  # a run without a verdict has none; its GPUs and ranks have to match
    differences = _differences(one, other, list(one))
    if differences and not anyway:
        raise WorkloadError(f"these runs do not compare: {'; '.join(differences)}. Use --anyway to compare them")
    # Ignore types that differ on purpose, so that rows match.
    with_dtype = not anyway or any(len({row.dtype for row in run.rows}) != 1 for run in (a, b))
    before, after = _rows(a, "A", with_dtype), _rows(b, "B", with_dtype)
    compared = Compared(
        threshold_percent=threshold,
        rows=[_change(key, before[key], after[key], threshold) for key in before if key in after],
        missing=[key for key in before if key not in after],
        added=[key for key in after if key not in before],
        remarks=[*differences, *_remarks(a, "A"), *_remarks(b, "B"), *_software(a, b)],
    )
    return compared.model_copy(update=_outcome(a, b, compared))


def show(compared: Compared, console: Console) -> None:
    """Print the rows that changed, the worst first, or the slowest rows if none did."""
    by_change = sorted(compared.rows, key=lambda row: row.percent)
    moved = [row for row in by_change if row.moved != "no"]
    if rows := moved or by_change[:CLOSEST]:
        table = table_of(
            ("row", "size", "A", "B", "", "change", "other", "cv"),
            text=("row", ""),
            title="rows that moved" if moved else "nothing moved; the slowest rows",
            caption=(
                f"A, B and change: from {format_size(SMALL)} up busbw (the slowest rank's mean), below and in latency"
                " mode the median run; other: the change by the other of the two; cv: the runs' own spread"
            ),
        )
        table.columns[0].no_wrap, table.columns[0].overflow = False, "fold"
        for row in rows:
            unit, other = ("GB/s", row.percent_by_median) if row.figure == "busbw" else ("µs", row.percent_by_mean)
            cells = _without_size(row), format_size(row.size), figure(row.before), figure(row.after), unit
            changes = f"{row.percent:+.1f} %", f"{other:+.1f} %", f"{row.cv * 100:.1f} %"
            table.add_row(*cells, *changes, style={"slower": "red", "faster": "green", "no": ""}[row.moved])
        console.print(table)
    for key in compared.missing:
        say(console, f"missing in B: {_name(key)}", "red")
    for key in compared.added:
        say(console, f"only in B: {_name(key)}")
    for text in compared.remarks:
        say(console, text, "yellow")
    say(console, compared.reason, "red" if compared.code else "green")


def _setting(run: BenchResult) -> dict[str, object]:
    """Return what has to be the same in runs that compare."""
    world = run.world
    return {
        "backend": run.backend,
        "GPUs": ", ".join(sorted({member.gpu for member in run.ranks or [] if member.gpu})),
        "machine": run.verdict and run.verdict.machine,
        "nodes": world and world.nodes,
        "ranks per node": world and world.per_node,
        "different machines": world and world.machines,
        "type": ", ".join(sorted({row.dtype for row in run.rows})),
    }


def _software(a: BenchResult, b: BenchResult) -> list[str]:
    texts = []
    for name, one, other in (("version of", a.versions, b.versions), ("variable", a.environment, b.environment)):
        names = sorted({*(one or {}), *(other or {})})
        texts += [f"{name} {text}" for text in _differences(one or {}, other or {}, names, ":")]
    return texts


def _differences(a: Mapping[str, object], b: Mapping[str, object], names: Iterable[str], end: str = "") -> list[str]:
    values = [(name, a.get(name), b.get(name)) for name in names]
    return [f"{name}{end} {one or 'none'} in A, {two or 'none'} in B" for name, one, two in values if one != two]


def _change(key: RowKey, a: Row, b: Row, threshold: float) -> Change:
    if min(a.busbw, b.busbw, a.iteration_us.p50, b.iteration_us.p50, a.time_us.max, b.time_us.max) <= 0:
        raise WorkloadError(f"{_name(key)}: a bandwidth or a time of 0 cannot have been measured; measure it again")
    small = key.size < SMALL or key.mode == "latency"
    before, after = (a.iteration_us.p50, b.iteration_us.p50) if small else (a.busbw, b.busbw)
    by_median = round((a.iteration_us.p50 / b.iteration_us.p50 - 1) * 100, 3)
    by_mean = round((b.busbw / a.busbw - 1) * 100, 3)
    # Symmetric, so that swapping the runs swaps slower and faster exactly.
    one, other = (1 / before, 1 / after) if small else (before, after)
    least = 1 - threshold / 100
    return Change(
        **key.model_dump(),
        figure="latency" if small else "busbw",
        before=before,
        after=after,
        percent=by_median if small else by_mean,
        percent_by_median=by_median,
        percent_by_mean=by_mean,
        cv=max(a.iteration_us.cv, b.iteration_us.cv),
        moved="slower" if other < one * least else "faster" if one < other * least else "no",
    )


def _name(key: RowKey) -> str:
    """Return `p2p pairs up fp32 8 GiB`."""
    return f"{_without_size(key)} {format_size(key.size)}"


def _without_size(key: RowKey) -> str:
    return " ".join(filter(None, (key.title, "" if key.mode == "throughput" else key.mode, key.dtype)))


def _outcome(a: BenchResult, b: BenchResult, compared: Compared) -> dict[str, object]:
    runs = {"A": a, "B": b}.items()
    wrong = [name for name, run in runs if run.exit_code == Exit.WRONG_DATA or any(row.wrong for row in run.rows)]
    slower, missing, both = compared.slower, compared.missing, len(compared.rows)
    limit = f"slower by more than {compared.threshold_percent:g} %"
    faults = []
    if slower:
        worst = f"{_name(slower[0])} ({slower[0].percent:+.1f} %)"
        faults.append(f"{len(slower)} of {both} rows are {limit}, most of all {worst}")
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        faults.append(f"{len(missing)} rows are missing in B: {', '.join(map(_name, missing[:3]))}{more}")
    if wrong:
        text = f"wrong data in {' and '.join(wrong)}: its figures mean nothing until the cause is found"
        return {"code": Exit.WRONG_DATA, "reason": text}
    return {"code": Exit.BELOW if faults else Exit.OK, "reason": "; ".join(faults) or f"{both} rows, none {limit}"}


def _remarks(run: BenchResult, name: str) -> Iterator[str]:
    if run.proves != "fabric":
        yield f"{name} is a functional proof: its figures depend on the machine's other load"
    if run.injected_fault:
        yield f"{name} had a fault injected on purpose: {run.injected_fault}"
    if run.exit_code not in (Exit.OK, Exit.BELOW):
        yield f"{name} ended with exit code {run.exit_code}: {run.reason}"
    if unchecked := sum(row.wrong is None for row in run.rows):
        yield f"{name} did not check {unchecked} of {len(run.rows)} rows for wrong data"


def _rows(result: BenchResult, name: str, with_dtype: bool) -> dict[RowKey, Row]:
    found: dict[RowKey, Row] = {}
    for row in result.rows:
        key = row.key if with_dtype else row.key.model_copy(update={"dtype": ""})
        if key in found:
            raise WorkloadError(f"{name} has the row {_name(key)} twice: compare runs that measured it once")
        found[key] = row
    if not found:
        raise WorkloadError(f"{name} has no rows ({result.reason}): a run without measurements cannot be compared")
    return found
