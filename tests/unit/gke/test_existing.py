"""The user's subnetwork: everything that it lacks for a stack is one problem, with the command that adds it."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network
from typing import Any

import pytest

from infra.gke.existing import Subnetwork, problems
from tests.unit.stacks import gke

PATH = "projects/host/regions/us-central1/subnetworks/training"
STACK: dict[str, Any] = {"network.subnetwork": PATH, "nodes.max": 4}
GOOD = Subnetwork(
    network="projects/host/global/networks/theirs",
    nodes=IPv4Network("10.132.16.0/20"),
    secondary={"pods": IPv4Network("10.128.0.0/20"), "services": IPv4Network("10.132.0.0/20")},
    private_access=True,
)
UPDATE = "gcloud compute networks subnets update training --project host --region us-central1"


def test_subnetwork_with_room_lacks_nothing() -> None:
    assert list(problems(GOOD, gke(STACK))) == []
    named = {"network.podsRange": "a", "network.servicesRange": "b"}
    renamed = replace(GOOD, secondary=dict(zip("ab", GOOD.secondary.values(), strict=True)))
    assert list(problems(renamed, gke(STACK | named))) == []


@pytest.mark.parametrize(
    ("wrong", "changes", "setting", "words", "fix"),
    [
        ({"secondary": {}}, {}, "network.podsRange", "it has none", f"{UPDATE} --add-secondary-ranges pods=RANGE"),
        ({"secondary": {"pods": GOOD.secondary["pods"]}}, {}, "network.servicesRange", "it has pods", "services=RANGE"),
        ({}, {"nodes.max": 12}, "network.podsRange", "of 16 nodes, a /24 each; the stack has up to 17", "use a /19"),
        (
            {"secondary": {**GOOD.secondary, "pods": IPv4Network("10.128.0.0/25")}},
            {},
            "network.podsRange",
            "of 0",
            "/20",
        ),
        ({"nodes": IPv4Network("10.132.16.0/29")}, {}, "network.subnetwork", "4 addresses", "--prefix-length 28"),
        ({"private_access": False}, {}, "network.subnetwork", "no Google API", "--enable-private-ip-google-access"),
        ({"nodes": IPv4Network("10.64.0.0/12")}, {}, "network.baseRange", "overlaps", "choose a range"),
    ],
)
def test_each_lack_is_a_problem(
    wrong: dict[str, Any], changes: dict[str, Any], setting: str, words: str, fix: str
) -> None:
    found = list(problems(replace(GOOD, **wrong), gke(STACK | changes)))
    [one] = [each for each in found if each.settings == (setting,)]
    assert words in one.message
    assert fix in one.fix


def test_everything_is_reported_at_once() -> None:
    nothing = Subnetwork(network=GOOD.network, nodes=IPv4Network("10.64.0.0/29"), secondary={}, private_access=False)
    assert [each.settings[0] for each in problems(nothing, gke(STACK))] == [
        "network.podsRange",
        "network.servicesRange",
        "network.subnetwork",
        "network.subnetwork",
    ]
