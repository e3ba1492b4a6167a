"""Refusals of AWS: their shape by API, their sources, names in use, and injected faults.

Wording that AWS does not publish is marked "unverified".
"""

from __future__ import annotations

from collections.abc import Mapping

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.kind import Refusal


def refused(code: str, message: str, source: str) -> Refusal:
    """Return an API's refusal: HTTP 400 and the API's own code ("InvalidSubnet.Conflict")."""
    return Refusal(f"400 {code}", message, source)


def invalid(message: str, source: str) -> Refusal:
    """Return EKS's refusal of a parameter."""
    return refused("InvalidParameterException", message, source)


def missing(message: str, source: str) -> Refusal:
    """Return EKS's refusal because of a missing resource."""
    return Refusal("404 ResourceNotFoundException", message, source)


def unfit(message: str, source: str) -> Refusal:
    """Return the provider's own refusal, before it calls AWS."""
    return Refusal("provider", message, source)


def failed(code: str, message: str, source: str) -> Refusal:
    """Return the failure of a long operation that was accepted."""
    return Refusal(f"failed {code}", message, source)


UNVERIFIED = "unverified, 2026-11"

PROVIDER = "hashicorp/terraform-provider-aws"
PROVIDER_CLUSTER = f"{PROVIDER}: internal/service/eks/cluster.go, 00555dc5, read 2026-11"
PROVIDER_GROUP = f"{PROVIDER}: internal/service/eks/node_group.go, 012e0a32, read 2026-11"
PROVIDER_LUSTRE = f"{PROVIDER}: internal/service/fsx/lustre_file_system.go, 06ee53d9, read 2026-11"
PROVIDER_OTHERS = f"{PROVIDER}: ForceNew and validations {UNVERIFIED}"

EC2_ERRORS = f"EC2 docs, error codes; wording {UNVERIFIED}"
EC2_EFA = f"EC2 docs, Elastic Fabric Adapter: limitations, read 2026-08; wording {UNVERIFIED}"
EC2_LAYOUT = f"EC2 docs efa-acc-inst-types and eksctl-io/eksctl #8685, #8692, #7520, 2026-03; wording {UNVERIFIED}"
EC2_TYPES = f"EC2 DescribeInstanceTypes, read 2026-08; wording {UNVERIFIED}"
ASG_TEMPLATE = "eksctl-io/eksctl #1293 and #1713, read 2026-11"
"""An Auto Scaling group validates its launch template on creation, even without an instance."""
GROUPS_IN_TEMPLATE = "hashicorp/terraform-provider-aws #4570, read 2026-11"
SUBNET_IN_TEMPLATE = f"EKS docs launch-templates and eksctl-io/eksctl #4042, read 2026-11; wording {UNVERIFIED}"
TYPES_TWICE = "terraform-aws-modules/terraform-aws-eks #1386, read 2026-11"
MARKET_OPTIONS = "hashicorp/terraform-provider-aws #15118 and #18025, read 2026-11"
BLOCKS = f"EKS docs capacity-blocks-mng; hashicorp/terraform-provider-aws #40876, 2025-01-10; wording {UNVERIFIED}"
RESERVED_GROUP = f"eksctl-io/eksctl #7949 and #8220, terraform-aws-eks #3730, read 2026-08; wording {UNVERIFIED}"
EKS_API = f"EKS API reference; wording {UNVERIFIED}"
EKS_ADDONS = f"EKS docs, add-ons; wording {UNVERIFIED}"
COREDNS = "pulumi/pulumi-eks #1525, 2024-12-11; terraform-aws-modules/terraform-aws-eks #3001, 2024-04-09"
EKS_ACCESS = f"EKS docs, access entries; wording {UNVERIFIED}"
NO_JOIN = f"EKS docs, troubleshooting: NodeCreationFailure; wording {UNVERIFIED}"
AUTO_SCALING = f"Amazon EC2 Auto Scaling docs; wording {UNVERIFIED}"
PAST_START = "hashicorp/terraform-provider-aws #3033, 2018-01-17; pulumi/pulumi-aws #2473, 2023-04-20"
IAM_API = f"IAM API reference; wording {UNVERIFIED}"
KMS_API = f"KMS API reference; wording {UNVERIFIED}"
VPC_API = f"EC2 API reference, VPC; wording {UNVERIFIED}"
MAPPED_ADDRESS = "aws/aws-cdk #26716, 2023-08-11"
LUSTRE_PORT = "kubernetes-sigs/aws-fsx-csi-driver #32, 2019-03-08; aws/aws-parallelcluster #6181, 2024-03-29"
FSX_API = f"FSx API reference, CreateFileSystemLustreConfiguration; wording {UNVERIFIED}"
FSX_EFA = f"FSx for Lustre docs, EFA-enabled file systems, read 2026-08; wording {UNVERIFIED}"
S3_API = f"S3 docs, bucket names; wording {UNVERIFIED}"
QUOTAS = f"Service Quotas; wording {UNVERIFIED}"


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
        f"CloudWatch Logs API; wording {UNVERIFIED}",
    ),
    tokens.BUCKET: (
        "BucketAlreadyOwnedByYou",
        "Your previous request to create the named bucket succeeded and you already own it: {id}",
        S3_API,
    ),
    tokens.REPOSITORY: (
        "RepositoryAlreadyExistsException",
        "The repository with name '{id}' already exists in the registry",
        f"ECR API; wording {UNVERIFIED}",
    ),
}


def taken(type_: str, id_: str) -> Refusal:
    """Return the API's refusal of a name that is in use."""
    code, words, source = _TAKEN.get(type_, ("AlreadyExists", "{id} already exists", f"AWS APIs; wording {UNVERIFIED}"))
    before, _, after = id_.partition(":")
    name = id_.rpartition("/")[2]
    return refused(code, words.format(id=id_, before=before, after=after, name=name), source)


FAILURES: Mapping[str, Refusal] = {
    "stockout": refused(
        "InsufficientInstanceCapacity",
        "Could not launch On-Demand Instances. InsufficientInstanceCapacity - We currently do not have sufficient "
        "capacity in the Availability Zone you requested. Our system will be working on provisioning additional "
        "capacity. Launching EC2 instance failed.",
        "modelplaneai/modelplane PR #113, 2026-06-08; wording unverified, 2026-11",
    ),
    "quota": refused(
        "VcpuLimitExceeded",
        "You have requested more vCPU capacity than your current vCPU limit allows for the instance bucket that the "
        "specified instance type belongs to.",
        EC2_ERRORS,
    ),
    "429": Refusal("429 ThrottlingException", "Rate exceeded", f"AWS APIs, throttling; wording {UNVERIFIED}"),
    "500": Refusal("500 InternalError", "An internal error has occurred", EC2_ERRORS),
    "timeout": Refusal(
        "timeout",
        "timeout while waiting for state to become 'ACTIVE' (last state: 'CREATING', timeout: 30m0s)",
        "hashicorp/terraform-plugin-sdk: helper/retry; as in pulumi/pulumi-eks #1525, 2024-12-11",
    ),
}
"""AWS errors for injected faults."""
