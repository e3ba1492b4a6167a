"""Every rule of the simulated AWS refuses its invalid request and accepts the valid one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.machines import EKS_CATALOG
from rehearsal.clouds.aws import tokens as t
from rehearsal.clouds.aws.cloud import CLOUD
from rehearsal.clouds.aws.refusals import FAILURES
from rehearsal.clouds.kind import Refusal, Rule
from rehearsal.clouds.state import State, View
from tests.rehearsal import aws_supporting as land
from tests.rehearsal import aws_wrong_clusters, aws_wrong_groups, aws_wrong_network
from tests.rehearsal.aws_wrong import BLOCK, FS, LT, C, Case, G, Prepare, nothing, targeting, template, without
from tests.rehearsal.supporting import GONE

CASES = (*aws_wrong_network.CASES, *aws_wrong_groups.CASES, *aws_wrong_clusters.CASES)


def _all_rules() -> set[tuple[str, str]]:
    return {(kind.type, rule.__name__) for kind in CLOUD.kinds.values() for rule in kind.rules}


def _rule(case: Case) -> Rule:
    (found,) = [rule for rule in land.kind(case.kind).rules if rule.__name__ == case.rule]
    return found


@pytest.fixture
def state(tmp_path: Path) -> Iterator[View]:
    with State(tmp_path / "clouds.sqlite").transaction() as view:
        land.landscape(view)
        yield view


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rule_refuses_only_its_invalid_request(case: Case, state: View) -> None:
    right = land.right(state, case.kind)
    assert _rule(case)(land.call(state, case.kind, right, "create")) is None
    case.prepare(state)
    base = right if case.id_ is None else (state.get(case.kind, case.id_) or {})
    wrong = land.changed(base, case.changes)
    refusal = _rule(case)(land.call(state, case.kind, wrong, case.verb, case.id_))
    assert isinstance(refusal, Refusal), "the rule is silent"
    assert re.search(case.says, refusal.message), refusal.message
    assert re.match(r"(\d{3} [\w.]+|provider|failed \w+)$", refusal.status)
    # A source can be looked up only with a revision, or the day on which it was read.
    assert re.search(r"20\d\d-\d\d|[0-9a-f]{8}", refusal.source), refusal.source


@pytest.mark.parametrize("kind", CLOUD.kinds)
def test_valid_requests_pass_every_rule(kind: str, state: View) -> None:
    assert land.refusals(land.call(state, kind, land.right(state, kind))) == []


@pytest.mark.parametrize("machine", EKS_CATALOG)
def test_interfaces_of_every_machine_are_valid(machine: str, state: View) -> None:
    template({"networkInterfaces": land.layout(machine, [land.EFA_ID])})(state)
    asked = land.changed(land.GPU_GROUP, {"instanceTypes": [machine]})
    assert land.refusals(land.call(state, G, asked)) == []


@pytest.mark.parametrize(
    ("changes", "prepare"),
    [
        ({"capacityType": "SPOT"}, nothing),
        ({"scalingConfig.desiredSize": 0, "scalingConfig.minSize": 0}, nothing),
        ({}, targeting(placement=GONE)),
        (
            BLOCK,
            targeting(
                placement=GONE, instanceType="p5en.48xlarge", instanceMarketOptions={"marketType": "capacity-block"}
            ),
        ),
    ],
    ids=["spot", "empty", "reservation", "capacity block"],
)
def test_every_capacity_is_valid(changes: Mapping[str, Any], prepare: Prepare, state: View) -> None:
    prepare(state)
    assert land.refusals(land.call(state, G, land.changed(land.GPU_GROUP, changes))) == []


def test_closed_network_with_endpoints_is_valid(state: View) -> None:
    without(t.ROUTE)(state)
    for service in ("ec2", "ecr.api", "ecr.dkr", "sts", "s3"):
        name = f"com.amazonaws.{land.REGION}.{service}"
        land.make(state, t.ENDPOINT, {"vpcId": land.VPC_ID, "serviceName": name})
    assert land.refusals(land.call(state, G, land.GPU_GROUP)) == []


def test_rules_have_cases() -> None:
    assert {(case.kind, case.rule) for case in CASES} == _all_rules()


def test_rules_have_one_line_docstrings() -> None:
    for kind in CLOUD.kinds.values():
        for rule in kind.rules:
            assert re.fullmatch(r"[A-Z][^\n]+\.", rule.__doc__ or ""), rule.__name__


def test_faults_have_sources() -> None:
    assert all(refusal.source for refusal in FAILURES.values())


def test_supporting_resources_can_be_deleted_in_order(state: View) -> None:
    order = (
        *(FS, G, t.PLACEMENT_GROUP, LT, t.ADDON, C, t.NAT, t.EIP, t.ASSOCIATION, t.ROUTE, t.ROUTE_TABLE),
        *(t.INTERNET_GATEWAY, t.INGRESS, t.EGRESS, t.SECURITY_GROUP, t.SUBNET, t.VPC, t.ATTACHMENT, t.ROLE),
        *(t.LOG_GROUP, t.KEY, t.BUCKET),
    )
    for type_ in order:
        for _, id_, live in list(state.all(type_)):
            request = land.call(state, type_, live, "delete", id_)
            assert (request.id, land.refusals(request)) == (id_, [])
            state.remove(type_, id_)
            for other_type, other, its in list(state.all()):
                if land.kind(type_).cascade(request, other_type, its):
                    state.remove(other_type, other)
    assert list(state.all()) == []
