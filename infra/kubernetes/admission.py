"""Admission policies in CEL of the namespace of Ray's pods, as plain Kubernetes JSON. Imports no Pulumi."""

from __future__ import annotations

import json
from typing import Any

from infra.catalog.names import KUBERAY_NAMESPACE, LOCAL_QUEUE, NAMESPACE
from infra.catalog.pins import ADMISSION_API, KUEUE_API, RAY_API
from infra.fabric import GpuPod
from infra.kubernetes.queue_objects import QUEUE_LABEL
from infra.kubernetes.time_limit_objects import ACCOUNT_SUFFIX
from infra.kubernetes.time_limit_pod import ENDED, SINCE

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

_USER = "request.userInfo.username"
_ACCOUNT = "system:serviceaccount:"
_CONTROLLERS = ("kube-system", KUBERAY_NAMESPACE)
"""Namespaces of the accounts that make the clusters and jobs of a RayJob or a CronJob, which is itself in the queue."""
_OTHER_FIELDS = "f == 'replicas' || (f in b && g[f] == b[f])"
_ENDS = (
    # What `time_limit_objects` sets; of a worker group, the number of workers.
    "(k == 'suspend' && variables.newSpec.?suspend.orValue(false) == true)"
    " || (k == 'active' && variables.newSpec.?active.orValue(true) == false)"
    " || (k == 'activeDeadlineSeconds' && variables.newSpec.?activeDeadlineSeconds.orValue(0) == 1)"
    " || (k == 'workerGroupSpecs' && k in variables.oldSpec && k in variables.newSpec"
    " && variables.newSpec[k].size() == variables.oldSpec[k].size() && variables.newSpec[k].all(g,"
    f" variables.oldSpec[k].exists(b, g.all(f, {_OTHER_FIELDS}) && b.all(f, f == 'replicas' || f in g))))"
)


