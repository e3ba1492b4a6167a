"""Readiness conditions that `up` waits for. Pure, except for reads of related objects.

As in pulumi-kubernetes: provider/pkg/await/awaiters.go and the files of the kinds; DaemonSets by the kstatus of
sigs.k8s.io/cli-utils (pkg/kstatus/status/core.go). 94977969, 2026-07-01; kstatus unverified, 2026-11.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rehearsal.cluster.objects import annotated, note
from rehearsal.engine.kind import Json

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


def _service(live: Json, look: Look, _existed: bool) -> str | None:
    spec, metadata = live.get("spec") or {}, live["metadata"]
    if not spec.get("selector"):
        return None
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

_NOT_AWAITED = frozenset({"apps/v1/Deployment", "apps/v1/StatefulSet", "batch/v1/Job", "v1/Pod"})
"""Kinds with further conditions, which no stack of this project creates and awaits."""

REFRESHED = frozenset({"apps/v1/DaemonSet", "v1/Service", *_NOT_AWAITED})
"""Kinds whose readiness a refresh also checks (awaiters.go, awaitRead)."""

LEFT_TO_GO = frozenset({"v1/Namespace", "apps/v1/DaemonSet", *_NOT_AWAITED})
"""Kinds whose deletion is not awaited either where the program skips waiting (metadata/overrides.go)."""
