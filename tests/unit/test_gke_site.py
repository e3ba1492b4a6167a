"""Names derived from every accepted stack name fit the limits of every API."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    limits = {
        names.cluster: 40,
        names.router: 63,
        names.gvnic: 63,
        names.gvnic_subnet: 63,
        names.gvnic_firewall: 63,
        names.rdma: 63,
        **{names.rdma_subnet(nic): 63 for nic in range(8)},
        names.node_account: ACCOUNT_ID_ROOM,
        names.ray_cluster: 53,
        # A RayJob of this cluster, and the operator's Service.
        f"{stack}-job": 47,
        f"{names.ray_cluster}-head-svc": 63,
        f"{names.ray_cluster}-token": 63,
        f"{names.ray_cluster}-ingress": 63,
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
