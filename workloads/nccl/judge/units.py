"""Whether a table agrees with itself: bandwidths follow from sizes, times and the number of ranks. Pure.

A table that does not is not read on: somebody's Gbit/s, GiB/s or milliseconds would be judged as something else.
"""

from __future__ import annotations

from workloads.exits import Exit
from workloads.nccl.bandwidth import BUSBW_FACTORS, algbw
from workloads.nccl.judge.measurement import Figures, MeasuredRow, Run
from workloads.nccl.result import Finding
from workloads.nccl.sizes import format_size

RELATIVE = 0.01  # a time is printed with four digits at least
ABSOLUTE = 0.006  # a bandwidth is printed with two decimals

_NAMES = {
    8.0: "Gbit/s in place of GB/s",
    1 / 8: "an eighth: GB/s divided by 8 once too often",
    1e9 / 2**30: "GiB/s in place of GB/s",
    2**30 / 1e9: "binary sizes taken for decimal ones",
    1e-3: "the times are ms and not µs, or the bandwidths TB/s and not GB/s",
    1e3: "the times are ns and not µs, or the bandwidths MB/s and not GB/s",
    1e-6: "the times are s and not µs",
}


def disagreements(run: Run, ranks: int) -> list[Finding]:
    """The finding that the table contradicts itself, if it does. `ranks` are those asked for, where it names none."""
    # The largest row is the one with the most digits.
    rows = sorted(run.rows, key=lambda row: -row.size)
    found = [told for row in rows for figures in row.columns if (told := _told(row, figures, run, ranks))]
    if not found:
        return []
    code, kind, text = found[0]
    more = f" ({len(found)} such figures)" if len(found) > 1 else ""
    return [Finding(code=code, kind=kind, text=text + more)]


def _told(row: MeasuredRow, figures: Figures, run: Run, ranks: int) -> tuple[Exit, str, str] | None:
    where = f"{row.op} {format_size(row.size)}"
    expected = algbw(row.size, figures.time_us / 1e6)
    if not _agree(figures.algbw, expected):
        return (
            Exit.ERROR,
            "units",
            (
                f"{where}: {row.size} bytes in {figures.time_us:g} µs are {expected:.4g} GB/s and not"
                f" {figures.algbw:g}: {_name(figures.algbw / expected)}"
            ),
        )
    n = run.ranks or ranks
    factor = BUSBW_FACTORS.get(row.op)
    if factor is None or _agree(figures.busbw, expected * factor(n)):
        return None
    text = (
        f"{where}: busbw is {figures.busbw:g} GB/s, and with {n} ranks algbw {figures.algbw:g} makes"
        f" {expected * factor(n):.4g}: another operation, another number of ranks, or another unit"
    )
    # Where the table names its ranks it contradicts itself; else it may be in order, and be another run's.
    return (Exit.ERROR, "units", text) if run.ranks else (Exit.NOT_AS_ASKED, "another-run", text)


def _agree(printed: float, expected: float) -> bool:
    return abs(printed - expected) <= RELATIVE * expected + ABSOLUTE


def _name(ratio: float) -> str:
    for known, name in _NAMES.items():
        if abs(ratio / known - 1) < 0.02:
            return name
    return f"off by a factor of {ratio:.3g}"
