"""The namespace of Ray's pods, and what the pods in it may ask of their nodes.

Where the stack's GPU pods fit Kubernetes' Pod Security level `baseline`, the namespace enforces it. Where they need
folders of the node or a capability, which the level forbids, a ValidatingAdmissionPolicy admits exactly these and
answers like the level otherwise: the level exempts users, namespaces and runtime classes, but no pod (Kubernetes docs,
concepts/security/pod-security-admission, read 2026-11).
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

# The rest of this block is what `baseline` allows: k8s.io/pod-security-admission v0.36.1, policy/check_*.go.
_CAPABILITIES = (
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP"),
    *("SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
)
_SYSCTLS = (
    "kernel.shm_rmid_forced",
    *(f"net.ipv4.ip_{name}" for name in ("local_port_range", "local_reserved_ports", "unprivileged_port_start")),
    "net.ipv4.ping_group_range",
    *(f"net.ipv4.tcp_keepalive_{name}" for name in ("time", "intvl", "probes")),
    *(f"net.ipv4.tcp_{name}" for name in ("fin_timeout", "rmem", "syncookies", "wmem")),
)
_SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
_PROFILES = ("RuntimeDefault", "Localhost")
_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
"""Prefix of annotations that set a container's AppArmor profile: the API server copies them to the field."""

_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")


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
    folders = {at["path"]: at.get("type", "") for volume in pod.volumes if (at := volume.get("hostPath"))}
    capabilities = (pod.security_context.get("capabilities") or {}).get("add") or []
    if not folders and not capabilities:
        return []
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["pods", "pods/ephemeralcontainers"],
    }
    # The level also ignores other updates of a pod (isSignificantPodUpdate), so one that is older than the policy ends.
    images = " + ".join(f"OBJECT.spec.?{each}.orValue([]).map(c, c.image)" for each in _CONTAINERS)
    changed = f"{images.replace('OBJECT', 'object')} != {images.replace('OBJECT', 'oldObject')}"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "images", "expression": f"request.operation == 'CREATE' || {changed}"}],
        "variables": [
            # Path -> type.
            {"name": "folders", "expression": json.dumps(folders)},
            {
                "name": "containers",
                "expression": " + ".join(f"object.spec.?{each}.orValue([])" for each in _CONTAINERS),
            },
            {"name": "volumes", "expression": "object.spec.?volumes.orValue([]).filter(v, has(v.hostPath))"},
        ],
        "validations": [
            {"message": f"A pod of namespace {NAMESPACE} {message}", "expression": expression}
            for message, expression in _validations(list(folders), capabilities).items()
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


def _validations(folders: list[str], capabilities: list[str]) -> dict[str, str]:
    """Return the expressions in CEL by their message, which continues "A pod of namespace ray"."""
    # The kubelet creates a subPath that does not exist, also of a mount that is read-only (kubernetes: pkg/kubelet/
    # kubelet_pods.go, makeMounts, v1.36.1).
    unset = " && ".join(f"m.?{field}.orValue('') == ''" for field in ("subPath", "subPathExpr"))
    reads = f"m.?readOnly.orValue(false) && m.?mountPropagation.orValue('None') == 'None' && {unset}"
    mounts = f"c.?volumeMounts.orValue([]).all(m, !variables.volumes.exists(v, v.name == m.name) || ({reads}))"
    shared = " && ".join(f"!object.spec.?{field}.orValue(false)" for field in ("hostNetwork", "hostPID", "hostIPC"))
    handlers = [
        *(f"c.?{probe}Probe" for probe in ("liveness", "readiness", "startup")),
        *(f"c.?lifecycle.?{hook}" for hook in ("postStart", "preStop")),
    ]
    hosts = [f"{handler}.?{by}.?host.orValue('') == ''" for handler in handlers for by in ("httpGet", "tcpSocket")]
    profiles = [
        f"CONTEXT.?{profile}.?type.orValue('Localhost') in {json.dumps(_PROFILES)}"
        for profile in ("seccompProfile", "appArmorProfile")
    ]
    options = "CONTEXT.?seLinuxOptions"
    selinux = [f"{options}.?{field}.orValue('') == ''" for field in ("user", "role")]
    selinux.append(f"{options}.?type.orValue('') in {json.dumps(_SELINUX_TYPES)}")
    value = "object.metadata.annotations[a]"
    annotations = (
        "object.metadata.?annotations.orValue({}).all(a, "
        f"!a.startsWith('{_APPARMOR}') || {value} in ['', 'runtime/default'] || {value}.startsWith('localhost/'))"
    )
    allowed = json.dumps([*_CAPABILITIES, *capabilities])
    return {
        f"may mount only {', '.join(folders) or 'no folder'} of its node (hostPath), without another type": (
            "variables.volumes.all(v, v.hostPath.path in variables.folders "
            "&& v.hostPath.?type.orValue('') == variables.folders[v.hostPath.path])"
        ),
        "may only read folders of its node: set readOnly on their mounts, without mountPropagation or subPath": (
            _each(mounts)
        ),
        f"may add only default capabilities{''.join(f' and {each}' for each in capabilities)}": _each(
            f"c.?securityContext.?capabilities.?add.orValue([]).all(a, a in {allowed})"
        ),
        "may not be privileged": _each("!c.?securityContext.?privileged.orValue(false)"),
        "may not share namespaces of its node (hostNetwork, hostPID, hostIPC)": shared,
        "may not use ports of its node (hostPort)": _each("c.?ports.orValue([]).all(p, p.?hostPort.orValue(0) == 0)"),
        "may not name a host in a probe or a lifecycle hook": _each(" && ".join(hosts)),
        "may set procMount only in a user namespace (hostUsers: false)": (
            "!object.spec.?hostUsers.orValue(true) || "
            + _each("c.?securityContext.?procMount.orValue('Default') == 'Default'")
        ),
        "may not set a seccomp or AppArmor profile Unconfined": f"{_contexts(*profiles)} && {annotations}",
        "may not set SELinux' user or role, or a type that is not a container's": _contexts(*selinux),
        "may not be a host process of Windows": _contexts("!CONTEXT.?windowsOptions.?hostProcess.orValue(false)"),
        "may set only safe sysctls": (
            f"object.spec.?securityContext.?sysctls.orValue([]).all(s, s.name in {json.dumps(_SYSCTLS)})"
        ),
    }


def _each(condition: str) -> str:
    """Return an expression that holds if `condition` holds for every container `c`."""
    return f"variables.containers.all(c, {condition})"


def _contexts(*conditions: str) -> str:
    """Return an expression that holds if the conditions hold for the CONTEXT of the pod and of every container."""
    condition = " && ".join(conditions)
    pod, container = (condition.replace("CONTEXT", f"{owner}.?securityContext") for owner in ("object.spec", "c"))
    return f"{pod} && {_each(container)}"
