"""The judge on its corpus: exit codes, findings, and mutants of the judge that the corpus must detect."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from infra.catalog.baselines import Baseline
from infra.catalog.machines import Machine
from tests.workloads.corpus.build import FOLDER, files
from tests.workloads.corpus.cases import CASES, Case
from workloads.client.stack import limits_of
from workloads.exits import Exit
from workloads.nccl.judge import checks, verdict
from workloads.nccl.judge import expectation as rules
from workloads.nccl.judge.expectation import Expectation
from workloads.nccl.judge.measurement import MeasuredRow, Measurement
from workloads.nccl.judge.reading import measurement_of_texts
from workloads.nccl.result import Finding, Verdict
from workloads.nccl.units import algbw


def expectation(case: Case) -> Expectation:
    options = dict.fromkeys(case.options, True)
    return Expectation(machine=case.machine, nodes=case.nodes, ops=case.ops, **options)


@cache
def text(name: str) -> str:
    return (FOLDER / name).read_bytes().decode()


@cache
def measurement(case: Case) -> Measurement:
    results = None if case.results is None else text(case.results)
    op = case.ops[0] if len(case.ops) == 1 else None
    return measurement_of_texts(results, [text(name) for name in case.logs], op, limits_of(case.machine))


def judged(case: Case) -> Verdict:
    return verdict.judge(measurement(case), expectation(case))


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


def test_corpus_matches_its_builder() -> None:
    built = files()
    assert {path.name for path in FOLDER.iterdir()} == set(built)
    for name, content in built.items():
        there = text(name)
        if name.startswith("own-"):
            # The evidence depends on the log's reader, which may report more.
            there, content = (
                json.dumps(json.loads(each) | {"evidence": None}, sort_keys=True) for each in (there, content)
            )
        assert there == content, f"{name}: run python -m tests.workloads.corpus.build"
    used = {name for case in CASES for name in (case.results, *case.logs) if name}
    assert used == set(built)


def test_corpus_covers_every_exit_code() -> None:
    assert {case.code for case in CASES} == {Exit.OK, *verdict.ORDER}


def averaged(rows: Sequence[MeasuredRow]) -> list[MeasuredRow]:
    """Return a sweep's mean bandwidth instead of the largest row's."""
    largest = max(rows, key=lambda row: row.size)
    found = [algbw(row.size, row.out_of_place.time_us / 1e6) for row in rows if row.out_of_place]
    if largest.out_of_place is None:
        return []
    time_us = largest.size / (sum(found) / len(found)) / 1e3
    return [replace(largest, out_of_place=replace(largest.out_of_place, time_us=time_us))]


def fastest(rows: Sequence[MeasuredRow]) -> list[MeasuredRow]:
    return [max(rows, key=lambda row: row.size / row.out_of_place.time_us if row.out_of_place else 0.0)]


def at_any_size(baselines: Sequence[Baseline], op: str, nodes: int, _size: int, known: frozenset[str]) -> Any:
    return ORIGINAL_FLOOR_OF(baselines, op, nodes, 2**60, known)


def at_the_smallest(baselines: Sequence[Baseline], op: str, nodes: int, _size: int, known: frozenset[str]) -> Any:
    sizes = [line.size for line in baselines if (line.op, line.nodes) == (op, nodes)]
    return ORIGINAL_FLOOR_OF(baselines, op, nodes, min(sizes, default=0), known)


def of_any_nodes(baselines: Sequence[Baseline], op: str, nodes: int, size: int, known: frozenset[str]) -> Any:
    return ORIGINAL_FLOOR_OF([replace(line, nodes=nodes) for line in baselines], op, nodes, size, known)


def unconfirmed_gate(baselines: Sequence[Baseline], op: str, nodes: int, size: int, known: frozenset[str]) -> Any:
    lines = [replace(line, confidence="medium") for line in baselines]
    return ORIGINAL_FLOOR_OF(lines, op, nodes, size, known)


def allowed_baseline(missing: Sequence[str], expected: Expectation) -> Finding:
    return ORIGINAL_NO_BASELINE(missing, expected.model_copy(update={"no_floor": True}))


ORIGINAL_FLOOR_OF = rules.floor_of
ORIGINAL_NO_BASELINE = checks.no_baseline
ORIGINAL_MEASURED = rules.measured


def none(*_: object) -> list[Finding]:
    return []


def without_a_log(found: Measurement, expected: Expectation) -> Iterable[Finding]:
    return [] if found.facts is None else ORIGINAL_TRANSPORT(found, expected)


class OneNic(Expectation):
    @property
    def row(self) -> Machine:
        return replace(super().row, nics=1)


def log_of_one_kind(found: Measurement, expected: Expectation) -> Iterable[Finding]:
    return ORIGINAL_TRANSPORT(found, OneNic(**dict(expected)))


ORIGINAL_TRANSPORT = checks.transport

Mutant = tuple[object, str, object]
MUTANTS: dict[str, Mutant] = {
    "the sweep's average": (rules, "headline", averaged),
    "the fastest row": (rules, "headline", fastest),
    "all rows": (rules, "headline", list),
    "GB for Gb": (rules, "line_rate", lambda machine: float(machine.nics * machine.gbps_per_nic)),
    "GiB for GB": (rules, "measured", lambda row, n: (ORIGINAL_MEASURED(row, n) or 0.0) * 1e9 / 2**30),
    "transport ignored": (checks, "transport", none),
    "no log is fine": (checks, "transport", without_a_log),
    "one NIC is enough": (checks, "transport", log_of_one_kind),
    "#wrong ignored": (checks, "wrong_data", none),
    "only one column's #wrong": (MeasuredRow, "columns", property(lambda row: (row.out_of_place,))),
    "unchecked is correct": (checks, "unchecked", none),
    "failing below 0.80": (rules, "FAIL_BELOW", 0.80),
    "failing below 0.91": (rules, "FAIL_BELOW", 0.91),
    "failing at 0.90": (rules, "FAIL_BELOW", 0.9 + 1e-9),
    "warning below 0.92": (rules, "WARN_BELOW", 0.92),
    "in place": (rules, "column", lambda row: row.in_place or row.out_of_place),
    "no least size": (rules, "large_enough", lambda _size: True),
    "a floor of any size": (rules, "floor_of", at_any_size),
    "the smallest floor": (rules, "floor_of", at_the_smallest),
    "a floor of any number of nodes": (rules, "floor_of", of_any_nodes),
    "unconfirmed figures judge": (rules, "floor_of", unconfirmed_gate),
    "any algorithm": (rules, "algorithms_of", lambda *_: frozenset()),
    "no baseline is a pass": (checks, "no_baseline", allowed_baseline),
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
