"""Names derived from every accepted stack name fit the limits of every API; the first version of a GKE cluster."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.catalog.gcp import version_key
from infra.catalog.names import rdma_network
from infra.gke.names import ACCOUNT_ID_ROOM, NoVersionError, Site, control_plane_version
from infra.gke.pod import GVNIC_NETWORK
from infra.naming import shorten
from tests.unit.stacks import GKE, gke, problems_of

DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")

stack_names = st.integers(1, 40).flatmap(
    lambda length: st.from_regex(
        rf"[a-z][a-z0-9-]{{{max(0, length - 2)}}}[a-z0-9]" if length > 1 else "[a-z]", fullmatch=True
    )
)


@given(stack_names)
def test_accepted_stack_names_give_valid_names(stack: str) -> None:
    assert problems_of(GKE, stack=stack) == ()
    names = Site(stack)
    networks = ("nat", "gvnic", GVNIC_NETWORK, "gvnic-internal", "rdma", *map(rdma_network, range(8)), "webhooks")
    limits = {
        names.stack: 40,
        **{names.named(purpose): 63 for purpose in networks},
        names.node_account: ACCOUNT_ID_ROOM,
        names.named("ray"): 53,
        # A RayJob of this cluster, and the operator's Service.
        f"{stack}-job": 47,
        f"{names.named('ray')}-head-svc": 63,
        f"{names.named('ray')}-token": 63,
        f"{names.named('ray')}-ingress": 63,
    }
    for name, room in limits.items():
        assert DNS_1035.fullmatch(name), name
        assert len(name) <= room, name
    assert len(names.node_account) >= 6


@pytest.mark.parametrize("stack", ["a" * 41, "A", "9a", "a-", "a.b", "a_b", "ä"])
def test_other_stack_names_are_rejected_with_a_reason(stack: str) -> None:
    (problem,) = problems_of(GKE, stack=stack)
    assert stack in problem.message
    assert problem.fix


@given(st.text("abc-", min_size=1, max_size=60), st.text("abc-", min_size=1, max_size=60))
def test_shortened_names_stay_different(one: str, other: str) -> None:
    assert (shorten(one, 30) == shorten(other, 30)) == (one == other)


OFFERED = ("1.33.9-gke.1000000", "1.34.1-gke.1829001", "1.34.10-gke.1", "1.35.0-gke.5")


def test_versions_are_ordered_by_number() -> None:
    assert sorted({*OFFERED}, key=version_key) == list(OFFERED)
    assert version_key("1.34") < version_key("1.34.1-gke.1829001")


@pytest.mark.parametrize(
    ("changes", "minimum"),
    [
        ({}, "1.32.2-gke.1652000"),
        ({"nodes.capacity": "reservation", "nodes.reservation": "ours"}, "1.31.4-gke.1183000"),
        ({"nodes.capacity": "spot"}, "1.35.0-gke.1171000"),
        ({"nodes.capacity": "spot", "computeClass": True, "nodes.fallback": "flex-start"}, "1.35.0-gke.1171000"),
        (
            {"nodes.machine": "a4-highgpu-8g", "nodes.capacity": "reservation", "nodes.reservation": "ours"},
            "1.32.2-gke.1475000",
        ),
        (
            {"fabric": "dranet", "nodes.capacity": "reservation", "nodes.reservation": "ours", "nodes.min": 1},
            "1.34",
        ),
        ({"fabric": "managed-dranet"}, "1.34.1-gke.1829001"),
        ({"cluster.minVersion": "1.37"}, "1.37"),
    ],
)
def test_minimum_depends_on_machine_capacity_fabric_and_choice(changes: dict[str, object], minimum: str) -> None:
    settings = gke(changes)
    assert settings.minimum_version == minimum


DEFAULT, LATEST = "1.33.9-gke.1000000", "1.35.0-gke.5"
PLACE = {"location": "us-central1", "channel": "RAPID"}


def test_default_of_the_channel_is_used_if_new_enough_and_its_latest_version_otherwise() -> None:
    assert control_plane_version(DEFAULT, LATEST, "1.33", **PLACE) is None
    assert control_plane_version(DEFAULT, LATEST, "1.34.1-gke.1829001", **PLACE) == LATEST


def test_missing_version_is_an_error_with_location_and_minimum() -> None:
    with pytest.raises(NoVersionError, match=r"us-central1 offers GKE up to 1\.35\.0-gke\.5 in channel RAPID.*1\.37"):
        control_plane_version(DEFAULT, LATEST, "1.37", **PLACE)
