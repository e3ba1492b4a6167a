"""Each rule: one stack file in which it alone speaks, and the edge on the other side of which it is silent."""

from __future__ import annotations

import pytest

from infra.legality import RULES

from . import illegal_aws, illegal_capacity, illegal_clusters, illegal_queues
from .illegal import Case
from .stacks import changed, problems_of

CASES = (*illegal_capacity.CASES, *illegal_clusters.CASES, *illegal_aws.CASES, *illegal_queues.CASES)


def test_every_rule_has_a_case() -> None:
    assert {case.rule for case in CASES} == set(RULES)
    assert len(RULES) == len(set(RULES))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule.__name__}-{case.stack['target']}")
def test_the_rule_alone_speaks(case: Case) -> None:
    assert problems_of(case.stack) == ()
    assert problems_of(changed(case.stack, case.good)) == ()
    (problem,) = problems_of(changed(case.stack, case.bad))
    assert problem.settings[0] == case.about
    assert case.hint in problem.fix
    assert problem.says.endswith(".")
    assert problem.source
    assert len(problem.values) == len(problem.settings)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule.__name__}-{case.stack['target']}")
def test_without_the_rule_the_case_would_pass(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.legality.RULES", tuple(rule for rule in RULES if rule is not case.rule))
    assert problems_of(changed(case.stack, case.bad)) == ()
