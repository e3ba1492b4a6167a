"""Small valid AWS environment for tests: a VPC with egress, a cluster, a CPU node group, a GPU launch template."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from infra.catalog.machines import EKS_CATALOG
from infra.eks.interfaces import interfaces
from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.cloud import CLOUD
from rehearsal.clouds.aws.cluster import cluster_group
from rehearsal.clouds.aws.outputs import ACCOUNT
from rehearsal.clouds.kind import Call, Json, Kind, Verb
from rehearsal.clouds.state import View
from rehearsal.clouds.values import applied
from tests.rehearsal import supporting as shared

REGION, ZONE, SECOND = "us-east-2", "us-east-2a", "us-east-2b"
CONFIG: Mapping[str, Any] = {"region": REGION, "defaultTags": '{"tags": {"team": "ml"}}'}


def trust(service: str, *actions: str) -> str:
    """Return a policy that lets a service assume a role."""
    allowed = list(actions) or ["sts:AssumeRole"]
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": allowed}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


RIGHTS = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]})
POD_TRUST = trust("pods.eks.amazonaws.com", "sts:AssumeRole", "sts:TagSession")


def role_arn(name: str) -> str:
    """Return the ARN of a role in this account."""
    return f"arn:aws:iam::{ACCOUNT}:role/{name}"


def layout(machine: str, groups: list[str]) -> list[Json]:
    """Return the interfaces of a machine, as the program requests them."""
    return [
        {
            "networkCardIndex": one.card,
            "deviceIndex": one.device,
            "interfaceType": one.kind,
            "securityGroups": groups,
            "deleteOnTermination": "true",
        }
        for one in interfaces(EKS_CATALOG[machine])
    ]


def kind(type_: str) -> Kind:
    """Return a kind of this cloud."""
    return CLOUD.kinds[type_]


def identify(type_: str, inputs: Json) -> str:
    """Return the id of a request's object."""
    return kind(type_).identify(inputs, CONFIG)


VPC: Json = {"cidrBlock": "10.0.0.0/16", "enableDnsSupport": True, "enableDnsHostnames": True, "tags": {"Name": "main"}}
VPC_ID = identify(tokens.VPC, VPC)


def subnet(cidr: str, zone: str, name: str) -> Json:
    """Return the inputs of a subnet of the VPC."""
    return {"vpcId": VPC_ID, "cidrBlock": cidr, "availabilityZone": zone, "tags": {"Name": name}}


