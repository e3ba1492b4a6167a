"""Rules of KubeRay's operator for Ray clusters, including those of a RayJob.

The API server accepts these objects, but the operator only writes an event and creates no pod. The rehearsal refuses
them: otherwise `up` would succeed without a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rehearsal.clouds.kind import Call, Json, Refusal, value_at
from rehearsal.clouds.kubernetes.identity import api, name

KUBERAY = "ray-project/kuberay: ray-operator/controllers/ray/utils/validation.go, v1.6.2, 2026-06-17"
LONGEST = {"RayCluster": 53, "RayJob": 47, "RayService": 47, "RayCronJob": 36}
APPLY = (
    "ray-project/kuberay: config/crd/bases, v1.6.2, 2026-06-17: a list without x-kubernetes-list-type; Kubernetes docs "
    "on server-side apply; pulumi/pulumi-kubernetes #2491, 2024-12-27"
)
FORCE = "pulumi.com/patchForce"
V2_SWITCH = "RAY_enable_autoscaler_v2"
TOKEN_SINCE = (2, 52, 0)
CLUSTER_TOKEN_SINCE = (2, 55, 0)
_AMOUNTS = ("num-cpus", "num-gpus", "memory", "resources")


def name_unfit(call: Call) -> Refusal | None:
    """Names of services and pods contain the name of a Ray object, so it is short."""
    kind, its = api(call.type), name(call.inputs)
    if call.verb == "delete" or kind.group != "ray.io" or kind.kind not in LONGEST:
        return None
    if len(its) > LONGEST[kind.kind]:
        return event(call, f"{kind.kind} name should be no more than {LONGEST[kind.kind]} characters", "Metadata")
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", its):
        return event(call, f"{kind.kind} name should be a valid DNS1035 label: {its}", "Metadata")
    return None


def amounts_said_twice(call: Call) -> Refusal | None:
    """The resources of a group are in `resources` or in rayStartParams."""
    for spec in _clusters(call):
        for group, called in _groups(spec):
            said = [key for key in _AMOUNTS if _parameters(group).get(key)]
            if said and group.get("resources"):
                words = "resource fields should not be set in both rayStartParams and Resources for "
                return event(call, f"{words}{called} group; please use only one")
    return None


def labels_in_parameters(call: Call) -> Refusal | None:
    """Labels of a group have their own field."""
    for spec in _clusters(call):
        for group, called in _groups(spec):
            if "labels" in _parameters(group):
                words = f"rayStartParams['labels'] is not supported for {called} group"
                return event(call, f"{words}; please use the top-level Labels field instead")
    return None


def replicas_out_of_range(call: Call) -> Refusal | None:
    """Replica limits are not negative, and the minimum does not exceed the maximum."""
    for spec in _clusters(call):
        for group in spec.get("workerGroupSpecs") or ():
            called, least, most = group.get("groupName"), group.get("minReplicas"), group.get("maxReplicas")
            if isinstance(least, int) and least < 0:
                return event(call, f"worker group {called} has negative minReplicas {least}")
            if isinstance(most, int) and most < 0:
                return event(call, f"worker group {called} has negative maxReplicas {most}")
            if isinstance(least, int) and isinstance(most, int) and least > most:
                words = f"worker group {called} has minReplicas {least} greater than maxReplicas {most}"
                return event(call, words)
    return None


def idle_timeout_without_v2(call: Call) -> Refusal | None:
    """An idle timeout of a group needs autoscaler v2, set explicitly."""
    for spec in _clusters(call):
        switched = str(_environment(_container(spec.get("headGroupSpec"))).get(V2_SWITCH)) in ("1", "true")
        for group in spec.get("workerGroupSpecs") or ():
            idle, called = group.get("idleTimeoutSeconds"), group.get("groupName")
            if isinstance(idle, int) and idle < 0:
                return event(call, f"worker group {called}: idleTimeoutSeconds must be non-negative, got {idle}")
            if idle is not None and not _v2(spec) and not switched:
                words = f"worker group {called}: idleTimeoutSeconds is set, but autoscaler v2 is not enabled. "
                return event(call, f"{words}Please set .spec.autoscalerOptions.version to 'v2'")
    return None


def idle_timeout_negative(call: Call) -> Refusal | None:
    """An idle timeout is not negative."""
    for spec in _clusters(call):
        idle = value_at(spec, "autoscalerOptions.idleTimeoutSeconds")
        if isinstance(idle, int) and idle < 0:
            return event(call, f"autoscalerOptions.idleTimeoutSeconds must be non-negative, got {idle}")
    return None


def v2_switched_twice(call: Call) -> Refusal | None:
    """Autoscaler v2 is enabled by version, not by environment, and never without autoscaling."""
    for spec in _clusters(call):
        switch = _environment(_container(spec.get("headGroupSpec"))).get(V2_SWITCH)
        if switch is None:
            continue
        if not spec.get("enableInTreeAutoscaling"):
            if str(switch) in ("1", "true"):
                words = f"environment variable {V2_SWITCH} cannot be set to '{switch}' when enableInTreeAutoscaling is "
                return event(call, f"{words}false. Please set enableInTreeAutoscaling: true to use autoscaler v2")
        elif value_at(spec, "autoscalerOptions.version") is not None:
            words = f"both .spec.autoscalerOptions.version and head Pod env var {V2_SWITCH} are set"
            return event(call, f"{words}, please only use the former")
    return None


def restart_with_v2(call: Call) -> Refusal | None:
    """Autoscaler v2 replaces pods itself: they must not restart."""
    for spec in _clusters(call):
        if not spec.get("enableInTreeAutoscaling") or not _v2(spec):
            continue
        for group, called in _groups(spec):
            if value_at(group, "template.spec.restartPolicy") not in (None, "", "Never"):
                of = "head Pod" if called == "Head" else f"worker group {called}"
                return event(call, f"restartPolicy for {of} should be Never or unset when using autoscaler V2")
    return None


def token_without_version(call: Call) -> Refusal | None:
    """Tokens need Ray 2.52, by rayVersion."""
    for spec in _clusters(call):
        if value_at(spec, "authOptions.mode") != "token":
            continue
        said = spec.get("rayVersion")
        if not said:
            words = (
                "authOptions.mode is 'token' but RayVersion was not specified. Ray version 2.52.0 or later is required"
            )
            return event(call, words)
        version = _version(said)
        if version is None:
            return event(call, f"authOptions.mode is 'token' but RayVersion format is invalid: {said}")
        if version < TOKEN_SINCE:
            return event(call, f"authOptions.mode is 'token' but minimum Ray version is 2.52.0, got {said}")
    return None


def cluster_token_misused(call: Call) -> Refusal | None:
    """Kubernetes tokens need Ray 2.55, the token mode, no Secret, and no RayJob."""
    for spec in _clusters(call):
        options = spec.get("authOptions") or {}
        if not options.get("enableK8sTokenAuth"):
            continue
        if api(call.type).kind == "RayJob":
            return event(call, "K8s token auth mode is currently not supported for RayJob")
        if options.get("mode") != "token":
            words = "authOptions.enableK8sTokenAuth is enabled but authOptions.mode not set to 'token'"
            return event(call, words)
        version = _version(spec.get("rayVersion"))
        if version is not None and version < CLUSTER_TOKEN_SINCE:
            words = "authOptions.enableK8sTokenAuth is enabled but minimum Ray version is 2.55.0, got "
            return event(call, f"{words}{spec.get('rayVersion')}")
        if options.get("secretName"):
            words = "authOptions.enableK8sTokenAuth is enabled and authOptions.secretName is also set"
            return event(call, words)
    return None


def groups_written_by_others(call: Call) -> Refusal | None:
    """The worker groups are one list, without a merge key: the last writer owns all of it."""
    groups = value_at(call.live, "spec.workerGroupSpecs") or ()
    kind, forced = api(call.type), (value_at(call.inputs, "metadata.annotations") or {}).get(FORCE)
    if call.verb != "update" or (kind.group, kind.kind) != ("ray.io", "RayCluster") or forced == "true":
        return None
    # Ray's autoscaler sets no field manager, so the API server uses the name of its HTTP client.
    marks = {"python-requests": any("scaleStrategy" in group for group in groups)}
    marks["kueue"] = any(
        "kueue.x-k8s.io/podset" in (value_at(group, "template.metadata.labels") or {}) for group in groups
    )
    for who in (who for who, wrote in marks.items() if wrote):
        words = f'Apply failed with 1 conflict: conflict with "{who}" using ray.io/v1: .spec.workerGroupSpecs'
        return Refusal("409 Conflict", words, APPLY)
    return None


def event(call: Call, words: str, about: str = "Spec") -> Refusal:
    """Return the operator's event for an object that it does not reconcile."""
    kind = api(call.type).kind
    return Refusal(f"KubeRay event Invalid{kind}{about}", f"{kind} {call.id}: {words}", KUBERAY)


