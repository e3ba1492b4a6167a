"""What this cloud says of names that are in use, and of faults on order."""

from __future__ import annotations

from collections.abc import Mapping

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.judging import refused
from rehearsal.clouds.aws.sources import EC2_ERRORS, EKS_API, IAM_API, KMS_API, MEMORY, S3_API
from rehearsal.clouds.kind import Refusal

_TAKEN: Mapping[str, tuple[str, str, str]] = {
    tokens.ROUTE: ("RouteAlreadyExists", "The route identified by {id} already exists.", EC2_ERRORS),
    tokens.ASSOCIATION: (
        "Resource.AlreadyAssociated",
        "the specified association conflicts with an existing association: {id}",
        EC2_ERRORS,
    ),
    tokens.PLACEMENT_GROUP: (
        "InvalidPlacementGroup.Duplicate",
        "The Placement Group '{id}' already exists.",
        EC2_ERRORS,
    ),
    tokens.CLUSTER: ("ResourceInUseException", "Cluster already exists with name: {id}", EKS_API),
    tokens.NODE_GROUP: (
        "ResourceInUseException",
        "NodeGroup already exists with name {after} and cluster name {before}",
        EKS_API,
    ),
    tokens.ADDON: ("ResourceInUseException", "Addon already exists.", EKS_API),
    tokens.ACCESS_ENTRY: (
        "ResourceInUseException",
        "The specified access entry resource is already in use on this cluster.",
        EKS_API,
    ),
    tokens.ROLE: ("EntityAlreadyExists", "Role with name {id} already exists.", IAM_API),
    tokens.POLICY: (
        "EntityAlreadyExists",
        "A policy called {name} already exists. Duplicate names are not allowed.",
        IAM_API,
    ),
    tokens.INSTANCE_PROFILE: ("EntityAlreadyExists", "Instance Profile {id} already exists.", IAM_API),
    tokens.OIDC_PROVIDER: ("EntityAlreadyExists", "Provider with url {name} already exists.", IAM_API),
    tokens.ALIAS: ("AlreadyExistsException", "An alias with the name {id} already exists", KMS_API),
    tokens.LOG_GROUP: (
        "ResourceAlreadyExistsException",
        "The specified log group already exists",
        f"CloudWatch Logs API; wording {MEMORY}",
    ),
    tokens.BUCKET: (
        "BucketAlreadyOwnedByYou",
        "Your previous request to create the named bucket succeeded and you already own it: {id}",
        S3_API,
    ),
    tokens.REPOSITORY: (
        "RepositoryAlreadyExistsException",
        "The repository with name '{id}' already exists in the registry",
        f"ECR API; wording {MEMORY}",
    ),
}


def taken(type_: str, id_: str) -> Refusal:
    """The words of each API for a name that is in use."""
    code, words, source = _TAKEN.get(type_, ("AlreadyExists", "{id} already exists", f"AWS APIs; wording {MEMORY}"))
    before, _, after = id_.partition(":")
    name = id_.rpartition("/")[2]
    return refused(code, words.format(id=id_, before=before, after=after, name=name), source)


TROUBLE: Mapping[str, Refusal] = {
    "stockout": refused(
        "InsufficientInstanceCapacity",
        "Could not launch On-Demand Instances. InsufficientInstanceCapacity - We currently do not have sufficient "
        "capacity in the Availability Zone you requested. Our system will be working on provisioning additional "
        "capacity. Launching EC2 instance failed.",
        "modelplaneai/modelplane PR #113, 2026-06-08; wording from memory, 2026-11",
    ),
    "quota": refused(
        "VcpuLimitExceeded",
        "You have requested more vCPU capacity than your current vCPU limit allows for the instance bucket that the "
        "specified instance type belongs to.",
        EC2_ERRORS,
    ),
    "429": Refusal("429 ThrottlingException", "Rate exceeded", f"AWS APIs, throttling; wording {MEMORY}"),
    "500": Refusal("500 InternalError", "An internal error has occurred", EC2_ERRORS),
    "timeout": Refusal(
        "timeout",
        "timeout while waiting for state to become 'ACTIVE' (last state: 'CREATING', timeout: 30m0s)",
        "hashicorp/terraform-plugin-sdk: helper/retry; as in pulumi/pulumi-eks #1525, 2024-12-11",
    ),
}
"""What AWS says of each fault."""
