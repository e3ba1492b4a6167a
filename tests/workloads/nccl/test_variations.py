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

from tests.workloads.nccl import mutations
from tests.workloads.nccl.corpus.cases import CASES, P5, ULTRA, Case
from tests.workloads.nccl.test_judge import is_as_expected, text
from tests.workloads.nccl.variations import DAMAGES, ENCODINGS, WRAPPERS, Change, Lines
from workloads.evidence.log_text import decoded
from workloads.nccl.judge.expectation import Expectation
from workloads.nccl.judge.verdict import judge_texts

VARIATIONS, PARTS = 20_000, 8
WHOLE = ("gib-cut.log",)
"""Logs of which every process is needed. One process per host is enough for the others, and faster."""
ONE_LINE_DECIDES = (
    "fastest-rank.txt",
    "gib-good.txt gib-cut.log",
    "two-operations.txt",
    "a run that was announced and lost",
    "NCCL's notice of fewer NICs",
    "a process of several with fewer NICs",
    "fewer NICs in a second communicator",
    "a connection without GPUDirect RDMA",
    "a second message without GPUDirect RDMA",
    "a connection over sockets",
    "a line torn behind",
    "a row without its second block",
    "a row cut before its type",
    "the largest row is lost",
    "wrong data without its sum",
    "a sum that failed without a number",
    "a bandwidth of another unit",
    # Without the second run, the first is right.
    "the algorithm of another run",
    "the log's algorithm of two runs",
)
_WRITER = re.compile(r"([\w.-]+):(\d+):\d+ \[\d+\] NCCL ")


@dataclass(frozen=True)
class Base:
    """A case with the text of its files."""

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
    """Return the cases of the corpus, and those derived from them."""
    return [*map(of_files, CASES), *derived()]


def of_files(case: Case) -> Base:
    logs = (text(name) if name in WHOLE else of_one_process(text(name)) for name in case.logs)
    return Base(case, None if case.results is None else text(case.results), tuple(logs))