PRIVATE, OTHER = subnet("10.0.0.0/20", ZONE, "private"), subnet("10.0.16.0/20", SECOND, "other")
PUBLIC = subnet("10.0.32.0/24", ZONE, "public")
PRIVATE_ID, OTHER_ID, PUBLIC_ID = (identify(tokens.SUBNET, one) for one in (PRIVATE, OTHER, PUBLIC))
GATEWAY: Json = {"vpcId": VPC_ID, "tags": {"Name": "out"}}
GATEWAY_ID = identify(tokens.INTERNET_GATEWAY, GATEWAY)
ADDRESS: Json = {"domain": "vpc", "tags": {"Name": "nat"}}
ADDRESS_ID = identify(tokens.EIP, ADDRESS)
NAT: Json = {"subnetId": PUBLIC_ID, "allocationId": ADDRESS_ID, "tags": {"Name": "nat"}}
NAT_ID = identify(tokens.NAT, NAT)
TABLE: Json = {"vpcId": VPC_ID, "tags": {"Name": "private"}}
TABLE_ID = identify(tokens.ROUTE_TABLE, TABLE)
WAY: Json = {"routeTableId": TABLE_ID, "destinationCidrBlock": "0.0.0.0/0", "natGatewayId": NAT_ID}
LINKS: list[Json] = [{"subnetId": one, "routeTableId": TABLE_ID} for one in (PRIVATE_ID, OTHER_ID)]
EFA_GROUP: Json = {"name": "ray-efa", "vpcId": VPC_ID, "description": "EFA between the nodes"}
EFA_ID = identify(tokens.SECURITY_GROUP, EFA_GROUP)
ITSELF: Json = {"securityGroupId": EFA_ID, "referencedSecurityGroupId": EFA_ID, "ipProtocol": "-1"}
KEY: Json = {"description": "Secrets", "enableKeyRotation": True, "deletionWindowInDays": 30}
KEY_ID = identify(tokens.KEY, KEY)
KEY_ARN = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{KEY_ID}"
CLUSTER_GROUP = cluster_group("ray")
TEMPLATE: Json = {
    "name": "ray-gpu",
    "networkInterfaces": layout("p5en.48xlarge", [CLUSTER_GROUP, EFA_ID]),
    "userData": base64.b64encode(b"MIME-Version: 1.0").decode(),
    "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": 100, "volumeType": "gp3"}}],
    "metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 1},
    "placement": {"groupName": "ray-gpu"},
    "updateDefaultVersion": True,
}
TEMPLATE_ID = identify(tokens.LAUNCH_TEMPLATE, TEMPLATE)
CLUSTER: Json = {
    "name": "fresh",
    "roleArn": role_arn("control"),
    "version": "1.35",
    "vpcConfig": {"subnetIds": [PRIVATE_ID, OTHER_ID], "endpointPrivateAccess": True, "endpointPublicAccess": False},
    "accessConfig": {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": True},
    "bootstrapSelfManagedAddons": False,
    "encryptionConfig": {"provider": {"keyArn": KEY_ARN}, "resources": ["secrets"]},
    "enabledClusterLogTypes": ["api", "audit"],
    "upgradePolicy": {"supportType": "STANDARD"},
    "deletionProtection": False,
    "tags": {"rdma-ray-stack": "ray"},
}
SYSTEM_GROUP: Json = {
    "clusterName": "ray",
    "nodeGroupName": "system",
    "nodeRoleArn": role_arn("nodes"),
    "subnetIds": [PRIVATE_ID],
    "amiType": "AL2023_x86_64_STANDARD",
    "instanceTypes": ["m6i.2xlarge"],
    "capacityType": "ON_DEMAND",
    "scalingConfig": {"minSize": 1, "desiredSize": 1, "maxSize": 3},
}
GPU_GROUP: Json = {
    **SYSTEM_GROUP,
    "nodeGroupName": "fresh",
    "amiType": "AL2023_x86_64_NVIDIA",
    "instanceTypes": ["p5en.48xlarge"],
    "releaseVersion": "1.35.6-20260728",
    "launchTemplate": {"id": TEMPLATE_ID, "version": "1"},
    "scalingConfig": {"minSize": 0, "desiredSize": 2, "maxSize": 4},
    "updateConfig": {"maxUnavailable": 1},
    "labels": {"nvidia.com/gpu.present": "true"},
    "taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}],
}
FILES: Json = {
    "subnetIds": PRIVATE_ID,
    "securityGroupIds": [EFA_ID],
    "deploymentType": "PERSISTENT_2",
    "storageType": "SSD",
    "storageCapacity": 2400,
    "perUnitStorageThroughput": 1000,
    "fileSystemTypeVersion": "2.15",
    "efaEnabled": True,
    "metadataConfiguration": {"mode": "AUTOMATIC"},
}
FILES_ID = identify(tokens.FILE_SYSTEM, FILES)
ENDPOINT: Json = {
    "vpcId": VPC_ID,
    "serviceName": f"com.amazonaws.{REGION}.sts",
    "vpcEndpointType": "Interface",
    "subnetIds": [PRIVATE_ID, OTHER_ID],
    "securityGroupIds": [EFA_ID],
    "privateDnsEnabled": True,
}

RIGHT: Mapping[str, Json] = {
    tokens.VPC: {"cidrBlock": "10.1.0.0/16"},
    tokens.SUBNET: subnet("10.0.48.0/20", ZONE, "fresh"),
    tokens.INTERNET_GATEWAY: {"tags": {"Name": "spare"}},
    tokens.EIP: {"domain": "vpc", "tags": {"Name": "fresh"}},
    tokens.NAT: {"subnetId": PUBLIC_ID, "allocationId": identify(tokens.EIP, {"domain": "vpc"})},
    tokens.ROUTE_TABLE: {"vpcId": VPC_ID, "tags": {"Name": "fresh"}},
    tokens.ROUTE: {"routeTableId": TABLE_ID, "destinationCidrBlock": "192.0.2.0/24", "natGatewayId": NAT_ID},
    tokens.ASSOCIATION: {"subnetId": PUBLIC_ID, "routeTableId": TABLE_ID},
    tokens.SECURITY_GROUP: {"name": "fresh", "vpcId": VPC_ID, "description": "Fresh"},
    tokens.INGRESS: {
        "securityGroupId": EFA_ID,
        "ipProtocol": "tcp",
        "fromPort": 1,
        "toPort": 2,
        "cidrIpv4": "10.0.0.0/8",
    },
    tokens.EGRESS: {"securityGroupId": EFA_ID, "ipProtocol": "-1", "cidrIpv4": "0.0.0.0/0"},
    tokens.ENDPOINT: ENDPOINT,
    tokens.PLACEMENT_GROUP: {"name": "fresh", "strategy": "cluster"},
    tokens.LAUNCH_TEMPLATE: {**TEMPLATE, "name": "fresh"},
    tokens.RESERVATION: {
        "availabilityZone": ZONE,
        "instanceCount": 2,
        "instancePlatform": "Linux/UNIX",
        "instanceType": "p5en.48xlarge",
    },
    tokens.GROUP_TAG: {"autoscalingGroupName": "", "tag": {"key": "a", "value": "b", "propagateAtLaunch": False}},
    tokens.SCHEDULE: {
        "autoscalingGroupName": "",
        "scheduledActionName": "drain",
        "recurrence": "45 10 3 12 *",
        "minSize": 0,
        "maxSize": 0,
        "desiredCapacity": 0,
    },
    tokens.CLUSTER: CLUSTER,
    tokens.NODE_GROUP: GPU_GROUP,
    tokens.ADDON: {"clusterName": "ray", "addonName": "coredns", "resolveConflictsOnCreate": "OVERWRITE"},
    tokens.ACCESS_ENTRY: {"clusterName": "ray", "principalArn": role_arn("people")},
    tokens.ACCESS_POLICY: {
        "clusterName": "ray",
        "principalArn": role_arn("nodes"),
        "policyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy",
        "accessScope": {"type": "cluster"},
    },
    tokens.POD_IDENTITY: {
        "clusterName": "ray",
        "namespace": "ray",
        "serviceAccount": "ray",
        "roleArn": role_arn("pods"),
    },
    tokens.ROLE: {"name": "fresh", "assumeRolePolicy": trust("ec2.amazonaws.com")},
    tokens.ROLE_POLICY: {"name": "more", "role": "nodes", "policy": RIGHTS},
    tokens.ATTACHMENT: {"role": "pods", "policyArn": "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"},
    tokens.POLICY: {"name": "fresh", "policy": RIGHTS},
    tokens.INSTANCE_PROFILE: {"name": "fresh", "role": "nodes"},
    tokens.OIDC_PROVIDER: {
        "url": "https://oidc.eks.us-east-2.amazonaws.com/id/A",
        "clientIdLists": ["sts.amazonaws.com"],
    },
    tokens.KEY: {"description": "Fresh"},
    tokens.ALIAS: {"name": "alias/fresh", "targetKeyId": KEY_ID},
    tokens.LOG_GROUP: {"name": "/aws/eks/fresh/cluster", "retentionInDays": 30},
    tokens.FILE_SYSTEM: {**FILES, "storageCapacity": 4800},
    tokens.DATA_REPOSITORY: {
        "fileSystemId": FILES_ID,
        "fileSystemPath": "/fresh",
        "dataRepositoryPath": "s3://acme-data/fresh",
        "s3": {"autoImportPolicy": {"events": ["NEW"]}},
    },
    tokens.BUCKET: {"bucket": "acme-fresh"},
    **{
        type_: {"bucket": "acme-data"}
        for type_ in (
            tokens.BUCKET_ACCESS,
            tokens.BUCKET_VERSIONING,
            tokens.BUCKET_ENCRYPTION,
            tokens.BUCKET_POLICY,
            tokens.BUCKET_OWNERSHIP,
        )
    },
    tokens.REPOSITORY: {"name": "ray-efa"},
}
"""A valid request of each kind; `right` adds the name of the tagged group."""


def right(state: View, type_: str) -> Json:
    """Return the valid request of a kind, with values that depend on the supporting resources."""
    inputs = copy.deepcopy(RIGHT[type_])
    if type_ in (tokens.GROUP_TAG, tokens.SCHEDULE):
        group = state.get(tokens.NODE_GROUP, "ray:system") or {}
        inputs["autoscalingGroupName"] = group["resources"][0]["autoscalingGroups"][0]["name"]
    return inputs


def call(state: View, type_: str, inputs: Json, verb: Verb = "create", id_: str | None = None) -> Call:
    """Return a request as the provider sends it."""
    used = id_ or identify(type_, inputs)
    live = (state.get(type_, used) or {}) if verb != "create" else {}
    now = inputs if verb == "create" else applied(live, live, inputs)
    return Call(verb=verb, type=type_, id=used, inputs=inputs, live=live, config=CONFIG, state=state, now=now)


changed = shared.changed
refusals = partial(shared.refusals, CLOUD)
make = partial(shared.make, CLOUD, call)


def landscape(state: View) -> None:
    """Create the supporting resources of all valid requests."""
    add = partial(make, state)
    add(tokens.VPC, VPC)
    for one in (PRIVATE, OTHER, PUBLIC):
        add(tokens.SUBNET, one)
    add(tokens.INTERNET_GATEWAY, GATEWAY)
    add(tokens.EIP, ADDRESS)
    add(tokens.EIP, {"domain": "vpc"})
    add(tokens.NAT, NAT)
    add(tokens.ROUTE_TABLE, TABLE)
    add(tokens.ROUTE, WAY)
    for link in LINKS:
        add(tokens.ASSOCIATION, link)
    add(tokens.SECURITY_GROUP, EFA_GROUP)
    add(tokens.INGRESS, ITSELF)
    add(tokens.EGRESS, ITSELF)
    for name, policy in (
        ("control", trust("eks.amazonaws.com")),
        ("nodes", trust("ec2.amazonaws.com")),
        ("pods", POD_TRUST),
        ("people", trust("ec2.amazonaws.com")),
    ):
        add(tokens.ROLE, {"name": name, "assumeRolePolicy": policy})
    for role, policy in (
        ("control", "AmazonEKSClusterPolicy"),
        ("nodes", "AmazonEKSWorkerNodePolicy"),
        ("nodes", "AmazonEC2ContainerRegistryPullOnly"),
    ):
        add(tokens.ATTACHMENT, {"role": role, "policyArn": f"arn:aws:iam::aws:policy/{policy}"})
    add(tokens.KEY, KEY)
    add(tokens.LOG_GROUP, {"name": "/aws/eks/ray/cluster"})
    add(tokens.CLUSTER, {**CLUSTER, "name": "ray"})
    for addon in ("vpc-cni", "kube-proxy"):
        add(tokens.ADDON, {"clusterName": "ray", "addonName": addon})
    add(tokens.NODE_GROUP, SYSTEM_GROUP)
    add(tokens.PLACEMENT_GROUP, {"name": "ray-gpu", "strategy": "cluster"})
    add(tokens.LAUNCH_TEMPLATE, TEMPLATE)
    add(tokens.BUCKET, {"bucket": "acme-data"})
    add(tokens.FILE_SYSTEM, FILES)
