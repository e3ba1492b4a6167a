"""Rules of add-ons, access entries and pod identities."""

from __future__ import annotations

import json
import re

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.offerings import ACCESS_POLICIES, ADDONS, instance_type
from rehearsal.clouds.aws.outputs import ACCOUNT
from rehearsal.clouds.aws.references import cluster_of, desired, groups_of, last, role, trusts, types_of
from rehearsal.clouds.aws.refusals import (
    COREDNS,
    EKS_ACCESS,
    EKS_ADDONS,
    PROVIDER_OTHERS,
    UNVERIFIED,
    failed,
    invalid,
    missing,
    refused,
    unfit,
)
from rehearsal.clouds.kind import Call, Refusal, on, value_at

_SELF_MANAGED = ("vpc-cni", "coredns", "kube-proxy")


@on("create")
def addon_unknown(call: Call) -> Refusal | None:
    """EKS has the add-on for the cluster's version."""
    name, version = call.inputs.get("addonName"), (cluster_of(call) or {}).get("version")
    if name in ADDONS:
        return None
    return invalid(f"Addon {name} specified is not supported in {version} kubernetes version", EKS_ADDONS)


@on("create", "update")
def addon_version_unknown(call: Call) -> Refusal | None:
    """An add-on's version has EKS's format; kube-proxy's is not newer than the cluster."""
    asked = call.inputs.get("addonVersion")
    if asked is None:
        return None
    found = re.fullmatch(r"v(\d+)\.(\d+)\.(\d+)([.-][a-z0-9.]+)?-eksbuild\.\d+", str(asked))
    minor = str((cluster_of(call) or {}).get("version") or "1.99").split(".")[1]
    newer = call.inputs.get("addonName") == "kube-proxy" and found is not None and int(found[2]) > int(minor)
    if found is not None and not newer:
        return None
    return invalid("Addon version specified is not supported", EKS_ADDONS)


@on("create", "update")
def addon_values_malformed(call: Call) -> Refusal | None:
    """Configuration values of an add-on are JSON or YAML with a map at the top."""
    text = str(call.inputs.get("configurationValues") or "")
    if not text or not text.lstrip().startswith(("{", "[")):
        return None
    try:
        whole = json.loads(text)
    except ValueError:
        whole = None
    if isinstance(whole, dict):
        return None
    return invalid("ConfigurationValue provided in request is not supported: it is no valid JSON", EKS_ADDONS)


@on("create", "update")
def addon_conflicts_unknown(call: Call) -> Refusal | None:
    """The conflict resolution is one of EKS's values."""
    asked = call.inputs.get("resolveConflictsOnCreate")
    later = call.inputs.get("resolveConflictsOnUpdate")
    if asked in (None, "NONE", "OVERWRITE") and later in (None, "NONE", "OVERWRITE", "PRESERVE"):
        return None
    return unfit(f"expected resolve_conflicts to be one of NONE, OVERWRITE, got {asked or later}", PROVIDER_OTHERS)


@on("create")
def addon_over_self_managed(call: Call) -> Refusal | None:
    """An add-on overwrites EKS's self-managed copy only with conflict resolution OVERWRITE."""
    cluster = cluster_of(call) or {}
    name = call.inputs.get("addonName")
    bare = cluster.get("bootstrapSelfManagedAddons") is False or name not in _SELF_MANAGED
    if bare or call.inputs.get("resolveConflictsOnCreate") == "OVERWRITE":
        return None
    words = "Conflicts found when trying to apply. Will not continue due to resolve conflicts mode. Conflicts:"
    return failed("ConfigurationConflict", f"{words} DaemonSet.apps or Deployment.apps {name}", EKS_ADDONS)


@on("create")
def addon_without_nodes(call: Call) -> Refusal | None:
    """An add-on with a Deployment becomes active once its pods run on a node without GPUs and taints."""
    name = str(call.inputs.get("addonName"))
    if not ADDONS.get(name, ("", False))[1]:
        return None
    for _, group in groups_of(call.state, str(call.inputs.get("clusterName"))):
        machine = instance_type(types_of(call.state, group)[0])
        if desired(group) and not _repels(group) and machine is not None:
            return None
    words = f"waiting for EKS Add-On ({call.id}) create: timeout while waiting for state to become 'ACTIVE'"
    return failed("timeout", f"{words} (last state: 'DEGRADED', timeout: 20m0s)", COREDNS)


def _repels(group: dict[str, object]) -> bool:
    taints = group.get("taints")
    return any(one.get("effect") != "PREFER_NO_SCHEDULE" for one in (taints if isinstance(taints, list) else ()))


