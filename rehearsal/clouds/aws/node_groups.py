"""Managed node groups of EKS: computed outputs, image, size, and the requirements for nodes to join."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from rehearsal.clouds.aws import capacity, evictions, interfaces, tokens
from rehearsal.clouds.aws.machines import machine
from rehearsal.clouds.aws.outputs import TAGS, arn, kind, name_of, region_of, regional
from rehearsal.clouds.aws.references import (
    cluster_of,
    desired,
    groups_of,
    policies_of,
    scaling_group_of,
    strings,
    template_of,
    to,
    to_named,
    trusts,
    types_of,
    vpc_of,
    way_out,
)
from rehearsal.clouds.constraints import rule, rules_of
from rehearsal.engine.kind import Call, Json, Reference, value_at
from rehearsal.engine.state import View
from rehearsal.engine.values import digest, kept

NEWEST_IMAGE = "7-20260814"
"""Of the node images: newer than any that a program pins."""
TESTED = "hashicorp/terraform-provider-aws 012e0a32, TestAccEKSNodeGroup_"
invalid = partial(rule, accepted=f"{TESTED}basic", status="400 InvalidParameterException")
not_joined = partial(rule, "create", accepted=f"{TESTED}basic", status="failed NodeCreationFailure")
NEEDED = ("ec2", "ecr.api", "ecr.dkr", "sts", "s3")
"""Endpoints that a node in a closed network needs to join (EKS docs, private clusters; unverified, 2026-11)."""


def identify_node_group(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return CLUSTER:GROUP."""
    return f"{inputs.get('clusterName')}:{name_of(inputs, 'nodeGroupName')}"


def compute_node_group(call: Call) -> Json:
    """Return the Auto Scaling group and image, and create the access entry of the group's role."""
    cluster, _, name = call.id.partition(":")
    version = str(call.inputs.get("version") or call.live.get("version") or cluster_of(call).get("version") or "")
    template = template_of(call.state, call.inputs)
    if call.verb == "create":
        _create_entry(call, cluster)
    mark = f"{digest(call.id)}-{digest(call.id, 4)}-{digest(call.id, 12)}"
    both = {"id": template.get("id"), "name": template.get("name", "")}
    more: Json = {"launchTemplate": {**call.now["launchTemplate"], **both}} if template else {}
    newest = f"{version}.{NEWEST_IMAGE}"
    if _unpinned(call):
        more["releaseVersion"] = newest
    return {
        **regional(call),
        "nodeGroupName": name,
        "arn": arn(call, "eks", f"nodegroup/{cluster}/{name}/{mark}"),
        "resources": [{"autoscalingGroups": [{"name": f"eks-{name}-{mark}"}]}],
        **kept(call, {"version": version, "releaseVersion": newest}),
        **kept(call, {"amiType": "AL2023_x86_64_STANDARD", "capacityType": "ON_DEMAND"}),
        **more,
    }


def _unpinned(call: Call) -> bool:
    """Return whether a request has another template version and no other release: EKS installs the newest one.

    The provider sends the release only if it changes as well (hashicorp/terraform-provider-aws 012e0a32,
    internal/service/eks/node_group.go, resourceNodeGroupUpdate; EKS API, UpdateNodegroupVersion; read 2026-11).
    """
    template, release = "launchTemplate.version", "releaseVersion"
    changed = {path for path in (template, release) if value_at(call.live, path) != value_at(call.now, path)}
    return changed == {template}


def goes_with_node_group(call: Call, type_: str, live: Json) -> bool:
    """Return whether an object is deleted with the group: a tag, an action, or its role's access entry, if unused."""
    if type_ in (tokens.GROUP_TAG, tokens.SCHEDULE):
        return live.get("autoscalingGroupName") == scaling_group_of(call.live)
    if type_ != tokens.ACCESS_ENTRY or tokens.MADE_BY not in live or live.get("type") != "EC2_LINUX":
        return False
    cluster, role = call.live.get("clusterName"), call.live.get("nodeRoleArn")
    others = [group for id_, group in groups_of(call.state, str(cluster)) if id_ != call.id]
    mine = live.get("clusterName") == cluster and live.get("principalArn") == role
    return mine and all(group.get("nodeRoleArn") != role for group in others)


