"""Table of a sweep: for each command and kind of fault, the number of cases and their results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rehearsal.sweep import Result

HEADER = ("command", "fault", "cases", "resources hit", "converged", "orphans", "seconds per case")


@dataclass(frozen=True)
class Row:
    """Row of the table: a command and a kind of fault. `seconds` is the mean per case."""

    command: str
    how: str
    cases: int
    injected: int
    converged: int
    orphans: int
    seconds: float

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the cells as text."""
        numbers = (self.cases, self.injected, self.converged, self.orphans)
        return (self.command, self.how, *(str(number) for number in numbers), f"{self.seconds:.1f}")


def rows(results: Sequence[Result]) -> Iterator[Row]:
    """Return the rows in the order of the cases; the last one is the total."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.case.command, result.case.how), []).append(result)
    for (command, how), group in groups.items():
        yield _row(command, how, group)
    if results:
        yield _row("all", "", results)


def markdown(results: Sequence[Result]) -> str:
    """Return the table, followed by every case that did not converge."""
    lines = [HEADER, ("---",) * 2 + ("---:",) * 5, *(row.cells for row in rows(results))]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    failed = [f"- {result.case} ({result.injected}): {why(result)}" for result in results if not result.converged]
    return "\n".join([table, "", *(["Not converged:", "", *failed] if failed else ["Every case converged."])]) + "\n"


def why(result: Result) -> str:
    """Return the problems in one line."""
    orphans = [f"orphan: {type_} {id_}" for type_, id_ in result.orphans]
    reasons = [*result.wrong, *orphans]
    return "; ".join(reasons[:4]) + (f"; {len(reasons) - 4} more" if len(reasons) > 4 else "")


def _row(command: str, how: str, group: Sequence[Result]) -> Row:
    return Row(
        command=command,
        how=how,
        cases=len(group),
        injected=len({result.injected for result in group}),
        converged=sum(result.converged for result in group),
        orphans=sum(len(result.orphans) for result in group),
        seconds=sum(result.seconds for result in group) / len(group),
    )
