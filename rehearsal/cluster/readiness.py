"""Readiness conditions that `up` waits for. Pure, except for reads of related objects.

As in pulumi-kubernetes: provider/pkg/await/awaiters.go and the files of the kinds; DaemonSets by the kstatus of
sigs.k8s.io/cli-utils (pkg/kstatus/status/core.go). 94977969, 2026-07-01; kstatus unverified, 2026-11.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from rehearsal.cluster.objects import annotated, note
from rehearsal.engine.kind import Json, value_at

SETTLED_S = 10
"""Seconds for which the endpoints of a new Service do not change before the provider takes it for ready."""

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
    kind = f"{live.get('apiVersion')}/{live.get('kind')}"
    if kind in _NOT_AWAITED:
        raise NeverReadyError(f"{kind}: the rehearsal does not know when it is ready; use skipAwait")
    rule = _RULES.get(kind)
    return rule(live, look, existed) if rule else None


def _daemon_set(live: Json, _look: Look, _existed: bool) -> str | None:
    """Also with `OnDelete`: an update then waits until the old pods are deleted manually."""
    status = live.get("status") or {}
    wanted = status.get("desiredNumberScheduled")
    if status.get("observedGeneration", 0) < live["metadata"].get("generation", 0) or wanted is None:
        return "the controller has not seen it yet"
    for count in ("currentNumberScheduled", "updatedNumberScheduled", "numberAvailable", "numberReady"):
        if status.get(count, 0) < wanted:
            return f"{count} is {status.get(count, 0)} of {wanted}"
    return None


def _service(live: Json, look: Look, existed: bool) -> str | None:
    """No pod is needed, but those that it has are ready. A new Service's endpoints have settled (service.go, await)."""
    spec, metadata = live.get("spec") or {}, live["metadata"]
    if spec.get("type") == "LoadBalancer" and not value_at(live, "status.loadBalancer.ingress"):
        return "it has no address of a load balancer"
    if spec.get("type") == "ExternalName" or spec.get("clusterIP") == "None" or not spec.get("selector"):
        return None
    there = look("v1", "Endpoints", metadata.get("namespace"), None)
    points = next((each for each in there if each["metadata"]["name"] == metadata["name"]), None)
    if any(subset.get("notReadyAddresses") for subset in (points or {}).get("subsets") or ()):
        return "it has pods that are not ready"
    if existed or (points is not None and _age_s(points) >= SETTLED_S):
        return None
    return f"its endpoints have not been unchanged for {SETTLED_S} s"


def _age_s(live: Json) -> float:
    """Return the seconds since an object was written."""
    metadata = live["metadata"]
    times = [each["time"] for each in metadata.get("managedFields") or () if "time" in each]
    written = max(times, default=metadata.get("creationTimestamp", ""))
    return (datetime.now(UTC) - datetime.fromisoformat(written)).total_seconds()


def _volume(live: Json, _look: Look, _existed: bool) -> str | None:
    phase = (live.get("status") or {}).get("phase")
    return None if phase in ("Available", "Bound") else f"its phase is {phase}"


def _claim(live: Json, look: Look, existed: bool) -> str | None:
    phase = (live.get("status") or {}).get("phase")
    class_ = (live.get("spec") or {}).get("storageClassName")
    late = any(
        each["metadata"]["name"] == class_ and each.get("volumeBindingMode") == "WaitForFirstConsumer"
        for each in look("storage.k8s.io/v1", "StorageClass", None, None)
    )
    ready = (phase == "Bound" and (existed or not late)) or (phase == "Pending" and late)
    return None if ready else f"its phase is {phase}"


_RULES: Mapping[str, Callable[[Json, Look, bool], str | None]] = {
    "apps/v1/DaemonSet": _daemon_set,
    "v1/Service": _service,
    "v1/PersistentVolume": _volume,
    "v1/PersistentVolumeClaim": _claim,
}
"""Kinds with readiness conditions. Other kinds, including custom ones, are ready when they exist."""

FIXED_WAIT_S = {"v1/PersistentVolume": 300.0, "v1/PersistentVolumeClaim": 300.0}
"""Waits of kinds for which the provider ignores the program's timeouts (awaiters.go, WatchUntil)."""

_OF_PODS = frozenset({"apps/v1/Deployment", "apps/v1/StatefulSet", "batch/v1/Job", "v1/Pod"})
_INGRESS = "networking.k8s.io/v1/Ingress"
_NOT_AWAITED = _OF_PODS | {_INGRESS, "v1/ReplicationController", "v1/ResourceQuota"}
"""Kinds with further conditions, which no stack of this project creates and awaits."""

REFRESHED = frozenset({"apps/v1/DaemonSet", "v1/Service", _INGRESS, *_OF_PODS})
"""Kinds whose readiness a refresh also checks (awaiters.go, awaitRead)."""

LEFT_TO_GO = frozenset({"v1/Namespace", "apps/v1/DaemonSet", *_OF_PODS})
"""Kinds whose deletion is not awaited either where the program skips waiting (metadata/overrides.go)."""