def derived() -> Iterator[Base]:
    """Cases that differ from one of the corpus in a few characters."""

    def base(name: str, code: int, kinds: str, results: str, log: str = "", **expected: Any) -> Base:
        case = Case(
            name,
            code=code,
            outcome="fail" if code else "pass",
            fails=frozenset(kinds.split()),
            **{"machine": P5} | expected,
        )
        return Base(case, results, (log,) if log else ())

    good, every = text("efa-good.txt"), text("efa.log")
    efa, gib = of_one_process(every), of_one_process(text("gib.log"))
    rows = [line for line in good.splitlines() if re.match(r" +\d", line)]
    net = [line for line in efa.splitlines() if "via NET/" in line]
    writer = next(line for line in efa.splitlines() if " NCCL INFO " in line).partition("INFO ")[0] + "INFO "

    # NICs, connections and networks.
    provider = next(line for line in efa.splitlines() if "found 32 nics" in line)
    fewer = provider.replace("found 32", "found 24")
    yield base("one process with fewer NICs", 5, "nic-missing", good, efa.replace(provider, fewer))
    one_of_several = every.replace("found 32 nics", "found 24 nics", 1)
    yield base("a process of several with fewer NICs", 5, "nic-missing", good, one_of_several)
    yield base("fewer NICs in a second communicator", 5, "nic-missing", good, f"{efa}{fewer}\n")
    notice = f"{writer}Rank 3 has 0 local Net devices (max 8).\n{efa}"
    yield base("NCCL's notice of fewer NICs", 5, "nic-missing", good, notice)
    plain = net[0].replace("/GDRDMA", "")
    yield base("a connection without GPUDirect RDMA", 5, "no-gdrdma", good, efa.replace(net[0], plain))
    joined = efa.replace(f"{net[1]}\n", "").replace(net[0], net[0] + net[1].replace("/GDRDMA", ""))
    yield base("a second message without GPUDirect RDMA", 5, "damaged-log no-gdrdma", good, joined)
    others = gib.replace("NET/gIB/0/GDRDMA", "NET/Socket/0", 1)
    yield base("a connection over sockets", 5, "socket-transport", text("gib-good.txt"), others, machine=ULTRA)
    local = "".join(f"{line}\n" for line in efa.splitlines() if line not in net)
    yield base("a log without connections", 5, "no-channel", good, local)

    # Evidence that was lost.
    ranks = re.sub(r"^(\S+?):(\d+:\d+ )", r"\2", efa, flags=re.MULTILINE)
    yield base("hosts that the log does not show", 5, "hosts-unknown nics-unknown", good, ranks)
    thin = efa.replace("GDRDMA\n", "GDRDMA [repeated 5x across cluster]\n", 1)
    yield base("lines that Ray left out", 5, "lines-left-out", good, thin)
    for at in ("Chann", net[0][len(writer) :].partition("-> ")[0]):
        yield base(f"a line torn behind {at}", 5, "damaged-log", good, efa.replace(net[0], writer + at))
    cut = efa[: efa.rindex("/GDRDMA")]
    yield base("a log that ends before GDRDMA", 5, "truncated-log", good, cut)
    begun = "".join(f"{line}\n" for line in efa.splitlines() if "comm 0x" not in line)
    yield base("a log without the end of the initialization", 5, "truncated-log", good, begun)

    # The algorithm. P5en: NVLSTree has a lower published figure than ring, which these miss.
    table = text("p5en-4-nodes.txt")
    p5en: dict[str, Any] = {"machine": "p5en.48xlarge", "nodes": 4, "options": ("no_log",)}

    def commanded(algorithm: str) -> str:
        return f"mpirun -np 32 -x NCCL_ALGO={algorithm} ./build/all_reduce_perf -b 256M -e 4G -f 2 -g 1\n{table}"

    yield base("an algorithm", 0, "", commanded("NVLSTree"), **p5en)
    yield base("an excluded algorithm", 2, "below", commanded("^NVLSTree"), **p5en)
    yield base("the algorithm of another run", 2, "below", commanded("NVLSTree") + table, **p5en)
    said = f"ip-10-3-9-21:15102:15102 [0] NCCL INFO NCCL_ALGO set by environment to NVLSTree\n{table}"
    yield base("the log's algorithm of two runs", 2, "below", said + table, **p5en)

    # Rows: parts of them, as NCCL's lines (TUNING) cut them since 2.22, and what they state.
    line = f"{writer}AllReduce: 1 Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..15}}\n"
    parts = re.sub(r"^( +\d+ +\d+ +float +sum +-1)(.{33})", rf"\1{line}\2{line}", good, flags=re.MULTILINE)
    assert parts.count(line) > 6
    yield base("rows that lines of NCCL cut", 0, "", parts, efa)
    warning = writer.removesuffix("NCCL INFO ") + "transport/net_ib/common.cc:179 (ncclIbAsyncThreadMain) NCCL WARN x\n"
    warned = re.sub(r"^( +\d+ +\d+ +float +sum +-1)", rf"\1[2026-11-26 08:07:50] {warning}", good, flags=re.MULTILINE)
    yield base("rows that warnings of NCCL 2.30 cut", 0, "", warned, efa)
    footer = next(line for line in good.splitlines() if "Out of bounds" in line)
    yield base("a row without its line end", 0, "", good.replace(f"{rows[-1]}\n", rows[-1]), efa)
    yield base("a cut row that is never completed", 1, "damaged", good.replace(rows[-1], rows[-1][:60]), efa)
    row = rows[-3]
    yield base("a row cut before its type", 1, "damaged", good.replace(row, row[: row.index(" float")]), efa)
    yield base("the largest row is lost", 1, "damaged", good.replace(f"{rows[-1]}\n", ""), efa)
    first_block = re.match(r"(?:\s*\S+){9}", rows[-1])
    assert first_block is not None
    yield base("a row without its second block", 1, "damaged", good.replace(rows[-1], first_block[0]), efa)
    header = next(line for line in good.splitlines() if "busbw" in line)
    yield base("a table without its header", 1, "damaged", good.replace(header, ""), efa)
    untimed = good.replace(header, header.replace(" time ", " span "))
    yield base("a table without times", 1, "unreadable", untimed, efa)
    left_out = good.replace("# nThread", "# [repeated 2x across cluster] nThread")
    yield base("lines of the table that Ray left out", 1, "damaged", left_out, efa)
    again = good + "# Collective test starting: all_reduce_perf\n"
    yield base("a run that was announced and lost", 1, "truncated", again, efa)
    wrong_row = re.sub(r"0(\s+\S+\s+\S+\s+\S+\s+0\s*)$", r"7\1", rows[-1])
    assert wrong_row != rows[-1]
    yield base("wrong data without its sum", 3, "wrong-data", good.replace(rows[-1], wrong_row), efa)
    failed = good.replace(footer, footer.replace("OK", "FAILED"))
    yield base("a sum that failed without a number", 3, "wrong-data", failed, efa)
    algbw = rows[-1].split()[6]
    twice_as_fast = rows[-1].replace(algbw, f"{2 * float(algbw):.2f}", 1)
    yield base("a bandwidth of another unit", 1, "units", good.replace(rows[-1], twice_as_fast), efa)

    # Hangs.
    stuck = "[rank3]:[E1103 ProcessGroupNCCL.cpp:1] [Rank 3] Heartbeat monitor timed out! Process will be terminated\n"
    yield base("a heartbeat that stopped", 4, "hang", good[: good.index(rows[-1])] + stuck, efa)
    begun = text("gib-good.txt")[:2000] + stuck
    yield base("a watchdog without another word", 4, "hang", begun, gib, machine=ULTRA)


