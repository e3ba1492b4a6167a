"""Simulated clouds accept what real ones accepted, and refuse what real ones refused."""

from __future__ import annotations

import re

import pytest

from rehearsal.clouds.aws import tokens as aws
from rehearsal.clouds.aws.tokens import MADE_BY
from rehearsal.clouds.constraints import SemanticRule
from rehearsal.clouds.gcp import references as gcp
from rehearsal.clouds.kubernetes import schemas
from rehearsal.clouds.registry import cloud
from rehearsal.engine.state import View
from rehearsal.engine.values import as_asked, differences
from tests.rehearsal.configurations import Accepted, Refused, accepted, deploy, drift, judge, kind, refused

ACCEPTED = accepted()
BY_NAME = {one.name: one for one in ACCEPTED}
REFUSED = refused()
IGNORED = {
    aws.NODE_GROUP: ("scalingConfig.desiredSize",),
    aws.SCHEDULE: ("startTime",),
    gcp.CLUSTER: ("minMasterVersion", "nodeVersion", "nodePools", "nodeConfig", "initialNodeCount"),
    gcp.NODE_POOL: ("version", "initialNodeCount", "nodeCount", "nodeConfig.labels"),
    # Those that GKE adds for clusters without ranges of their own.
    gcp.SUBNETWORK: ("secondaryIpRanges",),
}
"""Properties that programs ignore (cluster-toolkit: lifecycle), by kind."""
DATED = re.compile(r"20\d\d-\d\d|\b[0-9a-f]{8}\b|\bv?\d+\.\d+")


@pytest.mark.parametrize("configuration", ACCEPTED, ids=lambda one: one.name)
def test_accepted_configuration_is_accepted(configuration: Accepted, empty: View) -> None:
    assert deploy(configuration, empty) is None


@pytest.mark.parametrize("configuration", ACCEPTED, ids=lambda one: one.name)
def test_drift_shows_only_ignored_properties(configuration: Accepted, empty: View) -> None:
    deploy(configuration, empty)
    objects = [each for each in empty.all() if MADE_BY not in each[2] and not each[0].startswith("kubernetes:")]
    drift(empty)
    for type_, id_, before in objects:
        names = {name for one in configuration.resources.values() if one["type"] == type_ for name in one["inputs"]}
        asked = {name: value for name, value in before.items() if name in names}
        now = as_asked(asked, empty.get(type_, id_) or {}, kind(type_).maps)
        for path, _ in differences(asked, now):
            assert ".".join(map(str, path)).startswith(IGNORED.get(type_, ())), f"{id_}: {path}"


@pytest.mark.parametrize("change", REFUSED, ids=lambda one: one.name)
def test_refused_change_is_refused(change: Refused, empty: View) -> None:
    base = BY_NAME[change.base]
    verdict = judge(change, base, empty)
    of_kubernetes = base.resources[change.resource]["type"].startswith("kubernetes:")
    if verdict is None and of_kubernetes and (why := schemas.unchecked()):
        pytest.skip(why)
    assert verdict is not None, f"accepted, but {change.origin} says: {change.said}"
    assert (verdict.resource, verdict.caught) == (change.resource, change.caught), verdict.message


@pytest.mark.parametrize("package", ["aws", "gcp", "kubernetes"])
def test_every_rule_has_two_dated_sources_and_a_refused_change(package: str) -> None:
    kinds = cloud(package).kinds.values()
    rules = {rule for kind in kinds for rule in kind.rules if isinstance(rule, SemanticRule)}
    assert {rule.name for rule in rules} <= {one.caught for one in REFUSED}
    assert [rule.name for rule in rules if not (DATED.search(rule.refused) and DATED.search(rule.accepted))] == []


def test_names_are_unique_and_origins_can_be_looked_up() -> None:
    everything: list[Accepted | Refused] = [*ACCEPTED, *REFUSED]
    assert len({one.name for one in everything}) == len(everything)
    for one in everything:
        assert DATED.search(one.origin), one.name
