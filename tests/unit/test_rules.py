"""Each rule reports alone in one stack file, and accepts a similar one."""

from __future__ import annotations

import pytest

from infra.settings.load import RULES

from . import invalid_aws, invalid_capacity, invalid_clusters, invalid_queues
from .stacks import Case, changed, problems_of

CASES = (*invalid_capacity.CASES, *invalid_clusters.CASES, *invalid_aws.CASES, *invalid_queues.CASES)


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
    assert case.rule is None or problem.settings == case.rule.settings
    assert problem.says.endswith(".")
    assert problem.source
    assert len(problem.values) == len(problem.settings)


@pytest.mark.parametrize("case", [case for case in CASES if case.rule], ids=case_id)
def test_without_the_rule_the_case_passes(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    target = case.stack["target"]
    monkeypatch.setitem(RULES, target, [rule for rule in RULES[target] if rule is not case.rule])
    assert problems_of(changed(case.stack, case.bad)) == ()
