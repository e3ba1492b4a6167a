"""Simulated AWS: every kind, its functions, and errors for injected faults.

Drift leaves out tags that AWS sets ("aws:…"): the provider hides them (its tags.IgnoreAWS, unverified, 2026-11).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.aws import autoscaling, ec2, eks, eks_parts, fsx, iam, kms, node_groups, security_groups, vpc
from rehearsal.clouds.aws.functions import FUNCTIONS
from rehearsal.clouds.aws.machines import FACTS
from rehearsal.clouds.aws.outputs import default_tags
from rehearsal.clouds.constraints import constrained
from rehearsal.clouds.facts import shapes
from rehearsal.engine.kind import Cloud, Json, Refusal, ResourceKind
from rehearsal.engine.values import UNKNOWN, unknown

FAILURES: Mapping[str, Refusal] = {
    "stockout": Refusal(
        "400 InsufficientInstanceCapacity",
        "Could not launch On-Demand Instances. InsufficientInstanceCapacity - We currently do not have sufficient "
        "capacity in the Availability Zone you requested. Our system will be working on provisioning additional "
        "capacity. Launching EC2 instance failed.",
        "aws/containers-roadmap#2204, 2023-11-17",
    ),
    "quota": Refusal(
        "400 VcpuLimitExceeded",
        "You have requested more vCPU capacity than your current vCPU limit allows for the instance bucket that the "
        "specified instance type belongs to.",
        "EC2 docs, error codes; wording unverified, 2026-11",
    ),
}
"""AWS errors for injected faults, where they differ from the defaults."""

_SERVICES = (vpc, security_groups, ec2, eks, eks_parts, node_groups, autoscaling, iam, kms, fsx)

_KINDS = [each for service in _SERVICES for each in vars(service).values() if isinstance(each, ResourceKind)]

_SHAPES = shapes(FACTS)


def tagged(type_: str, inputs: Json, config: Mapping[str, Any]) -> Json:
    """Return the inputs with the provider's default tags among their tags; one unknown tag makes all unknown.

    So a change of the defaults is an update of every resource with tags (pulumi-aws: provider/tags.go, applyTags,
    mergeTags, read 2026-11-26).
    """
    default, explicit = default_tags(config), inputs.get("tags") or {}
    if "tags" not in _SHAPES[type_].facts or not (default or explicit):
        return inputs
    return {**inputs, "tags": UNKNOWN if unknown(explicit) else {**default, **explicit}}


CLOUD = Cloud(
    package="aws",
    kinds=constrained(_KINDS, _SHAPES),
    functions=FUNCTIONS,
    completed=tagged,
    # A provider of another region does not find the resources.
    replace_on=frozenset({"region"}),
    failures=FAILURES,
)
