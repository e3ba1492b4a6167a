"""The user's subnets: everything that they lack for a stack is one problem, with what adds it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.eks.existing import Subnet, problems
from tests.unit.stacks import eks

IDS = ["subnet-0123456789abcdef0", "subnet-0fedcba9876543210"]
STACK: dict[str, Any] = {"network.subnets": IDS, "nodes.max": 4}
FIRST = Subnet(
    id=IDS[0], vpc="vpc-1", zones=("us-east-1a", "use1-az1"), free=500, public_addresses=False, way_out="nat"
)
SECOND = replace(FIRST, id=IDS[1], zones=("us-east-1b", "use1-az2"), way_out="none", free=16)


def test_private_subnets_with_room_lack_nothing() -> None:
    assert list(problems(FIRST, SECOND, eks(STACK), dns=True)) == []
    by_id = eks({**STACK, "location": "use1-az1"})
    assert list(problems(FIRST, SECOND, by_id, dns=True)) == []


def test_addresses_of_running_nodes_are_not_asked_for_again() -> None:
    """A later preview of a stack whose nodes have taken the subnet."""
    first, second, running = replace(FIRST, free=0), replace(SECOND, free=0), {"gpu": 4, "system": 3}
    assert list(problems(first, second, eks(STACK), dns=True, running=running)) == []
    [one] = problems(replace(FIRST, free=63), SECOND, eks(STACK), dns=True, running={"gpu": 3, "system": 3})
    assert "63 free addresses, and the stack needs up to 64" in one.message


@pytest.mark.parametrize(
    ("first", "second", "words", "fix"),
    [
        ({}, {"vpc": "vpc-2"}, "in two VPCs, vpc-1 and vpc-2", "of one VPC"),
        ({"zones": ("us-east-1c", "use1-az4")}, {}, "is in us-east-1c (use1-az4)", "in us-east-1a for the nodes"),
        ({}, {"zones": FIRST.zones}, "in one zone", "in another zone"),
        ({"free": 367}, {}, "367 free addresses, and the stack needs up to 368", "lower nodes.max"),
        ({}, {"free": 15}, "15 free addresses, and the stack needs up to 16", "a larger subnet"),
        ({"public_addresses": True}, {}, "several interfaces", f"--subnet-id {IDS[0]} --no-map-public-ip-on-launch"),
        ({"way_out": "internet"}, {}, "Internet gateway", "a private subnet"),
        ({"way_out": "none"}, {}, "no default route", "0.0.0.0/0"),
    ],
)
def test_each_lack_is_a_problem(first: dict[str, Any], second: dict[str, Any], words: str, fix: str) -> None:
    [one] = problems(replace(FIRST, **first), replace(SECOND, **second), eks(STACK), dns=True)
    assert words in one.message
    assert fix in one.fix


def test_vpc_without_names_is_a_problem() -> None:
    [one] = problems(FIRST, SECOND, eks(STACK), dns=False)
    assert "--vpc-id vpc-1 --enable-dns-hostnames" in one.fix