def pod_policy(pod: GpuPod, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """Return the policy that admits the needs of `pod` beyond the level `baseline`, and its binding; [] for none."""
    folders = {at["path"]: at.get("type", "") for volume in pod.volumes if (at := volume.get("hostPath"))}
    capabilities = (pod.security_context.get("capabilities") or {}).get("add") or []
    if not folders and not capabilities:
        return []
    # The level also ignores other updates of a pod (isSignificantPodUpdate), so one that is older than the policy ends.
    images = " + ".join(f"OBJECT.spec.?{each}.orValue([]).map(c, c.image)" for each in _CONTAINERS)
    changed = f"{images.replace('OBJECT', 'object')} != {images.replace('OBJECT', 'oldObject')}"
    return _policy(
        namespace,
        namespace,
        f"A pod of namespace {namespace}",
        rules=[_rule("v1", "pods", "pods/ephemeralcontainers", operations=("CREATE", "UPDATE"))],
        only=f"request.operation == 'CREATE' || {changed}",
        variables={
            # Path -> type.
            "folders": json.dumps(folders),
            "containers": " + ".join(f"object.spec.?{each}.orValue([])" for each in _CONTAINERS),
            "volumes": "object.spec.?volumes.orValue([]).filter(v, has(v.hostPath))",
        },
        validations=_validations(list(folders), capabilities),
    )


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
        # The API of 1.36.1 refuses this itself, and a Windows host process without hostNetwork (validation.go).
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


def limit_policy(namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """Return the policy for the accounts of time limits, and its binding: they may end their workload, and note why.

    RBAC cannot restrict fields, and a Workload's name has a hash: the accounts' role lets them change the workload's
    image and command, and other Workloads.
    """
    accounts = f"{_ACCOUNT}{namespace}:"
    of_workload = " && ".join(
        (
            "variables.newLabels == variables.oldLabels",
            *(
                f"object.metadata.?{field}.orValue([]) == oldObject.metadata.?{field}.orValue([])"
                for field in ("ownerReferences", "finalizers")
            ),
        )
    )
    return _policy(
        f"{namespace}-limits",
        namespace,
        "The account of a time limit",
        rules=[
            _rule(RAY_API, "rayclusters", "rayjobs", operations=("UPDATE",)),
            _rule(KUEUE_API, "workloads", operations=("UPDATE",)),
        ],
        only=f"{_USER}.startsWith('{accounts}') && {_USER}.endsWith('{ACCOUNT_SUFFIX}')",
        variables={
            f"{when}{part}": value.replace("OBJECT", each)
            for when, each in (("new", "object"), ("old", "oldObject"))
            for part, value in (
                # Dynamic: the kinds have different fields.
                ("Spec", "dyn(OBJECT.spec)"),
                ("Annotations", "OBJECT.metadata.?annotations.orValue({})"),
                ("Labels", "OBJECT.metadata.?labels.orValue({})"),
            )
        },
        validations={
            "may change only the Workload of its RayCluster": (
                "request.resource.resource != 'workloads' || oldObject.metadata.?ownerReferences.orValue([])"
                f".exists(o, o.kind == 'RayCluster' && {_USER} == '{accounts}' + o.name + '{ACCOUNT_SUFFIX}')"
            ),
            "may only end its workload": _same("Spec", _ENDS),
            f"may set only the annotations {SINCE} and {ENDED}": _same(
                "Annotations", f"k in {json.dumps([SINCE, ENDED])}"
            ),
            "may not change labels, owners or finalizers": of_workload,
        },
    )


def team_policy(namespace: str) -> list[dict[str, Any]]:
    """Return the policy for a team's namespace, and its binding: for what RBAC cannot restrict in its members' jobs.

    Kueue lets every job without the label run, on nodes of other teams. For a pod of a system's priority the scheduler
    ends pods of other teams, and the API server admits one in every namespace (seen with 1.36.1, 2026-11-29). A RayJob
    may ask KubeRay for a public Service or an Ingress (headService, enableIngress in KubeRay's API, v1.6.2).
    """
    controllers = " || ".join(f"{_USER}.startsWith('{_ACCOUNT}{each}:')" for each in _CONTROLLERS)
    kind = "request.resource.resource"
    others = f"{kind} in ['pods', 'services', 'ingresses']"
    queue = f"object.metadata.?labels[?'{QUEUE_LABEL}'].orValue('')"
    return _policy(
        f"{namespace}-team",
        namespace,
        f"What is created in namespace {namespace}",
        rules=[
            _rule(RAY_API, "rayclusters", "rayjobs", "rayservices", operations=("CREATE",)),
            _rule("batch/v1", "jobs", operations=("CREATE",)),
            _rule("v1", "pods", "services", operations=("CREATE",)),
            _rule("networking.k8s.io/v1", "ingresses", operations=("CREATE",)),
        ],
        only=f"{others} || !({controllers} || {_USER} == 'system:kube-controller-manager')",
        variables={},
        validations={
            f"must have the label {QUEUE_LABEL}: {LOCAL_QUEUE}": f"{others} || {queue} == '{LOCAL_QUEUE}'",
            "must not have the priority of a system": (
                f"{kind} != 'pods' || !object.spec.?priorityClassName.orValue('').startsWith('system-')"
            ),
            "must not be reachable from outside the cluster": (
                f"{kind} != 'ingresses' && ({kind} != 'services' ||"
                " (object.spec.?type.orValue('') == 'ClusterIP' && !has(object.spec.externalIPs)))"
            ),
        },
    )


def _same(part: str, allowed: str) -> str:
    """Return an expression that holds if two maps are equal but for the keys `k` that `allowed` admits."""
    new, old = f"variables.new{part}", f"variables.old{part}"
    return f"{new}.all(k, (k in {old} && {new}[k] == {old}[k]) || {allowed}) && {old}.all(k, k in {new} || {allowed})"


def _rule(api: str, *resources: str, operations: tuple[str, ...]) -> dict[str, list[str]]:
    group, _, version = api.rpartition("/")
    named = {"apiGroups": [group], "apiVersions": [version]}
    return {**named, "operations": list(operations), "resources": list(resources)}


def _policy(
    name: str,
    namespace: str,
    subject: str,
    *,
    rules: list[dict[str, list[str]]],
    only: str,
    variables: dict[str, str],
    validations: dict[str, str],
) -> list[dict[str, Any]]:
    """Return a ValidatingAdmissionPolicy and its binding to a namespace.

    Args:
        only: Condition for a request to be checked.
        validations: Expressions by their message, which continues `subject`.
    """
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules},
        "matchConditions": [{"name": "checked", "expression": only}],
        "variables": [{"name": each, "expression": expression} for each, expression in variables.items()],
        "validations": [
            {"message": f"{subject} {message}", "expression": expression} for message, expression in validations.items()
        ],
    }
    bound = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}},
    }
    return [
        {"apiVersion": ADMISSION_API, "kind": kind, "metadata": {"name": name}, "spec": body}
        for kind, body in (("ValidatingAdmissionPolicy", spec), ("ValidatingAdmissionPolicyBinding", bound))
    ]