def _create_entry(call: Call, cluster: str) -> None:
    role = str(call.inputs.get("nodeRoleArn") or "")
    id_ = f"{cluster}:{role}"
    if call.state.get(tokens.ACCESS_ENTRY, id_) is None:
        entry: Json = {"clusterName": cluster, "principalArn": role, "type": "EC2_LINUX"}
        entry["region"] = region_of(call.inputs, call.config)
        call.state.put(tokens.ACCESS_ENTRY, id_, {**entry, tokens.MADE_BY: f"eks:{cluster}"})


@invalid("create", refused="eksctl-io/eksctl#3290, 2021-02-16")
def node_role_untrusted(call: Call) -> str | None:
    """EC2 may assume the nodes' role."""
    role = call.inputs.get("nodeRoleArn")
    if trusts(call.state, role, "ec2.amazonaws.com"):
        return None
    words = "Following required service principals [ec2.amazonaws.com] were not found in the trust relationships of"
    return f"{words} nodeRole {role}"


@invalid(
    "create", refused="terraform-aws-modules/terraform-aws-eks#1386, 2021-05-24", accepted=f"{TESTED}LaunchTemplate_id"
)
def given_in_template_too(call: Call) -> str | None:
    """With a launch template, some settings are the template's only."""
    template = template_of(call.state, call.inputs)
    if template.get("instanceType") and call.inputs.get("instanceTypes"):
        return "Cannot specify instance types in launch template and API request"
    if template and call.inputs.get("diskSize"):
        return "Disk size must be specified within the launch template."
    return None


@invalid("create", refused="aws-samples/aws-efa-eks#19, 2023-11-22", accepted=f"{TESTED}LaunchTemplate_id")
def not_for_template(call: Call) -> str | None:
    """Subnets and market are the node group's only. For a subnet, the user saw a message about several interfaces."""
    template = template_of(call.state, call.inputs)
    if value_at(template, "instanceMarketOptions.marketType") == "spot":
        return "Instance market options are not supported with the launch template."
    if any(one.get("subnetId") for one in template.get("networkInterfaces") or ()):
        return "Launch template must not specify a subnet in its network interfaces."
    return None


@invalid(refused="sassoftware/viya4-iac-aws#298, 2024-08-09")
def sizes_reversed(call: Call) -> str | None:
    """A group's desired size is within its limits."""
    scaling = (call.now or call.inputs).get("scalingConfig") or {}
    least, now, most = (int(scaling.get(name) or 0) for name in ("minSize", "desiredSize", "maxSize"))
    if least > now:
        return f"Minimum capacity {least} can't be greater than desired size {now}"
    if now > most:
        return f"desired capacity {now} can't be greater than max size {most}"
    return None


@not_joined(refused="terraform-aws-modules/terraform-aws-eks#3346, 2025-04-21", accepted=f"{TESTED}labels")
def label_reserved(call: Call) -> str | None:
    """Labels of Kubernetes and EKS are reserved: the kubelet of a node with one does not start."""
    reserved = r"(?!(node|kubelet)\.kubernetes\.io/)([\w-]+\.)*(kubernetes|k8s)\.io/|eks\.amazonaws\.com/"
    for name in call.inputs.get("labels") or {}:
        if re.match(reserved, str(name)):
            return f"unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [{name}]"
    return None


@invalid("create", refused="eksctl-io/eksctl#4973, 2022-03-18", accepted="eksctl-io/eksctl#8778, 2026-06-29")
def ami_of_other_machines(call: Call) -> str | None:
    """An image matches the processor architecture, and one for GPUs needs GPUs."""
    image = str(call.inputs.get("amiType") or "AL2023_x86_64_STANDARD")
    if image == "CUSTOM" or template_of(call.state, call.inputs).get("imageId"):
        return None
    for name in types_of(call.state, call.inputs):
        facts = machine(name)
        arm = "arm64" if "ARM_64" in image else "x86_64"
        if facts and (arm not in facts["arch"] or ("NVIDIA" in image and not facts.get("gpus"))):
            return f"[{name}] is not a valid instance type for requested amiType {image}"
    return None


@invalid(refused="eksctl-io/eksctl#7976, 2025-01-08", accepted=f"{TESTED}releaseVersion")
def release_of_other_version(call: Call) -> str | None:
    """The image's release belongs to the Kubernetes version of the group, which stays when the cluster is upgraded."""
    asked = call.inputs.get("releaseVersion")
    version = str(call.inputs.get("version") or call.live.get("version") or cluster_of(call).get("version") or "")
    bottlerocket = str(call.inputs.get("amiType")).startswith("BOTTLEROCKET")
    if not asked or not version or bottlerocket or re.fullmatch(rf"{re.escape(version)}\.\d+-20\d{{6}}", str(asked)):
        return None
    return f"Requested release version {asked} is not valid for kubernetes version {version}."