def _clusters(call: Call) -> Iterator[Json]:
    kind = api(call.type)
    if call.verb == "delete" or kind.group != "ray.io":
        return
    spec = value_at(call.inputs, "spec" if kind.kind == "RayCluster" else "spec.rayClusterSpec")
    if isinstance(spec, dict):
        yield spec


def _groups(spec: Json) -> Iterator[tuple[Json, str]]:
    if isinstance(spec.get("headGroupSpec"), dict):
        yield spec["headGroupSpec"], "Head"
    for group in spec.get("workerGroupSpecs") or ():
        yield group, str(group.get("groupName"))


def _parameters(group: Json) -> Json:
    parameters: Json = group.get("rayStartParams") or {}
    return parameters


def _container(group: Any) -> Any:
    """Return the Ray container, which is the first one."""
    return value_at(group, "template.spec.containers.0")


def _environment(container: Any) -> dict[str, Any]:
    return {variable.get("name"): variable.get("value", "") for variable in value_at(container, "env") or ()}


def _v2(spec: Json) -> bool:
    return bool(value_at(spec, "autoscalerOptions.version") == "v2")


def _version(said: Any) -> tuple[int, ...] | None:
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", str(said))
    return tuple(int(part or 0) for part in found.groups()) if found else None


RULES = (
    name_unfit,
    amounts_said_twice,
    labels_in_parameters,
    replicas_out_of_range,
    idle_timeout_without_v2,
    idle_timeout_negative,
    v2_switched_twice,
    restart_with_v2,
    token_without_version,
    cluster_token_misused,
    groups_written_by_others,
)
