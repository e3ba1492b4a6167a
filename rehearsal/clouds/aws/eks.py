"""EKS clusters, and the resources that EKS creates and deletes with them."""

from __future__ import annotations

import re
from functools import partial

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.outputs import ACCOUNT, CALLER, arn, hexadecimal, identify_by_name, kind, region_of, regional
from rehearsal.clouds.aws.references import strings, to, to_named, trusts, vpc_of, zone_of
from rehearsal.clouds.constraints import rule, rules_of
from rehearsal.clouds.kubernetes.connection import certificate, is_in_cluster
from rehearsal.engine.kind import Call, Json, value_at
from rehearsal.engine.values import blocks, digest, kept

DEFAULT_VERSION = "1.35"
"""Chosen by the simulation, 2026-11."""
MINORS = range(30, 37)
"""Minor versions of Kubernetes with node images (EKS AMI releases v20260714 and v20260728)."""
FULL_ZONES = ("us-east-1e", "us-west-1b", "ca-central-1d")
"""Zones without control planes in most accounts: use1-az3, usw1-az2, cac1-az3 (EKS docs; unverified, 2026-11)."""
TESTED = "hashicorp/terraform-provider-aws 00555dc5, TestAccEKSCluster_"
invalid = partial(rule, accepted=f"{TESTED}basic", status="400 InvalidParameterException")
ADMINISTRATOR = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"


def cluster_group(name: str) -> str:
    """Return the id of the security group that EKS creates for a cluster."""
    return hexadecimal("sg", f"eks {name}")


def minor(version: object) -> int:
    """Return the minor version of Kubernetes, 34 of "1.34"; 0 of other texts."""
    match = re.fullmatch(r"1\.(\d+)", str(version))
    return int(match[1]) if match else 0


def compute_cluster(call: Call) -> Json:
    """Return endpoint, certificate and OIDC issuer, and create the resources that EKS adds to the cluster."""
    region = region_of(call.inputs, call.config)
    subnets = strings(value_at(call.inputs, "vpcConfig.subnetIds"))
    vpc = vpc_of(call.state, subnets[0]) if subnets else ""
    if call.verb == "create":
        _create_own_resources(call, vpc)
    mark = digest(call.id, 32).upper()
    public = value_at(call.inputs, "vpcConfig.endpointPublicAccess") is not False
    network = {
        "clusterSecurityGroupId": cluster_group(call.id),
        "vpcId": vpc,
        "endpointPrivateAccess": False,
        "endpointPublicAccess": True,
        "publicAccessCidrs": ["0.0.0.0/0"] if public else [],
    }
    services = {"ipFamily": "ipv4", "serviceIpv4Cidr": "172.20.0.0/16"}
    access = {"authenticationMode": "CONFIG_MAP", "bootstrapClusterCreatorAdminPermissions": True}
    nested = {"vpcConfig": network, "accessConfig": access, "kubernetesNetworkConfig": services}
    return {
        **regional(call),
        "name": call.id,
        "arn": arn(call, "eks", f"cluster/{call.id}"),
        "endpoint": f"https://{mark}.gr7.{region}.eks.amazonaws.com",
        "certificateAuthority": {"data": certificate(call.id)},
        "identities": [{"oidcs": [{"issuer": f"https://oidc.eks.{region}.amazonaws.com/id/{mark}"}]}],
        **blocks(call, {**nested, "upgradePolicy": {"supportType": "EXTENDED"}}),
        **kept(call, {"version": DEFAULT_VERSION, "platformVersion": "eks.12", "deletionProtection": False}),
        **kept(call, {"bootstrapSelfManagedAddons": True, "enabledClusterLogTypes": []}),
    }


def goes_with_cluster(call: Call, type_: str, live: Json) -> bool:
    """Return whether an object is deleted with the cluster: its objects and EKS additions, but not node groups."""
    if type_ in (tokens.ADDON, tokens.ACCESS_ENTRY, tokens.ACCESS_POLICY, tokens.POD_IDENTITY):
        return live.get("clusterName") == call.id
    if type_ in (tokens.INGRESS, tokens.EGRESS):
        return live.get("securityGroupId") == cluster_group(call.id)
    if live.get(tokens.MADE_BY) == f"eks:{call.id}":
        # The log group stays, with its cost, until it is deleted.
        return type_ != tokens.LOG_GROUP
    return is_in_cluster(type_, live, call.id)


