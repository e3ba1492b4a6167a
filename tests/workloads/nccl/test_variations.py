"""The judge's property: what must not pass does not pass however its log arrives, and a wrapper leaves a pass one.

Damage that takes a whole line, or a whole log with --no-log, cannot show where that line alone decides: such cases are
varied by wrappers only.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import pytest

from tests.workloads.nccl.corpus.cases import CASES, P5, ULTRA, Case
from tests.workloads.nccl.test_judge import text
from tests.workloads.nccl.variations import DAMAGES, ENCODINGS, WRAPPERS, Change, Lines
from workloads.nccl.evidence.log_text import decoded
from workloads.nccl.judge.expectation import Expectation
from workloads.nccl.judge.verdict import judge_texts

VARIATIONS, PARTS = 20_000, 8
ONE_LINE_DECIDES = (
    "fastest-rank.txt",
    "two-operations.txt",
    "a run that was announced and lost",
    "NCCL's notice of fewer NICs",
    "a process of several with fewer NICs",
)
_WRITER = re.compile(r"([\w.-]+):(\d+):\d+ \[\d+\] NCCL ")


@dataclass(frozen=True)
class Base:
    """Case with the log of one process per host, which is enough for its verdict, and fast."""

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
    found = list(derived())
    for case in CASES:
        results = None if case.results is None else text(case.results)
        base = Base(case, results, tuple(of_one_process(text(name)) for name in case.logs))
        is_text = not (results or "").lstrip().startswith("{")
        if is_text and judge_texts(base.results, base.logs, base.expected).code == case.code:
            found.append(base)
    return found


def derived() -> Iterator[Base]:
    """Cases that differ from one of the corpus in a few characters."""

    def base(name: str, code: int, results: str, log: str, machine: str = P5, nodes: int = 2, **rest: Any) -> Base:
        return Base(Case(name, machine=machine, nodes=nodes, code=code, **rest), results, (log,) if log else ())

    def commanded(algorithm: str, table: str) -> str:
        return f"mpirun -np 32 -x NCCL_ALGO={algorithm} ./build/all_reduce_perf -b 256M -e 4G -f 2 -g 1\n{table}"

    good, efa, gib = text("efa-good.txt"), text("efa.log"), of_one_process(text("gib.log"))
    one = of_one_process(efa)
    fewer = re.sub(r"found \d+ nics", "found 24 nics", one, count=1)
    plain = re.sub(r"(Channel \d+/\d+ : \d+\[\w+\] -> \d+\[\w+\] \[send\] via NET/\w+/\d+)/GDRDMA", r"\1", one)
    yield base("one process with fewer NICs", 5, good, fewer)
    yield base(
        "a process of several with fewer NICs", 5, good, re.sub(r"found \d+ nics", "found 24 nics", efa, count=1)
    )
    yield base("connections without GPUDirect RDMA", 5, good, plain)
    notice = "Rank 3 has 0 local Net devices (max 8)."
    writer = re.search(r"^\S+ \[0\] NCCL INFO ", one, re.MULTILINE)
    assert writer is not None
    yield base("NCCL's notice of fewer NICs", 5, good, f"{writer[0]}{notice}\n{one}")
    yield base("lines that Ray left out", 5, good, one.replace("GDRDMA\n", "GDRDMA [repeated 5x across cluster]\n", 1))
    ranks = re.sub(r"^(\S+?):(\d+:\d+ )", r"\2", one, flags=re.MULTILINE)
    yield base("hosts that the log does not show", 5, good, ranks)
    # P5en: NVLSTree has a lower published figure than ring, which these miss.
    table, p5en = text("p5en-4-nodes.txt"), {"machine": "p5en.48xlarge", "nodes": 4, "options": ("no_log",)}
    yield base("an algorithm", 0, commanded("NVLSTree", table), "", **p5en)
    yield base("an excluded algorithm", 2, commanded("^NVLSTree", table), "", **p5en)
    yield base("the algorithm of another run", 2, commanded("NVLSTree", table) + table, "", **p5en)
    said = f"ip-10-3-9-21:15102:15102 [0] NCCL INFO NCCL_ALGO set by environment to NVLSTree\n{table}"
    yield base("the log's algorithm of two runs", 2, said + table, "", **p5en)
    # Rows that NCCL's lines cut (TUNING), as NCCL 2.22 to 2.30 write them.
    line = f"{writer[0]}AllReduce: 1 Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..15}}\n"
    cut = re.sub(r"^( +\d+ +\d+ +float +sum +-1)(.{33})", rf"\1{line}\2{line}", good, flags=re.MULTILINE)
    assert cut.count(line) > 6
    yield base("rows that lines of NCCL cut", 0, cut, one)
    last = [line for line in good.splitlines() if re.match(r" +\d", line)][-1]
    yield base("a cut row that is never completed", 1, good.replace(last, last[:60]), one)
    stuck = "[rank3]:[E1103 ProcessGroupNCCL.cpp:1] [Rank 3] Heartbeat monitor timed out! Process will be terminated\n"
    yield base("a heartbeat that stopped", 4, good[: good.index(last)] + stuck, one)
    yield base("a watchdog without another word", 4, text("gib-good.txt")[:2000] + stuck, gib, machine=ULTRA)
    header = next(line for line in good.splitlines() if "busbw" in line)
    yield base("a table without its header", 1, good.replace(header, ""), one)
    yield base(
        "lines of the table that Ray left out",
        1,
        good.replace("# nThread", "# [repeated 2x across cluster] nThread"),
        one,
    )
    yield base("a run that was announced and lost", 1, good + "# Collective test starting: all_reduce_perf\n", one)


def expectations() -> list[str]:
    """Return the names of cases whose exit code is another one as they are."""
    judged = [(base, judge_texts(base.results, base.logs, base.expected).code) for base in (*bases(), *derived())]
    return [f"{base.case.name} ({code})" for base, code in judged if code != base.case.code]


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


def test_bases_have_their_exit_codes_and_are_most_of_the_corpus() -> None:
    assert expectations() == []
    assert len(bases()) > 80 + len([*derived()])
    assert {base.case.code for base in bases()} == {0, 1, 2, 3, 4, 5}


@pytest.mark.parametrize("part", range(PARTS))
def test_no_variation_changes_whether_it_passes(part: int) -> None:
    assert list(wrong(VARIATIONS // PARTS, part)) == []