@on("create")
def access_by_config_map(call: Call) -> Refusal | None:
    """Access entries need an authentication mode with the API."""
    mode = value_at(cluster_of(call) or {}, "accessConfig.authenticationMode")
    if mode in ("API", "API_AND_CONFIG_MAP"):
        return None
    words = (
        "The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP] to perform this operation."
    )
    return refused("InvalidRequestException", words, EKS_ACCESS)


@on("create")
def principal_invalid(call: Call) -> Refusal | None:
    """The principal is a user or a role; one of this account exists."""
    arn = str(call.inputs.get("principalArn") or "")
    found = re.fullmatch(r"arn:aws[a-z-]*:iam::(\d{12}):(role|user)/\S+", arn)
    ours = found is not None and found[1] == ACCOUNT and found[2] == "role"
    if found is not None and (not ours or role(call.state, arn) is not None or "/aws-reserved/" in arn):
        return None
    return invalid("The specified principalArn is invalid: invalid principal.", EKS_ACCESS)


@on("create", "update")
def access_group_reserved(call: Call) -> Refusal | None:
    """Access entries cannot use Kubernetes' own groups."""
    for group in call.inputs.get("kubernetesGroups") or []:
        if str(group).startswith(("system:", "eks:", "aws:", "amazon:", "iam:")):
            return invalid(f"The kubernetes group name {group} is invalid, it cannot start with system:", EKS_ACCESS)
    return None


@on("create")
def access_type_unknown(call: Call) -> Refusal | None:
    """An access entry is for users, nodes, or a type of EKS; only users have groups."""
    kinds = ("STANDARD", "EC2_LINUX", "EC2_WINDOWS", "FARGATE_LINUX", "EC2", "HYBRID_LINUX", "HYPERPOD_LINUX")
    asked = call.inputs.get("type") or "STANDARD"
    if asked not in kinds:
        return invalid(f"The specified type is invalid: {asked}", EKS_ACCESS)
    if asked == "STANDARD" or not (call.inputs.get("kubernetesGroups") or call.inputs.get("userName")):
        return None
    words = "You cannot specify kubernetesGroups or username for access entries of type"
    return invalid(f"{words} {asked}", EKS_ACCESS)


@on("create")
def policy_without_entry(call: Call) -> Refusal | None:
    """A policy association needs an access entry."""
    entry = f"{call.inputs.get('clusterName')}:{call.inputs.get('principalArn')}"
    if call.state.get(tokens.ACCESS_ENTRY, entry) is not None:
        return None
    words = "The specified principalArn could not be found. You can view your available access entries with"
    return missing(f"{words} 'list-access-entries'.", EKS_ACCESS)


@on("create")
def access_policy_unknown(call: Call) -> Refusal | None:
    """The access policy is one of EKS's."""
    arn = str(call.inputs.get("policyArn") or "")
    if arn.partition("::")[2].startswith("aws:cluster-access-policy/") and last(arn) in ACCESS_POLICIES:
        return None
    return missing(f"The policyArn {arn} is not an access policy of EKS", EKS_ACCESS)


@on("create")
def access_scope_invalid(call: Call) -> Refusal | None:
    """A policy applies to the whole cluster, or to named namespaces."""
    scope = call.inputs.get("accessScope") or {}
    kind, named = scope.get("type"), scope.get("namespaces") or []
    if (kind == "cluster" and not named) or (kind == "namespace" and named):
        return None
    return invalid("The specified accessScope is invalid: namespaces go with the type namespace", EKS_ACCESS)


@on("create", "update")
def pod_role_untrusted(call: Call) -> Refusal | None:
    """The pods' role exists, and EKS's pods may assume it and tag its sessions."""
    arn = call.inputs.get("roleArn")
    live = role(call.state, arn)
    source = f"EKS docs, Pod Identity; wording {UNVERIFIED}"
    if live is None:
        return invalid(f"The role {arn} does not exist", source)
    service = "pods.eks.amazonaws.com"
    if trusts(live, service) and trusts(live, service, "sts:TagSession"):
        return None
    words = f"Trust policy of role {last(arn)} must allow {service} the actions sts:AssumeRole and sts:TagSession"
    return invalid(words, source)


@on("create")
def pod_identity_exists(call: Call) -> Refusal | None:
    """A service account has one role."""
    keys = ("clusterName", "namespace", "serviceAccount")
    for _, id_, live in call.state.all(tokens.POD_IDENTITY):
        if all(live.get(key) == call.inputs.get(key) for key in keys):
            return refused("ResourceInUseException", f"Association already exists: {id_}", EKS_ADDONS)
    return None
