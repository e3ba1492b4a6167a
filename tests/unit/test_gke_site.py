"""Names derived from every accepted stack name fit the limits of every API."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.gke.pod import GVNIC_NETWORK, rdma_network
from infra.gke.site import ACCOUNT_ID_ROOM, Site
from infra.naming import shorten
from infra.settings.gke import NAME_LIMITS
from tests.unit.stacks import GKE, problems_of

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
    assert stack in problem.says
    assert problem.fix


def test_length_limit_is_that_of_the_cluster() -> None:
    assert min(limit.longest for limit in NAME_LIMITS) == 40


@given(st.text("abc-", min_size=1, max_size=60), st.text("abc-", min_size=1, max_size=60))
def test_shortened_names_stay_different(one: str, other: str) -> None:
    assert (shorten(one, 30) == shorten(other, 30)) == (one == other)
