"""The judge on its corpus: exit codes, findings, and mutants of the judge that the corpus must detect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from statistics import fmean
from typing import Any

import pytest

from infra.catalog.baselines import Baseline
from tests.workloads.nccl.corpus.cases import CASES, FOLDER, Case
from workloads.nccl.judge import checks, verdict
from workloads.nccl.judge import expectation as rules
from workloads.nccl.judge.expectation import Expectation, limits_of
from workloads.nccl.judge.measurement import MeasuredRow, Measurement
from workloads.nccl.judge.reading import measurement_of_texts
from workloads.nccl.problems import problems, remark
from workloads.nccl.result import EvidenceFinding, Verdict


@cache
def text(name: str) -> str:
    return (FOLDER / name).read_bytes().decode()


@cache
def measurement(case: Case) -> Measurement:
    results = None if case.results is None else text(case.results)
    op = case.ops[0] if len(case.ops) == 1 else None
    return measurement_of_texts(results, [text(name) for name in case.logs], op, limits_of(case.machine))


def judged(case: Case) -> Verdict:
    expected = Expectation(machine=case.machine, nodes=case.nodes, ops=case.ops, **dict.fromkeys(case.options, True))
    return verdict.judge(measurement(case), expected)


def is_as_expected(case: Case, found: Verdict) -> bool:
    kinds = frozenset(finding.kind for finding in found.findings if finding.code)
    remarks = {finding.kind for finding in found.findings if not finding.code}
    return (found.code, found.outcome, kinds) == (case.code, case.outcome, case.fails) and remarks >= {*case.remarks}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdict_on_corpus_case(case: Case) -> None:
    found = judged(case)
    assert is_as_expected(case, found), found
    assert found.reason
    assert (found.code == 0) == (found.outcome != "fail")


def test_every_file_of_the_corpus_has_a_case() -> None:
    assert {name for case in CASES for name in (case.results, *case.logs) if name} == {
        path.name for path in FOLDER.iterdir()
    }


def averaged(rows: Sequence[MeasuredRow]) -> list[MeasuredRow]:
    """Return the largest row with the sweep's mean bandwidth."""
    largest = max(rows, key=lambda row: row.size)
    rates = [row.size / row.out_of_place.time_us for row in rows if row.out_of_place]
    if largest.out_of_place is None:
        return []
    return [replace(largest, out_of_place=replace(largest.out_of_place, time_us=largest.size / fmean(rates)))]


def fastest(rows: Sequence[MeasuredRow]) -> list[MeasuredRow]:
    return [max(rows, key=lambda row: row.size / row.out_of_place.time_us if row.out_of_place else 0.0)]


def smallest(lines: Sequence[Baseline], op: str, nodes: int) -> int:
    return min((line.size for line in lines if (line.op, line.nodes) == (op, nodes)), default=0)


def changed(lines: Sequence[Baseline], **update: Any) -> list[Baseline]:
    return [replace(line, **update) for line in lines]


def none(*_: object) -> list[EvidenceFinding]:
    return []


def floor(change: Callable[..., Any]) -> Callable[..., Baseline | None]:
    """Return `floor_of` with changed baselines, operation, nodes and size."""
    return lambda *asked: FLOOR_OF(*change(*asked[:4]), asked[4])


FLOOR_OF: Any = rules.floor_of
MEASURED, TRANSPORT = rules.measured, checks.transport
MUTANTS: dict[str, tuple[object, str, object]] = {
    "the sweep's average": (rules, "headline", averaged),
    "the fastest row": (rules, "headline", fastest),
    "all rows": (rules, "headline", list),
    "GB for Gb": (rules, "line_rate", lambda machine: float(machine.nics * machine.gbps_per_nic)),
    "GiB for GB": (rules, "measured", lambda row, n: (MEASURED(row, n) or 0.0) * 1e9 / 2**30),
    "transport ignored": (checks, "transport", none),
    "no log is fine": (checks, "transport", lambda found, asked: TRANSPORT(found, asked) if found.facts else []),
    "one NIC is enough": (checks, "problems", lambda log, **asked: problems(log, **asked | {"nics": 1})),
    "#wrong ignored": (checks, "wrong_data", none),
    "only one column's #wrong": (MeasuredRow, "columns", property(lambda row: (row.out_of_place,))),
    "unchecked is correct": (checks, "unchecked", none),
    "failing below 0.80": (rules, "FAIL_BELOW", 0.80),
    "failing below 0.91": (rules, "FAIL_BELOW", 0.91),
    "failing at 0.90": (rules, "FAIL_BELOW", 0.9 + 1e-9),
    "warning below 0.92": (rules, "WARN_BELOW", 0.92),
    "in place": (rules, "column", lambda row: row.in_place or row.out_of_place),
    "no least size": (rules, "large_enough", lambda _size: True),
    "a floor of any size": (rules, "floor_of", floor(lambda lines, op, n, _: (lines, op, n, 2**60))),
    "the smallest floor": (rules, "floor_of", floor(lambda lines, op, n, _: (lines, op, n, smallest(lines, op, n)))),
    "a floor of any number of nodes": (rules, "floor_of", floor(lambda lines, *of: (changed(lines, nodes=of[1]), *of))),
    "unconfirmed figures": (rules, "floor_of", floor(lambda lines, *of: (changed(lines, confidence="medium"), *of))),
    "any algorithm": (rules, "algorithms_of", lambda *_: frozenset()),
    "no baseline is a pass": (checks, "no_baseline", lambda *_: remark("no-baseline", "")),
    "half a result is one": (checks, "is_whole", lambda _: True),
    "nothing is complete": (checks, "is_whole", lambda _: False),
    "completeness ignored": (checks, "completeness", none),
    "another operation": (checks, "operations", none),
    "ranks not counted": (checks, "ranks", none),
    "hosts not counted": (checks, "hosts", none),
    "any GPU": (checks, "gpus", none),
    "any log": (checks, "same_run", none),
    "one node's log": (checks, "covered", none),
    "any rank's time": (checks, "times", none),
    "anything is possible": (checks, "possible", none),
    "no room above the limit": (rules, "TOLERANCE", 0.8),
    "units unchecked": (checks, "disagreements", none),
} | {
    f"{first.name} after {second.name}": (
        verdict,
        "ORDER",
        tuple({first: second, second: first}.get(code, code) for code in verdict.ORDER),
    )
    for first, second in pairwise(verdict.ORDER)
}


@pytest.mark.parametrize("name", MUTANTS)
def test_corpus_detects_mutant(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, attribute, instead = MUTANTS[name]
    monkeypatch.setattr(where, attribute, instead)
    assert not all(is_as_expected(case, judged(case)) for case in CASES)
