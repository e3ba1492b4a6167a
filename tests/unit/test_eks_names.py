"""Names made from a stack's name fit every system that they are given to, for every stack name that is accepted."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.eks.images import mirrored
from infra.eks.names import GPU_GROUP, ROLE_ROOM, SYSTEM_GROUP, EksNames
from infra.legality.names import longest_stack_name
from tests.unit.stacks import EKS, problems_of

PURPOSES = ("cluster", "nodes", "cni", "autoscaler")

stack_names = st.integers(1, longest_stack_name("eks")).flatmap(
    lambda length: st.from_regex(
        rf"[a-z][a-z0-9-]{{{max(0, length - 2)}}}[a-z0-9]" if length > 1 else "[a-z]", fullmatch=True
    )
)


@given(stack_names, st.sampled_from(["us-east-1", "ap-southeast-2", "us-gov-west-1"]))
def test_accepted_stack_names_give_names_that_fit(stack: str, region: str) -> None:
    assert problems_of(EKS, stack=stack) == ()
    names = EksNames(stack, region)
    limits = {
        names.cluster: 100,
        names.placement_group: 255,
        names.security_group("endpoints"): 255,
        names.template(GPU_GROUP): 128,
        names.template(SYSTEM_GROUP): 128,
        names.ray_cluster: 53,
        names.shared_volume: 253,
        f"{names.ray_cluster}-head-svc": 63,
        **{names.role(purpose): ROLE_ROOM for purpose in PURPOSES},
    }
    for name, room in limits.items():
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name), name
        assert len(name) <= room, name
    assert len({names.role(purpose) for purpose in PURPOSES}) == len(PURPOSES)
    assert names.secrets_key.startswith("alias/")
    assert not names.secrets_key.startswith("alias/aws/")
    assert not names.security_group("efa").startswith("sg-")


def test_roles_of_one_stack_name_in_two_regions_are_two() -> None:
    assert EksNames("eks", "us-east-1").role("nodes") != EksNames("eks", "us-west-2").role("nodes")


def test_the_limit_is_that_of_a_ray_job() -> None:
    assert longest_stack_name("eks") == 43


@pytest.mark.parametrize(
    ("image", "found"),
    [
        ("quay.io/kuberay/operator", "1.dkr.ecr.us-east-1.amazonaws.com/mirror/kuberay/operator"),
        ("nvcr.io/nvidia/k8s-device-plugin", "1.dkr.ecr.us-east-1.amazonaws.com/mirror/nvidia/k8s-device-plugin"),
    ],
)
def test_a_mirror_keeps_the_path_of_an_image(image: str, found: str) -> None:
    assert mirrored(image, "1.dkr.ecr.us-east-1.amazonaws.com/mirror/") == found
    assert mirrored(image, None) == image