def expectations() -> list[str]:
    """Return the cases whose verdict is another one as they are."""
    judged = [(base.case, judge_texts(base.results, base.logs, base.expected)) for base in bases()]
    return [f"{case.name}: {found.code}, {found.reason}" for case, found in judged if not is_as_expected(case, found)]


def varied(content: str, changes: Sequence[Change], encoding: str, seed: float) -> str:
    """Return a file's text as the judge reads it after these changes; empty text stays."""
    lines: Lines = content.removesuffix("\n").split("\n") if content else []
    for change in changes:
        lines = change(lines, random.Random(seed)) if lines else []
    return decoded(ENCODINGS[encoding]("".join(f"{line}\n" for line in lines)))


def wrong(count: int, seed: int) -> Iterator[str]:
    """Yield each variation that the judge gets wrong, and its verdict."""
    chance, every = random.Random(seed), bases()
    for number in range(count):
        base = every[number % len(every)]
        case = base.case
        is_json = (base.results or "").lstrip().startswith("{")
        wrapper, encoding = chance.choice([*WRAPPERS]), chance.choice([*ENCODINGS])
        of_log = is_json or chance.random() < 0.5
        hurt = case.code and not (of_log and "no_log" in case.options) and not case.name.startswith(ONE_LINE_DECIDES)
        damages = chance.sample([*DAMAGES], chance.randrange(3)) if hurt else []
        change = partial(varied, encoding=encoding, seed=chance.random())
        damaged, whole = [*(DAMAGES[name] for name in damages), WRAPPERS[wrapper]], [WRAPPERS[wrapper]]
        for_results = [] if is_json else whole if of_log else damaged  # launchers add nothing to a report in a file
        results = None if base.results is None else change(base.results, for_results)
        logs = [change(log, damaged if of_log else whole) for log in base.logs]
        chance.shuffle(logs)
        found = judge_texts(results, logs, base.expected)
        # Damage may change by which code a case fails.
        if bool(found.code) != bool(case.code) or (not damages and found.code != case.code):
            where = "the log" if of_log else "the results"
            yield f"{case.name}: {', '.join([*damages, wrapper, encoding])}, {where}: {found.code}, {found.reason}"


def test_cases_have_their_verdict_without_variation() -> None:
    assert expectations() == []
    assert {base.case.code for base in bases()} == {0, 1, 2, 3, 4, 5}


@pytest.mark.parametrize("part", range(PARTS))
def test_no_variation_changes_the_verdict(part: int) -> None:
    assert list(wrong(VARIATIONS // PARTS, part)) == []


def test_every_mutation_of_the_judge_is_caught() -> None:
    assert len(mutations.MUTATIONS) >= 40
    assert mutations.main([]) == 0
