"""EKS clusters: ids, computed outputs, replacement, and the resources that EKS creates and deletes with them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.offerings import DEFAULT_VERSION
from rehearsal.clouds.aws.outputs import ACCOUNT, CALLER, SINCE, arn, hexadecimal, region_of, regional
from rehearsal.clouds.aws.references import strings
from rehearsal.clouds.kind import Call, Json, value_at
from rehearsal.clouds.values import blocks, digest, kept

# ForceNew in `refusals.PROVIDER_CLUSTER`. Removing encryptionConfig also replaces; adding it later does not.
CLUSTER_REPLACES = frozenset(
    {
        *("region", "name", "roleArn", "bootstrapSelfManagedAddons", "outpostConfig", "remoteNetworkConfig"),
        "accessConfig.bootstrapClusterCreatorAdminPermissions",
        "kubernetesNetworkConfig.ipFamily",
        "kubernetesNetworkConfig.serviceIpv4Cidr",
    }
)


def identify_cluster(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return the cluster's name."""
    return str(inputs.get("name") or f"eks-{digest(str(sorted(inputs)), 7)}")


def cluster_group(name: str) -> str:
    """Return the id of the security group that EKS creates for a cluster."""
    return hexadecimal("sg", f"eks {name}")


def compute_cluster(call: Call) -> Json:
    """Return endpoint, certificate and OIDC issuer, and create EKS's own resources for the cluster."""
    region = region_of(call.inputs, call.config)
    subnets = strings(value_at(call.inputs, "vpcConfig.subnetIds"))
    vpc = str((call.state.get(tokens.SUBNET, subnets[0]) or {}).get("vpcId") or "") if subnets else ""
    if call.verb == "create":
        _supporting_resources(call, vpc)
    mark = digest(call.id, 32).upper()
    return {
        **regional(call),
        "name": call.id,
        "arn": arn(call, "eks", f"cluster/{call.id}"),
        "status": "ACTIVE",
        "createdAt": SINCE,
        "endpoint": f"https://{mark}.gr7.{region}.eks.amazonaws.com",
        "certificateAuthority": {"data": certificate(call.id)},
        "identities": [{"oidcs": [{"issuer": f"https://oidc.eks.{region}.amazonaws.com/id/{mark}"}]}],
        **blocks(
            call,
            {
                "vpcConfig": {
                    "clusterSecurityGroupId": cluster_group(call.id),
                    "vpcId": vpc,
                    "endpointPrivateAccess": False,
                    "endpointPublicAccess": True,
                    "publicAccessCidrs": ["0.0.0.0/0"]
                    if value_at(call.inputs, "vpcConfig.endpointPublicAccess") is not False
                    else [],
                },
                "accessConfig": {
                    "authenticationMode": "CONFIG_MAP",
                    "bootstrapClusterCreatorAdminPermissions": True,
                },
                "kubernetesNetworkConfig": {
                    "ipFamily": "ipv4",
                    "serviceIpv4Cidr": "172.20.0.0/16",
                    "serviceIpv6Cidr": "",
                    "elasticLoadBalancing": {"enabled": False},
                },
                "upgradePolicy": {"supportType": "EXTENDED"},
            },
        ),
        **kept(
            call,
            {
                "version": DEFAULT_VERSION,
                "platformVersion": "eks.12",
                "bootstrapSelfManagedAddons": True,
                "deletionProtection": False,
                "enabledClusterLogTypes": [],
                "clusterId": "",
            },
        ),
    }


def delete_with_cluster(call: Call, type_: str, live: Json) -> bool:
    """Return whether an object is deleted with the cluster: its objects and EKS's own, but not node groups."""
    if type_ in (tokens.ADDON, tokens.ACCESS_ENTRY, tokens.ACCESS_POLICY, tokens.POD_IDENTITY):
        return live.get("clusterName") == call.id
    if type_ in (tokens.INGRESS, tokens.EGRESS):
        return live.get("securityGroupId") == cluster_group(call.id)
    if live.get(tokens.MADE_BY) == f"eks:{call.id}":
        # The log group stays, with its cost, until it is deleted.
        return type_ != tokens.LOG_GROUP
    return type_.startswith(tokens.KUBERNETES) and live.get(tokens.IN_CLUSTER) == call.id


def certificate(cluster: str) -> str:
    """Return a placeholder for a CA certificate in the API's format: base64 of PEM."""
    body = base64.b64encode(f"simulated certificate authority of {cluster}".encode()).decode()
    return base64.b64encode(f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n".encode()).decode()


def _supporting_resources(call: Call, vpc: str) -> None:
    """Create EKS's own resources: a security group, a log group if there is none, an entry for the creator."""
    made = {tokens.MADE_BY: f"eks:{call.id}", "region": region_of(call.inputs, call.config)}
    group = {"name": f"eks-cluster-sg-{call.id}-{digest(call.id, 9)}", "vpcId": vpc, "ownerId": ACCOUNT, **made}
    group["description"] = "EKS created security group applied to ENI that is attached to EKS Control Plane"
    id_ = cluster_group(call.id)
    both = {"securityGroupId": id_, "ipProtocol": "-1", **made}
    call.state.put(tokens.SECURITY_GROUP, id_, group)
    call.state.put(tokens.INGRESS, hexadecimal("sgr", f"{id_} in"), {**both, "referencedSecurityGroupId": id_})
    call.state.put(tokens.EGRESS, hexadecimal("sgr", f"{id_} out"), {**both, "cidrIpv4": "0.0.0.0/0"})
    if tuple(int(part) for part in str(call.inputs.get("version") or DEFAULT_VERSION).split(".")[:2]) >= (1, 33):
        # For EFA, on clusters from 1.33 on (eksctl-io/eksctl #8509).
        call.state.put(tokens.EGRESS, hexadecimal("sgr", f"{id_} efa"), {**both, "referencedSecurityGroupId": id_})
    logs = f"/aws/eks/{call.id}/cluster"
    if call.inputs.get("enabledClusterLogTypes") and call.state.get(tokens.LOG_GROUP, logs) is None:
        call.state.put(tokens.LOG_GROUP, logs, {"name": logs, **made})
    access = call.inputs.get("accessConfig") or {}
    by_api = str(access.get("authenticationMode") or "CONFIG_MAP") != "CONFIG_MAP"
    if by_api and access.get("bootstrapClusterCreatorAdminPermissions") is not False:
        entry = {"clusterName": call.id, "principalArn": CALLER, "type": "STANDARD", **made}
        policy = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
        call.state.put(tokens.ACCESS_ENTRY, f"{call.id}:{CALLER}", entry)
        whole = {**entry, "policyArn": policy, "accessScope": {"type": "cluster"}}
        call.state.put(tokens.ACCESS_POLICY, f"{call.id}#{CALLER}#{policy}", whole)
