"""Every rule of the simulated Google Cloud refuses its invalid request and accepts the valid one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rehearsal.clouds.gcp import tokens
from rehearsal.clouds.gcp.cloud import CLOUD
from rehearsal.clouds.kind import Refusal, Rule
from rehearsal.clouds.state import State, View
from tests.rehearsal import gcp_supporting as land
from tests.rehearsal import gcp_wrong_clusters, gcp_wrong_networks, gcp_wrong_pools
from tests.rehearsal.gcp_wrong import ACCOUNT, AUTO, PLAIN, QUEUED, RESERVED, Case, N, P

CASES = (*gcp_wrong_networks.CASES, *gcp_wrong_clusters.CASES, *gcp_wrong_pools.CASES)


def _all_rules() -> set[tuple[str, str]]:
    return {(kind.type, _name(rule)) for kind in CLOUD.kinds.values() for rule in kind.rules}


def _name(rule: Rule) -> str:
    return str(getattr(rule, "__name__", ""))


def _rule(case: Case) -> Rule:
    (found,) = (rule for rule in CLOUD.kinds[case.kind].rules if _name(rule) == case.rule)
    return found


@pytest.fixture
def state(tmp_path: Path) -> Iterator[View]:
    with State(tmp_path / "clouds.sqlite").transaction() as view:
        land.landscape(view)
        yield view


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rule_refuses_only_its_invalid_request(case: Case, state: View) -> None:
    right = land.changed(land.RIGHT[case.kind], case.right)
    assert _rule(case)(land.call(state, case.kind, right, case.verb)) is None
    case.prepare(state)
    wrong = land.changed(land.RIGHT[case.kind], case.changes)
    refusal = _rule(case)(land.call(state, case.kind, wrong, case.verb, case.config))
    assert isinstance(refusal, Refusal), "the rule is silent"
    assert re.search(case.says, refusal.message), refusal.message
    assert re.match(r"\d{3} \w+$", refusal.status)
    # A source can be looked up only with a revision, or the day on which it was read.
    assert re.search(r"20\d\d-\d\d|[0-9a-f]{8}", refusal.source), refusal.source


@pytest.mark.parametrize("kind", CLOUD.kinds)
def test_valid_requests_pass_every_rule(kind: str, state: View) -> None:
    assert land.refusals(land.call(state, kind, land.RIGHT[kind])) == []


@pytest.mark.parametrize(
    "changes",
    [QUEUED, PLAIN, {**PLAIN, "nodeConfig.spot": True, "initialNodeCount": 1}, {**PLAIN, **RESERVED}, AUTO],
    ids=["queued", "on-demand", "spot", "reservation", "managed networks"],
)
def test_every_capacity_is_valid(changes: Mapping[str, Any], state: View) -> None:
    assert land.refusals(land.call(state, P, land.changed(land.POOL, changes))) == []


def test_rules_have_cases() -> None:
    assert {(case.kind, case.rule) for case in CASES} == _all_rules()


def test_rules_have_one_line_docstrings() -> None:
    for kind in CLOUD.kinds.values():
        for rule in kind.rules:
            assert re.fullmatch(r"[A-Z][^\n]+\.", rule.__doc__ or ""), _name(rule)


def test_supporting_resources_can_be_deleted_in_order(state: View) -> None:
    order = (
        tokens.NODE_POOL,
        tokens.CLUSTER,
        tokens.NAT,
        tokens.ROUTER,
        tokens.FIREWALL,
        tokens.SUBNETWORK,
        N,
        ACCOUNT,
    )
    for type_ in order:
        for _, id_, live in list(state.all(type_)):
            request = land.call(state, type_, live, "delete")
            assert (request.id, land.refusals(request)) == (id_, [])
            state.remove(type_, id_)
    assert list(state.all()) == []
