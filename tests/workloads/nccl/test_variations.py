"""The judge's property: what must not pass does not pass however its log arrives, and a wrapper leaves a pass one.

Three kinds of damage cannot show, and are not tried: with --no-log, a log that was lost; a command line that was lost
with its `-a`, without which nothing says whose times these are; the second of two runs that was lost as a whole.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

import pytest

from tests.workloads.nccl.corpus.cases import CASES, Case
from tests.workloads.nccl.test_judge import text
from tests.workloads.nccl.variations import DAMAGES, ENCODINGS, WRAPPERS, Change, Lines
from workloads.nccl.evidence.log_text import decoded
from workloads.nccl.judge.expectation import Expectation
from workloads.nccl.judge.verdict import judge_texts

VARIATIONS, PARTS = 20_000, 8
ONE_LINE_DECIDES = ("fastest-rank.txt", "two-operations.txt")
_WRITER = re.compile(r"([\w.-]+):(\d+):\d+ \[\d+\] NCCL ")


@dataclass(frozen=True)
class Base:
    """Case of the corpus with the log of one process per host, which is enough for its verdict, and fast."""

    case: Case
    results: str | None
    logs: tuple[str, ...]

    @property
    def expected(self) -> Expectation:
        case = self.case
        return Expectation(
            machine=case.machine, nodes=case.nodes, ops=case.ops, **dict.fromkeys(case.options, True)
        )  # fmt: skip


def of_one_process(log: str) -> str:
    first: dict[str, str] = {}

    def kept(line: str) -> bool:
        writer = _WRITER.search(line)
        return writer is None or first.setdefault(writer[1], writer[2]) == writer[2]

    return "".join(line for line in log.splitlines(keepends=True) if kept(line))


@cache
def bases() -> list[Base]:
    """Cases with text, whose verdict by the smaller log is the same. JSON reports have tests of their own."""
    found = []
    for case in CASES:
        results = None if case.results is None else text(case.results)
        base = Base(case, results, tuple(of_one_process(text(name)) for name in case.logs))
        is_text = not (results or "").lstrip().startswith("{")
        if is_text and judge_texts(base.results, base.logs, base.expected).code == case.code:
            found.append(base)
    return found


def varied(content: str, changes: Sequence[Change], encoding: str, seed: float) -> str:
    """Return a file's text as the judge reads it after these changes; empty text stays."""
    lines: Lines = content.removesuffix("\n").split("\n") if content else []
    for change in changes:
        lines = change(lines, random.Random(seed)) if lines else []
    return decoded(ENCODINGS[encoding]("".join(f"{line}\n" for line in lines)))


def wrong(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield name and reason of each variation that the judge gets wrong."""
    chance, every = random.Random(seed), bases()
    for number in range(count):
        base = every[number % len(every)]
        case = base.case
        wrapper, encoding, of_log = chance.choice([*WRAPPERS]), chance.choice([*ENCODINGS]), chance.random() < 0.5
        hurt = case.code and not (of_log and "no_log" in case.options) and case.results not in ONE_LINE_DECIDES
        damages = chance.sample([*DAMAGES], chance.randrange(3)) if hurt else []
        change = partial(varied, encoding=encoding, seed=chance.random())
        damaged, whole = [*(DAMAGES[name] for name in damages), WRAPPERS[wrapper]], [WRAPPERS[wrapper]]
        results = None if base.results is None else change(base.results, whole if of_log else damaged)
        logs = [change(log, damaged if of_log else whole) for log in base.logs]
        chance.shuffle(logs)
        found = judge_texts(results, logs, base.expected)
        if bool(found.code) != bool(case.code):
            where = "the log" if of_log else "the results"
            yield f"{case.name}: {', '.join([*damages, wrapper, encoding])}, {where}", found.reason


def test_bases_are_most_of_the_corpus() -> None:
    assert len(bases()) > 80
    assert {base.case.code for base in bases()} == {0, 1, 2, 3, 4, 5}


@pytest.mark.parametrize("part", range(PARTS))
def test_no_variation_changes_whether_it_passes(part: int) -> None:
    assert list(wrong(VARIATIONS // PARTS, part)) == []
