"""Names of AWS resources are valid for every accepted stack name; mirrored images; the kubeconfig."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.catalog.pins import KUBERAY, NVIDIA_PLUGIN
from infra.eks.names import GPU_GROUP, MAX_ROLE_NAME, SYSTEM_GROUP, EksNames
from infra.kubernetes.resources import mirrored
from infra.settings.eks import NAME_LIMITS
from tests.unit.stacks import EKS, problems_of

ROLES = ("cluster", "nodes", "cni", "autoscaler", "ray")

stack_names = st.integers(1, min(limit.longest for limit in NAME_LIMITS)).flatmap(
    lambda length: st.from_regex(
        rf"[a-z][a-z0-9-]{{{max(0, length - 2)}}}[a-z0-9]" if length > 1 else "[a-z]", fullmatch=True
    )
)


@given(stack_names, st.sampled_from(["us-east-1", "ap-southeast-2"]))
def test_names_of_accepted_stacks_are_valid(stack: str, region: str) -> None:
    assert problems_of(EKS, stack=stack) == ()
    names = EksNames(stack, region)
    ray = names.named("ray")
    limits = {
        names.stack: 100,
        # A launch template; a placement group and a security group may have 255 characters.
        names.named(GPU_GROUP): 128,
        names.named(SYSTEM_GROUP): 128,
        names.named("endpoints"): 255,
        ray: 53,
        names.named("shared"): 253,
        f"{ray}-head-svc": 63,
        **{names.role(purpose): MAX_ROLE_NAME for purpose in ROLES},
    }
    for name, room in limits.items():
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name), name
        assert len(name) <= room, name
    assert len({names.role(purpose) for purpose in ROLES}) == len(ROLES)
    assert not names.named("secrets").startswith("aws/"), "alias/aws/ belongs to AWS"
    assert not names.named("efa").startswith("sg-"), "sg- begins the ids of security groups"


def test_role_names_contain_the_region() -> None:
    assert EksNames("eks", "us-east-1").role("nodes") != EksNames("eks", "us-west-2").role("nodes")


@pytest.mark.parametrize(
    ("image", "found"),
    [
        (KUBERAY.image, "1.dkr.ecr.us-east-1.amazonaws.com/mirror/kuberay/operator"),
        (NVIDIA_PLUGIN.image, "1.dkr.ecr.us-east-1.amazonaws.com/mirror/nvidia/k8s-device-plugin"),
    ],
)
def test_mirror_keeps_the_path_of_an_image(image: str, found: str) -> None:
    assert mirrored(image, "1.dkr.ecr.us-east-1.amazonaws.com/mirror/") == found
    assert mirrored(image, None) == image
