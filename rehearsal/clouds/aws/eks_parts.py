"""Add-ons, access entries and pod identities of EKS clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.outputs import ACCOUNT, arn, generated_id, in_region, in_use, joined, kind, regional
from rehearsal.clouds.aws.references import open_groups, to, to_named, trusts
from rehearsal.clouds.constraints import rule
from rehearsal.engine.kind import Call, Json, Reference
from rehearsal.engine.values import digest, kept, last

PODS = "hashicorp/terraform-provider-aws 13062bf9, TestAccEKSPodIdentityAssociation_basic"
ADDONS = "hashicorp/terraform-provider-aws f1750b86, TestAccEKSAddon_basic"
IN_CLUSTER = to("clusterName", tokens.CLUSTER)
"""Deleted with the cluster, so it does not hold it."""
ON_EVERY_NODE = ("vpc-cni", "kube-proxy", "eks-pod-identity-agent", "eks-node-monitoring-agent", "aws-guardduty-agent")
"""Add-ons that are DaemonSets only: active without a node. Pods of a Deployment need one (EKS docs, add-ons)."""


def identify_pod_identity(inputs: Json, config: Mapping[str, Any]) -> str:
    """Return a generated association id: "a-" and 17 characters."""
    return f"a-{digest(generated_id('a', inputs, config), 17)}"


def compute_addon(call: Call) -> Json:
    """Return the version of an add-on: a placeholder, unless the program sets it."""
    name = f"{call.inputs.get('clusterName')}/{call.inputs.get('addonName')}"
    return {
        **regional(call),
        "arn": arn(call, "eks", f"addon/{name}/{digest(call.id, 32)}"),
        **kept(call, {"addonVersion": "v1.0.0-eksbuild.1", "configurationValues": ""}),
    }


def compute_access_entry(call: Call) -> Json:
    """Return the principal's user name in the cluster."""
    principal = str(call.inputs.get("principalArn"))
    user = f"{principal}/{{{{SessionName}}}}" if ":role/" in principal else principal
    return {
        **regional(call),
        "accessEntryArn": arn(call, "eks", f"access-entry/{call.id.replace(':', '/', 1)}"),
        **kept(call, {"type": "STANDARD", "kubernetesGroups": [], "userName": user}),
    }


def compute_pod_identity(call: Call) -> Json:
    """Return the id as an output."""
    return {
        **regional(call),
        "associationArn": arn(call, "eks", f"podidentityassociation/{call.inputs.get('clusterName')}/{call.id}"),
        "associationId": call.id,
        **kept(call, {"disableSessionTags": False}),
    }


@rule("create", refused="pulumi/pulumi-eks#1525, 2024-12-11", accepted=ADDONS, status="failed timeout")
def addon_without_nodes(call: Call) -> str | None:
    """An add-on with a Deployment becomes active once its pods run on a node without taints."""
    cluster = str(call.inputs.get("clusterName"))
    if call.inputs.get("addonName") in ON_EVERY_NODE or open_groups(call.state, cluster):
        return None
    words = f"waiting for EKS Add-On ({call.id}) create: timeout while waiting for state to become 'ACTIVE'"
    return f"{words} (last state: 'DEGRADED', timeout: 20m0s)"


def own_role(value: Any, _inputs: Json, _config: Mapping[str, Any]) -> str | None:
    """Return a role of this account; other principals exist."""
    return last(value) if f"::{ACCOUNT}:role/" in str(value) else None


@rule(
    refused="hashicorp/terraform-provider-aws#41483, 2025-02-20", accepted=PODS, status="400 InvalidParameterException"
)
def pod_role_untrusted(call: Call) -> str | None:
    """EKS's pods may assume their role and tag its sessions."""
    service, role = "pods.eks.amazonaws.com", call.inputs.get("roleArn")
    if all(trusts(call.state, role, service, action) for action in ("sts:AssumeRole", "sts:TagSession")):
        return None
    return f"Trust policy of role {last(role)} must allow {service} the actions sts:AssumeRole and sts:TagSession"


ADDON = kind(
    tokens.ADDON,
    joined(":", "clusterName", "addonName"),
    compute_addon,
    references=(
        IN_CLUSTER,
        to_named("serviceAccountRoleArn", tokens.ROLE),
        to_named("podIdentityAssociations.roleArn", tokens.ROLE),
    ),
    rules=(addon_without_nodes,),
    awaited=True,
)
ACCESS_ENTRY = kind(
    tokens.ACCESS_ENTRY,
    joined(":", "clusterName", "principalArn"),
    compute_access_entry,
    references=(IN_CLUSTER, Reference(path="principalArn", types=(tokens.ROLE,), resolve=own_role, holds=False)),
)
ACCESS_POLICY = kind(
    tokens.ACCESS_POLICY,
    joined("#", "clusterName", "principalArn", "policyArn"),
    in_region,
    immutable="clusterName principalArn policyArn accessScope",
    references=(
        IN_CLUSTER,
        Reference(
            path="principalArn",
            types=(tokens.ACCESS_ENTRY,),
            resolve=lambda value, inputs, _config: f"{inputs.get('clusterName')}:{value}",
            holds=False,
        ),
    ),
    repeatable=True,
)
POD_IDENTITY = kind(
    tokens.POD_IDENTITY,
    identify_pod_identity,
    compute_pod_identity,
    references=(IN_CLUSTER, to_named("roleArn", tokens.ROLE), to_named("targetRoleArn", tokens.ROLE)),
    rules=(pod_role_untrusted,),
    unique=("clusterName", "namespace", "serviceAccount"),
    conflict=in_use("400 ResourceInUseException", "Association already exists", "eksctl-io/eksctl#7753, 2024-05-09"),
    # The provider imports an association as CLUSTER,ID.
    from_import=lambda text, _config: text.rpartition(",")[2],
    generated_ids=True,
)
