"""Simulated EKS cluster that the user has, for `cluster.existing`: add-ons, an administrator, a node group and
workloads of its own, such as a device plugin for that group alone. It has what a stack needs, and nothing of the stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infra.catalog.aws import NODE_GROUP_LABEL, zone_region
from infra.catalog.pins import CLUSTER_AUTOSCALER, EFA_PLUGIN, EKS_RELEASES, NVIDIA_PLUGIN
from infra.settings import EksSettings
from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.eks import ADMINISTRATOR, cluster_group
from rehearsal.clouds.aws.outputs import ACCOUNT, CALLER
from rehearsal.clouds.kubernetes import identity
from rehearsal.clouds.kubernetes.connection import OWNER, certificate
from rehearsal.engine.kind import Json
from rehearsal.users_network import VPC

_REGISTRY = EFA_PLUGIN.image.partition("/")[0]
_GROUP = "inference"
PLUGINS = ("nvidia-device-plugin", "efa-device-plugin")
_OWN = {"team": "platform"}


def objects(settings: EksSettings, name: str) -> Iterator[tuple[tuple[str, str], Json]]:
    """Yield the cluster and what is in it, as ((type, id), live)."""
    version, region = settings.cluster.version, zone_region(settings.location) or "us-east-1"
    common = {"region": region, "clusterName": name, "tags": _OWN}
    yield (
        (tokens.CLUSTER, name),
        {
            "name": name,
            "region": region,
            "arn": f"arn:aws:eks:{region}:{ACCOUNT}:cluster/{name}",
            "status": "ACTIVE",
            "version": version,
            "platformVersion": "eks.12",
            "endpoint": f"https://0123456789ABCDEF.gr7.{region}.eks.amazonaws.com",
            "certificateAuthority": {"data": certificate(name)},
            "accessConfig": {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": True},
            "kubernetesNetworkConfig": {"ipFamily": "ipv4", "serviceIpv4Cidr": "172.20.0.0/16"},
            "vpcConfig": {
                "clusterSecurityGroupId": cluster_group(name),
                "endpointPrivateAccess": True,
                "endpointPublicAccess": False,
                "subnetIds": [*settings.network.subnets],
                "vpcId": VPC,
            },
            "bootstrapSelfManagedAddons": False,
            "deletionProtection": True,
            "tags": _OWN,
        },
    )
    group, made = cluster_group(name), {tokens.MADE_BY: f"eks:{name}", "region": region}
    yield (tokens.SECURITY_GROUP, group), {"name": f"eks-cluster-sg-{name}", "vpcId": VPC, "ownerId": ACCOUNT, **made}
    both = {"securityGroupId": group, "ipProtocol": "-1", **made}
    yield (tokens.INGRESS, "sgr-0123456789abcdef0"), {**both, "referencedSecurityGroupId": group}
    yield (tokens.EGRESS, "sgr-0123456789abcdef1"), {**both, "cidrIpv4": "0.0.0.0/0"}
    for addon in ("vpc-cni", "kube-proxy", "coredns", "eks-pod-identity-agent"):
        yield (
            (tokens.ADDON, f"{name}:{addon}"),
            {**common, "addonName": addon, "addonVersion": EKS_RELEASES[version][addon]},
        )
    entry = {**common, "principalArn": CALLER, "type": "STANDARD"}
    yield (tokens.ACCESS_ENTRY, f"{name}:{CALLER}"), entry
    whole = {**common, "principalArn": CALLER, "policyArn": ADMINISTRATOR, "accessScope": {"type": "cluster"}}
    yield (tokens.ACCESS_POLICY, f"{name}#{CALLER}#{ADMINISTRATOR}"), whole
    role = f"arn:aws:iam::{ACCOUNT}:role/their-nodes"
    yield (tokens.ACCESS_ENTRY, f"{name}:{role}"), {**common, "principalArn": role, "type": "EC2_LINUX"}
    yield (
        (tokens.NODE_GROUP, f"{name}:{_GROUP}"),
        {
            **common,
            "nodeGroupName": _GROUP,
            "nodeRoleArn": role,
            "subnetIds": [*settings.network.subnets],
            "instanceTypes": [settings.machine.name],
            "amiType": "AL2023_x86_64_NVIDIA",
            "capacityType": "ON_DEMAND",
            "version": version,
            "releaseVersion": EKS_RELEASES[version]["node image"],
            "resources": [{"autoscalingGroups": [{"name": f"eks-{_GROUP}-0123"}]}],
            "scalingConfig": {"minSize": 1, "desiredSize": 1, "maxSize": 2},
        },
    )
    yield from _inside(settings, name)


def _inside(settings: EksSettings, cluster: str) -> Iterator[tuple[tuple[str, str], Json]]:
    """Yield objects in the cluster, among them what it provides."""
    pinned = EKS_RELEASES[settings.cluster.version]
    yield inside(cluster, identity.NAMESPACE, "web")
    yield inside(cluster, identity.DEPLOYMENT, "web", "web", spec=pods("nginx"))
    dns = pods(f"{_REGISTRY}/eks/coredns:{pinned['coredns']}")
    yield inside(cluster, identity.DEPLOYMENT, "coredns", "kube-system", spec=dns)
    daemons = {
        "aws-node": f"{_REGISTRY}/amazon-k8s-cni:{pinned['vpc-cni']}",
        "eks-pod-identity-agent": f"{_REGISTRY}/eks/eks-pod-identity-agent:v0.1.36",
        **({"fsx-csi-node": f"{_REGISTRY}/eks/aws-fsx-csi-driver:v1.9.0"} if settings.storage.bucket else {}),
        "nvidia-device-plugin": f"{NVIDIA_PLUGIN.image}:v{NVIDIA_PLUGIN.version}",
        "efa-device-plugin": f"{EFA_PLUGIN.image}:v0.5.22",
    }
    for name, image in daemons.items():
        # Those that the stack installs for its nodes are for the group of the user's alone.
        only = {"nodeSelector": {NODE_GROUP_LABEL: _GROUP}} if name in PLUGINS and settings.installs(name) else {}
        spec = pods(image, tolerations=[{"operator": "Exists"}], **only)
        yield inside(cluster, identity.DAEMON_SET, name, "kube-system", spec=spec)
    if not settings.installs("cluster-autoscaler"):
        spec = pods(f"{CLUSTER_AUTOSCALER.image}:{pinned['autoscaler']}")
        yield inside(cluster, identity.DEPLOYMENT, "cluster-autoscaler", "kube-system", spec=spec)


def pods(image: str, **spec: Any) -> Json:
    """Return the spec of a Deployment or DaemonSet with pods of one container."""
    labels = {"app": image.rpartition("/")[2].partition(":")[0]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": image}], **spec}}
    return {"selector": {"matchLabels": labels}, "template": template}


def inside(
    cluster: str, type_: str, name: str, namespace: str = "", labels: Json | None = None, **fields: Any
) -> tuple[tuple[str, str], Json]:
    """Return an object in a cluster, as ((type, id), live)."""
    live = {**identity.thing(type_, name, namespace, labels, **fields), OWNER: cluster}
    return (type_, identity.object_id(type_, live, {})), live
