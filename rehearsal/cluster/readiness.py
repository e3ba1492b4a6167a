"""Readiness conditions that `up` waits for. Pure, except for reads of related objects.

As in pulumi-kubernetes: provider/pkg/await/awaiters.go and the files of the kinds; DaemonSets by the kstatus of
sigs.k8s.io/cli-utils (pkg/kstatus/status/core.go). 94977969, 2026-07-01; kstatus unverified, 2026-11.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rehearsal.clouds.kind import Json
from rehearsal.cluster.objects import annotated, note

Look = Callable[[str, str, str | None, str | None], list[Json]]
"""Reader of related objects: (apiVersion, kind, namespace, label selector) to objects."""


class NeverReadyError(Exception):
    """The object will never become ready. The message is the reason."""


def skips(inputs: Json) -> bool:
    """Return whether the program does not wait for it."""
    return annotated(inputs, "skipAwait")


def unready(inputs: Json, live: Json, look: Look, *, existed: bool) -> str | None:
    """Return why the object is not ready yet, or None. `existed` means an update or refresh, not a creation.

    Raises:
        NeverReadyError: it has failed permanently.
    """
    if skips(inputs):
        return None
    if note(inputs, "waitFor"):
        raise NeverReadyError("pulumi.com/waitFor: the rehearsal does not support it; use skipAwait")
    rule = _RULES.get(f"{live.get('apiVersion')}/{live.get('kind')}")
    return rule(live, look, existed) if rule else None


def _deployment(live: Json, _look: Look, _existed: bool) -> str | None:
    status, wanted = live.get("status") or {}, (live.get("spec") or {}).get("replicas", 1)
    if _stale(live):
        return "the controller has not seen it yet"
    progress = _condition(live, "Progressing")
    if progress.get("status") == "False":
        raise NeverReadyError(str(progress.get("message") or progress.get("reason")))
    done = progress.get("status") == "True" and progress.get("reason") == "NewReplicaSetAvailable"
    if done and status.get("updatedReplicas", 0) == wanted and _true(live, "Available"):
        return None
    return f"{status.get('readyReplicas', 0)} of {wanted} replicas are ready"


def _daemon_set(live: Json, _look: Look, _existed: bool) -> str | None:
    """Also with `OnDelete`: an update then waits until the old pods are deleted manually."""
    status = live.get("status") or {}
    wanted = status.get("desiredNumberScheduled")
    if _stale(live) or wanted is None:
        return "the controller has not seen it yet"
    for count in ("currentNumberScheduled", "updatedNumberScheduled", "numberAvailable", "numberReady"):
        if status.get(count, 0) < wanted:
            return f"{count} is {status.get(count, 0)} of {wanted}"
    return None


def _stateful_set(live: Json, _look: Look, _existed: bool) -> str | None:
    status, wanted = live.get("status") or {}, (live.get("spec") or {}).get("replicas", 1)
    if _stale(live):
        return "the controller has not seen it yet"
    if status.get("readyReplicas", 0) < wanted or status.get("currentRevision") != status.get("updateRevision"):
        return f"{status.get('readyReplicas', 0)} of {wanted} replicas are ready"
    return None


def _job(live: Json, _look: Look, _existed: bool) -> str | None:
    status = live.get("status") or {}
    failed = _condition(live, "Failed")
    if failed.get("status") == "True" and failed.get("reason") in ("BackoffLimitExceeded", "DeadlineExceeded"):
        raise NeverReadyError(f"[{failed.get('reason')}] {failed.get('message')}")
    if status.get("startTime") and _true(live, "Complete"):
        return None
    return f"active: {status.get('active', 0)}, succeeded: {status.get('succeeded', 0)}"


def _pod(live: Json, _look: Look, _existed: bool) -> str | None:
    if (live.get("status") or {}).get("phase") == "Succeeded":
        return None
    return next(
        (f"{type_} is not True" for type_ in ("PodScheduled", "Initialized", "Ready") if not _true(live, type_)), None
    )


def _service(live: Json, look: Look, _existed: bool) -> str | None:
    spec, metadata = live.get("spec") or {}, live["metadata"]
    if spec.get("type") == "ExternalName" or not spec.get("selector"):
        return None
    if spec.get("type") == "LoadBalancer" and not ((live.get("status") or {}).get("loadBalancer") or {}).get("ingress"):
        return "it has no external address"
    selector = f"kubernetes.io/service-name={metadata['name']}"
    slices = look("discovery.k8s.io/v1", "EndpointSlice", metadata.get("namespace"), selector)
    points = [point for each in slices for point in each.get("endpoints") or ()]
    if any((point.get("conditions") or {}).get("ready", True) for point in points):
        return None
    return "it has no ready pod"


def _volume(live: Json, _look: Look, _existed: bool) -> str | None:
    phase = (live.get("status") or {}).get("phase")
    return None if phase in ("Available", "Bound") else f"its phase is {phase}"


def _claim(live: Json, look: Look, existed: bool) -> str | None:
    phase = (live.get("status") or {}).get("phase")
    class_ = (live.get("spec") or {}).get("storageClassName")
    found = [
        each for each in look("storage.k8s.io/v1", "StorageClass", None, None) if each["metadata"]["name"] == class_
    ]
    late = bool(found) and found[0].get("volumeBindingMode") == "WaitForFirstConsumer"
    if phase == "Bound" and (existed or not late):
        return None
    if late and phase == "Pending":
        return None
    return f"its phase is {phase}"


_RULES: Mapping[str, Callable[[Json, Look, bool], str | None]] = {
    "apps/v1/Deployment": _deployment,
    "apps/v1/DaemonSet": _daemon_set,
    "apps/v1/StatefulSet": _stateful_set,
    "batch/v1/Job": _job,
    "v1/Pod": _pod,
    "v1/Service": _service,
    "v1/PersistentVolume": _volume,
    "v1/PersistentVolumeClaim": _claim,
}
"""Kinds with readiness conditions. Other kinds, including custom ones, are ready when they exist."""

REFRESHED = frozenset(
    {"apps/v1/Deployment", "apps/v1/DaemonSet", "apps/v1/StatefulSet", "batch/v1/Job", "v1/Pod", "v1/Service"}
)
"""Kinds whose readiness a refresh also checks (awaiters.go, awaitRead)."""

LEFT_TO_GO = frozenset(
    {"v1/Namespace", "v1/Pod", "apps/v1/DaemonSet", "apps/v1/Deployment", "apps/v1/StatefulSet", "batch/v1/Job"}
)
"""Kinds whose deletion is not awaited either where the program skips waiting (metadata/overrides.go)."""


def _condition(live: Json, type_: str) -> Json:
    for condition in (live.get("status") or {}).get("conditions") or ():
        if condition.get("type") == type_:
            return dict(condition)
    return {}


def _true(live: Json, type_: str) -> bool:
    return _condition(live, type_).get("status") == "True"


def _stale(live: Json) -> bool:
    seen = (live.get("status") or {}).get("observedGeneration", 0)
    return bool(seen < live["metadata"].get("generation", 0))