@invalid("create", refused="terraform-aws-modules/terraform-aws-eks#2425, 2023-01-27")
def nodes_without_policies(call: Call) -> str | None:
    """The nodes' role has the policies of a worker before its group is created, even one of 0 nodes (unverified)."""
    found = policies_of(call.state, call.inputs.get("nodeRoleArn"))
    worker = found & {"AmazonEKSWorkerNodePolicy", "AmazonEKSWorkerNodeMinimalPolicy"}
    images = any(name.startswith("AmazonEC2ContainerRegistry") for name in found)
    if worker and images:
        return None
    lacks = "AmazonEC2ContainerRegistryPullOnly" if worker else "AmazonEKSWorkerNodePolicy"
    words = "The provided role doesn't have the Amazon EKS Managed Policies associated with it. Please ensure the"
    return f"{words} following policies [{lacks}] are attached"


@not_joined(refused="terraform-aws-modules/terraform-aws-eks#3288, 2025-01-27")
def nodes_without_pod_network(call: Call) -> str | None:
    """Nodes become ready when vpc-cni runs on them, self-managed or as an add-on."""
    addon = call.state.get(tokens.ADDON, f"{call.inputs.get('clusterName')}:vpc-cni")
    self_managed = cluster_of(call).get("bootstrapSelfManagedAddons") is not False
    if not desired(call.inputs) or addon is not None or self_managed:
        return None
    return "Unhealthy nodes in the kubernetes cluster (container runtime network not ready: cni plugin not initialized)"


@not_joined(refused="terraform-aws-modules/terraform-aws-eks#2474, 2023-02-15")
def nodes_without_way_out(call: Call) -> str | None:
    """Nodes reach EC2, ECR and STS: by a default route, or by endpoints in their VPC."""
    for subnet in strings(call.inputs.get("subnetIds")) if desired(call.inputs) else ():
        vpc = vpc_of(call.state, subnet)
        endpoints = [live for _, _, live in call.state.all(tokens.ENDPOINT) if live.get("vpcId") == vpc]
        services = {str(live.get("serviceName")).split(".", 3)[-1] for live in endpoints}
        lacks = [service for service in NEEDED if service not in services]
        if lacks and not way_out(call.state, subnet):
            words = f"{subnet} has no route out, and its VPC no endpoint of {', '.join(lacks)}"
            return f"Instances failed to join the kubernetes cluster ({words})"
    return None


@invalid("create", refused="aws/amazon-vpc-cni-k8s#878, 2020-03-23", status="failed Ec2SubnetInvalidConfiguration")
def public_subnet_without_addresses(call: Call) -> str | None:
    """Nodes in a subnet with a route to an internet gateway get public addresses."""
    for subnet in strings(call.inputs.get("subnetIds")):
        public = str(way_out(call.state, subnet).get("gatewayId")).startswith("igw-")
        if public and not (call.state.get(tokens.SUBNET, subnet) or {}).get("mapPublicIpOnLaunch"):
            group = call.id.partition(":")[2]
            words = f"One or more Amazon EC2 Subnets of [{subnet}] for node group {group} does not automatically assign"
            return f"{words} public IP addresses to instances launched into it."
    return None


def drift_node_group(live: Json, _state: View) -> Json:
    """Add a node, as the autoscaler does. EKS does not update the image of a group automatically."""
    most = int(value_at(live, "scalingConfig.maxSize") or 0)
    return {"scalingConfig": {"desiredSize": min(desired(live) + 1, most)}}


NODE_GROUP = kind(
    tokens.NODE_GROUP,
    identify_node_group,
    compute_node_group,
    immutable="launchTemplate.id launchTemplate.name",
    maps=TAGS | {"labels"},
    references=(
        to("clusterName", tokens.CLUSTER, holds=True),
        to_named("nodeRoleArn", tokens.ROLE),
        to("subnetIds", tokens.SUBNET, holds=True),
        to("launchTemplate.id", tokens.LAUNCH_TEMPLATE),
        Reference(path="launchTemplate.name", types=(tokens.LAUNCH_TEMPLATE,), by="name", holds=False),
    ),
    rules=(*rules_of(globals()), *capacity.RULES, *interfaces.RULES, *evictions.RULES),
    drift=drift_node_group,
    cascade=goes_with_node_group,
    awaited=True,
    nodes=desired,
    recreates=evictions.RECREATES,
)
