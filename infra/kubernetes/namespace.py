"""The namespace of Ray's pods, and what the pods in it may ask of their nodes.

Where the stack's GPU pods fit Kubernetes' Pod Security level `baseline`, the namespace enforces it. Where they need
folders of the node or a capability, which the level forbids, a ValidatingAdmissionPolicy admits exactly these and
refuses what else gives power over a node (Kubernetes docs, concepts/security/pod-security-standards, read 2026-11).
"""

from __future__ import annotations

import json
from typing import Any

import pulumi
from pulumi import Alias, ResourceOptions
from pulumi_kubernetes import core

from infra.catalog.pins import ADMISSION_API
from infra.fabric import GpuPod
from infra.kubernetes.pods import COMPONENTS, NAMESPACE
from infra.kubernetes.resources import custom_resource

ENFORCE = "pod-security.kubernetes.io/enforce"
"""Label of a namespace with the level that its pods must have."""


class RayNamespace(pulumi.ComponentResource):
    """The namespace, and its admission policy if it needs one. Pods depend on `resources`."""

    name: pulumi.Output[str]
    resources: list[pulumi.Resource]

    def __init__(self, name: str, pod: GpuPod, opts: ResourceOptions) -> None:
        super().__init__("rdma-ray:kubernetes:Namespace", name, {}, opts)
        policy = admission_policy(pod)
        labels = {} if policy else {ENFORCE: "baseline"}
        # Until 2026-11 it was a child of the workload; without aliases, the next `up` would replace it.
        types = [f"rdma-ray:kubernetes:{component}" for component in COMPONENTS.values()]
        namespace = core.v1.Namespace(
            name,
            metadata={"name": NAMESPACE, "labels": labels} if labels else {"name": NAMESPACE},
            opts=ResourceOptions(
                parent=self, aliases=[Alias(parent=pulumi.create_urn(name, type_, opts.parent)) for type_ in types]
            ),
        )
        named = zip((f"{name}-policy", f"{name}-policy-binding"), policy, strict=False)
        objects = [custom_resource(each, body, ResourceOptions(parent=self)) for each, body in named]
        self.name, self.resources = namespace.metadata["name"], [namespace, *objects]
        self.register_outputs({})


def admission_policy(pod: GpuPod) -> list[dict[str, Any]]:
    """Return the policy that admits what `pod` needs beyond the level `baseline`, and its binding; [] for none."""
    folders = [volume["hostPath"]["path"] for volume in pod.volumes if "hostPath" in volume]
    capabilities = (pod.security_context.get("capabilities") or {}).get("add") or []
    if not folders and not capabilities:
        return []
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [_rule("CREATE", "pods"), _rule("UPDATE", "pods/ephemeralcontainers")]},
        "variables": [
            {"name": "folders", "expression": json.dumps(folders)},
            {"name": "capabilities", "expression": json.dumps(capabilities)},
            {
                "name": "containers",
                "expression": " + ".join(f"object.spec.?{each}.orValue([])" for each in _CONTAINERS),
            },
            {"name": "volumes", "expression": "object.spec.?volumes.orValue([])"},
        ],
        "validations": [
            {"message": f"A pod of namespace {NAMESPACE} {message}", "expression": expression}
            for message, expression in _validations(folders, capabilities).items()
        ],
    }
    bound = {
        "policyName": NAMESPACE,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}},
    }
    return [
        {"apiVersion": ADMISSION_API, "kind": kind, "metadata": {"name": NAMESPACE}, "spec": body}
        for kind, body in (("ValidatingAdmissionPolicy", spec), ("ValidatingAdmissionPolicyBinding", bound))
    ]


_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")


def _rule(operation: str, resource: str) -> dict[str, list[str]]:
    return {"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]}


def _validations(folders: list[str], capabilities: list[str]) -> dict[str, str]:
    """Return the expressions in CEL by their message, which continues "A pod of namespace ray"."""
    shared = " || ".join(f"object.spec.?{each}.orValue(false)" for each in ("hostNetwork", "hostPID", "hostIPC"))
    unconfined = " || ".join(
        f"{owner}.?securityContext.?{profile}.?type.orValue('') == 'Unconfined'"
        for owner in ("object.spec", "c")
        for profile in ("seccompProfile", "appArmorProfile")
    )
    mounts = "c.?volumeMounts.orValue([]).all(m, m.?readOnly.orValue(false) || !variables.volumes.exists(v, {}))"
    return {
        f"may mount only {', '.join(folders) or 'no folder'} of its node (hostPath)": (
            "variables.volumes.all(v, !has(v.hostPath) || v.hostPath.path in variables.folders)"
        ),
        "may only read folders of its node: set readOnly on their mounts": _each(
            mounts.format("v.name == m.name && has(v.hostPath)")
        ),
        f"may add only the capability {', '.join(capabilities) or '(none)'}": _each(
            "c.?securityContext.?capabilities.?add.orValue([]).all(a, a in variables.capabilities)"
        ),
        "may not be privileged": _each("!c.?securityContext.?privileged.orValue(false)"),
        "may not share namespaces of its node (hostNetwork, hostPID, hostIPC)": f"!({shared})",
        "may not use ports of its node (hostPort)": _each("c.?ports.orValue([]).all(p, p.?hostPort.orValue(0) == 0)"),
        "may not set procMount, or a seccomp or AppArmor profile Unconfined": _each(
            f"c.?securityContext.?procMount.orValue('Default') == 'Default' && !({unconfined})"
        ),
        "may not set sysctls": "object.spec.?securityContext.?sysctls.orValue([]).size() == 0",
    }


def _each(condition: str) -> str:
    """Return an expression that holds if `condition` holds for every container `c`."""
    return f"variables.containers.all(c, {condition})"
