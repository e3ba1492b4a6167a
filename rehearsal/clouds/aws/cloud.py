"""Simulated AWS: every kind, and errors for injected faults. It has no functions, because no program calls one.

Drift leaves out tags that AWS sets ("aws:…"): the provider hides them (its tags.IgnoreAWS, unverified, 2026-11).
"""

from __future__ import annotations

from collections.abc import Mapping

from rehearsal.clouds.aws import autoscaling, ec2, eks, eks_parts, fsx, iam, kms, node_groups, security_groups, vpc
from rehearsal.clouds.aws.machines import FACTS
from rehearsal.clouds.constraints import constrained
from rehearsal.clouds.facts import shapes
from rehearsal.engine.kind import Cloud, Kind, Refusal

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

_KINDS = [each for service in _SERVICES for each in vars(service).values() if isinstance(each, Kind)]

CLOUD = Cloud(
    package="aws",
    kinds=constrained(_KINDS, shapes(FACTS)),
    # A provider of another region does not find the resources.
    replace_on=frozenset({"region"}),
    failures=FAILURES,
)
