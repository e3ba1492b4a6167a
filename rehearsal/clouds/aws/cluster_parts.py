"""Add-ons, access entries and pod identities of a cluster: ids, computed outputs and replacement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.aws.offerings import ADDONS
from rehearsal.clouds.aws.outputs import SINCE, arn, generated_id, hexadecimal, region_of, regional
from rehearsal.clouds.aws.references import cluster_of, last
from rehearsal.clouds.kind import Call, Json
from rehearsal.clouds.values import digest, kept

# ForceNew of the provider, unverified, 2026-11 (`refusals.PROVIDER_OTHERS`).
ADDON_REPLACES = frozenset({"region", "addonName", "clusterName", "namespaceConfig"})
ACCESS_ENTRY_REPLACES = frozenset({"region", "clusterName", "principalArn", "type"})
ACCESS_POLICY_REPLACES = frozenset({"region", "clusterName", "principalArn", "policyArn", "accessScope"})
POD_IDENTITY_REPLACES = frozenset({"region", "clusterName", "namespace", "serviceAccount"})


def identify_addon(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return CLUSTER:ADDON."""
    return f"{inputs.get('clusterName')}:{inputs.get('addonName')}"


def identify_access_entry(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return CLUSTER:PRINCIPAL."""
    return f"{inputs.get('clusterName')}:{inputs.get('principalArn')}"


def identify_access_policy(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return CLUSTER#PRINCIPAL#POLICY."""
    return f"{inputs.get('clusterName')}#{inputs.get('principalArn')}#{inputs.get('policyArn')}"


def identify_pod_identity(inputs: Json, config: Mapping[str, Any]) -> str:
    """Return a generated association id: "a-" and 17 characters."""
    return f"a-{digest(generated_id('a', 'clusterName', 'namespace', 'serviceAccount', 'roleArn')(inputs, config), 17)}"


def default_version(name: str, call: Call) -> str:
    """Return the default version of an add-on for a cluster."""
    version = str((cluster_of(call) or {}).get("version") or "1.35")
    return ADDONS.get(name, ("v1.0.0-eksbuild.1", False))[0].format(version=version)


def compute_addon(call: Call) -> Json:
    """Return the version of an add-on."""
    name = str(call.inputs.get("addonName"))
    return {
        **regional(call),
        "arn": arn(call, "eks", f"addon/{call.inputs.get('clusterName')}/{name}/{digest(call.id, 32)}"),
        "createdAt": SINCE,
        "modifiedAt": SINCE,
        **kept(call, {"addonVersion": default_version(name, call), "configurationValues": ""}),
    }


def compute_access_entry(call: Call) -> Json:
    """Return the principal's user name in the cluster."""
    principal = str(call.inputs.get("principalArn"))
    kind = "role" if ":role/" in principal else "user"
    account = principal.split(":")[4] if principal.count(":") >= 5 else ""
    name = f"{call.inputs.get('clusterName')}/{kind}/{account}/{last(principal)}/{digest(call.id, 32)}"
    session = "/{{SessionName}}" if kind == "role" else ""
    return {
        **regional(call),
        "accessEntryArn": arn(call, "eks", f"access-entry/{name}"),
        "createdAt": SINCE,
        "modifiedAt": SINCE,
        **kept(call, {"type": "STANDARD", "kubernetesGroups": [], "userName": f"{principal}{session}"}),
    }


def compute_access_policy(call: Call) -> Json:
    """Return the time of the association."""
    return {"region": region_of(call.inputs, call.config), "associatedAt": SINCE, "modifiedAt": SINCE}


def compute_pod_identity(call: Call) -> Json:
    """Return the id as an output."""
    return {
        **regional(call),
        "associationArn": arn(call, "eks", f"podidentityassociation/{call.inputs.get('clusterName')}/{call.id}"),
        "associationId": call.id,
        "externalId": hexadecimal("external", call.id) if call.inputs.get("targetRoleArn") else "",
        **kept(call, {"disableSessionTags": False}),
    }
