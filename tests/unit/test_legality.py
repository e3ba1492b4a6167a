"""Each rule: one stack file in which it alone reports, and a similar one that is valid."""

from __future__ import annotations

import pytest

from infra.settings.load import RULES

from . import illegal_aws, illegal_capacity, illegal_clusters, illegal_queues
from .illegal import Case
from .stacks import changed, problems_of

CASES = (*illegal_capacity.CASES, *illegal_clusters.CASES, *illegal_aws.CASES, *illegal_queues.CASES)


def case_id(case: Case) -> str:
    return f"{case.rule.find.__name__ if case.rule else case.about}-{case.stack['target']}"


def test_every_rule_has_a_case() -> None:
    for target, rules in RULES.items():
        assert len(rules) == len(set(rules)), target
    assert {case.rule for case in CASES if case.rule} == {rule for rules in RULES.values() for rule in rules}


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_one_rule_reports(case: Case) -> None:
    assert problems_of(case.stack) == ()
    assert problems_of(changed(case.stack, case.good)) == ()
    (problem,) = problems_of(changed(case.stack, case.bad))
    assert problem.settings[0] == case.about
    assert case.hint in problem.fix
    assert problem.says.endswith(".")
    assert problem.source
    assert len(problem.values) == len(problem.settings)


@pytest.mark.parametrize("case", [case for case in CASES if case.rule], ids=case_id)
def test_without_the_rule_the_case_passes(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    target = case.stack["target"]
    monkeypatch.setitem(RULES, target, [rule for rule in RULES[target] if rule is not case.rule])
    assert problems_of(changed(case.stack, case.bad)) == ()