def _create_own_resources(call: Call, vpc: str) -> None:
    """Create EKS's own resources: a security group, a log group if there is none, an entry for the creator."""
    made = {tokens.MADE_BY: f"eks:{call.id}", "region": region_of(call.inputs, call.config)}
    group = {"name": f"eks-cluster-sg-{call.id}-{digest(call.id, 9)}", "vpcId": vpc, "ownerId": ACCOUNT, **made}
    id_ = cluster_group(call.id)
    both = {"securityGroupId": id_, "ipProtocol": "-1", **made}
    call.state.put(tokens.SECURITY_GROUP, id_, group)
    call.state.put(tokens.INGRESS, hexadecimal("sgr", f"{id_} in"), {**both, "referencedSecurityGroupId": id_})
    call.state.put(tokens.EGRESS, hexadecimal("sgr", f"{id_} out"), {**both, "cidrIpv4": "0.0.0.0/0"})
    if minor(call.inputs.get("version") or DEFAULT_VERSION) >= 33:
        # For EFA, on clusters from 1.33 on (eksctl-io/eksctl#8509, 2025-09-18).
        call.state.put(tokens.EGRESS, hexadecimal("sgr", f"{id_} efa"), {**both, "referencedSecurityGroupId": id_})
    logs = f"/aws/eks/{call.id}/cluster"
    if call.inputs.get("enabledClusterLogTypes") and call.state.get(tokens.LOG_GROUP, logs) is None:
        call.state.put(tokens.LOG_GROUP, logs, {"name": logs, **made})
    access = call.inputs.get("accessConfig") or {}
    by_api = str(access.get("authenticationMode") or "CONFIG_MAP") != "CONFIG_MAP"
    if by_api and access.get("bootstrapClusterCreatorAdminPermissions") is not False:
        entry = {"clusterName": call.id, "principalArn": CALLER, "type": "STANDARD", **made}
        call.state.put(tokens.ACCESS_ENTRY, f"{call.id}:{CALLER}", entry)
        whole = {**entry, "policyArn": ADMINISTRATOR, "accessScope": {"type": "cluster"}}
        call.state.put(tokens.ACCESS_POLICY, f"{call.id}#{CALLER}#{ADMINISTRATOR}", whole)


@invalid("create", refused="terraform-aws-modules/terraform-aws-eks#2406, 2023-01-19")
def cluster_role_untrusted(call: Call) -> str | None:
    """EKS may assume the control plane's role."""
    if trusts(call.state, call.inputs.get("roleArn"), "eks.amazonaws.com"):
        return None
    return "Role could not be assumed because the trusted entity is not correct"


@invalid(refused="thingsboard/thingsboard-ce-k8s#21, 2020-12-09")
def subnets_in_one_zone(call: Call) -> str | None:
    """The control plane's subnets are in at least two zones."""
    subnets = strings(value_at(call.inputs, "vpcConfig.subnetIds"))
    if len({zone_of(call.state, subnet) for subnet in subnets}) > 1:
        return None
    return "Subnets specified must be in at least two different AZs"


@invalid(
    "update",
    refused="aws/containers-roadmap#2258, 2024-01-05",
    accepted="aws-controllers-k8s/eks-controller#119, 2024-07-01",
)
def subnets_in_other_zones(call: Call) -> str | None:
    """A cluster keeps the zones that it was created with (EKS docs, network-reqs, read 2026-11-26). The message is not
    published."""
    before, now = (
        {zone_of(call.state, subnet) for subnet in strings(value_at(each, "vpcConfig.subnetIds"))}
        for each in (call.live, call.inputs)
    )
    if before == now:
        return None
    return f"Subnets must be in the zones of the cluster, {', '.join(map(str, sorted(before, key=str)))}"


@invalid("create", refused="eksctl-io/eksctl#817, 2019-05-23", status="400 UnsupportedAvailabilityZoneException")
def zone_without_control_planes(call: Call) -> str | None:
    """Some zones do not support control planes."""
    zones = {zone_of(call.state, subnet) for subnet in strings(value_at(call.inputs, "vpcConfig.subnetIds"))}
    for zone in sorted(zones.intersection(FULL_ZONES)):
        words = f"Cannot create cluster '{call.id}' because {zone}, the targeted availability zone, does not currently"
        return f"{words} have sufficient capacity to support the cluster."
    return None


@invalid(refused="rancher/rancher#27777, 2020-09-23")
def version_unknown(call: Call) -> str | None:
    """EKS has node images for the Kubernetes version."""
    version = call.inputs.get("version")
    return None if version is None or minor(version) in MINORS else f"unsupported Kubernetes version {version}"


@invalid(
    "update",
    refused="terraform-aws-modules/terraform-aws-eks#2607, 2023-05-10",
    accepted=f"{TESTED}version; EKS docs, rollback-cluster, read 2026-11",
)
def version_skipped(call: Call) -> str | None:
    """A cluster is upgraded by one minor version. EKS also takes one back within seven days."""
    now, asked = call.live.get("version"), call.inputs.get("version") or call.live.get("version")
    if abs(minor(asked) - minor(now)) <= 1:
        return None
    return f"Unsupported Kubernetes minor version update from {now} to {asked}"


@rule(
    "delete",
    refused="EKS docs, deletion-protection, read 2026-11",
    accepted="eksctl-io/eksctl#8581, 2025-11-10",
    status="400 InvalidRequestException",
)
def cluster_protected(call: Call) -> str | None:
    """A protected cluster is not deleted. The docs state the exception; its message is not published."""
    if not call.live.get("deletionProtection"):
        return None
    return f"Cluster {call.id} cannot be deleted because deletion protection is enabled."


CLUSTER = kind(
    tokens.CLUSTER,
    identify_by_name,
    compute_cluster,
    # Removing encryptionConfig also replaces; adding it later does not.
    references=(
        to_named("roleArn", tokens.ROLE),
        to("vpcConfig.subnetIds", tokens.SUBNET, holds=True),
        to("vpcConfig.securityGroupIds", tokens.SECURITY_GROUP, holds=True),
        to_named("encryptionConfig.provider.keyArn", tokens.KEY),
    ),
    rules=rules_of(globals()),
    # EKS upgrades the Kubernetes version only at its end of support.
    drift=lambda _live, _state: {"platformVersion": "eks.14"},
    cascade=goes_with_cluster,
    awaited=True,
)
