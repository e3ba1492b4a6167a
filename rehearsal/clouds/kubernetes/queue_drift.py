"""Changes by Kueue and KubeRay to the objects of a queue and to queued jobs.

Kueue's webhook suspends a job with the queue's label on creation; after admission, the controller starts it and writes
node selectors into each pod template. Both write whole objects, so amounts are in Go's canonical form. Source:
kubernetes-sigs/kueue: pkg/podset/podset.go, pkg/controller/jobframework/reconciler.go, 0.19.2, 2026-08-22;
ray-project/kuberay: ray-operator/controllers/ray/rayjob_controller.go, v1.6.2, 2026-06-17.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

from rehearsal.clouds.kind import Json, value_at
from rehearsal.clouds.kubernetes.admission import PodSet, Queue, assign, pod_sets
from rehearsal.clouds.kubernetes.computed import BEGAN
from rehearsal.clouds.kubernetes.kueue_shapes import (
    ADMISSION_CHECK,
    CLUSTER_QUEUE,
    GROUP,
    LOCAL_QUEUE,
    RESOURCE_FLAVOR,
    TOPOLOGY,
)
from rehearsal.clouds.kubernetes.quantities import rewritten
from rehearsal.clouds.kubernetes.queues import FINALIZER, QUEUE, installed
from rehearsal.clouds.kubernetes.ray_job import FINALIZER as JOB_FINALIZER
from rehearsal.clouds.state import View


def admitted(kind: str, live: Json, state: View) -> Json:
    """Return a queued job, running if its queue can admit it, else suspended; {} for other objects."""
    metadata: Json = live.get("metadata") or {}
    name = (metadata.get("labels") or {}).get(QUEUE)
    if not name or not installed(state):
        return {}
    spec: Json = copy.deepcopy(rewritten(live.get("spec") or {}))
    local = state.get(LOCAL_QUEUE, f"{metadata.get('namespace')}/{name}")
    cluster_queue = str(value_at(local, "spec.clusterQueue"))
    queue = _queue(state, cluster_queue)
    sets = pod_sets(kind, {"spec": spec})
    flavors, why = assign(sets, queue) if queue is not None else ([], ["no queue"])
    spec["suspend"] = bool(why) or queue is None
    if queue is None or why:
        return {"spec": spec}
    for one, flavor in zip(sets, flavors, strict=True):
        template = value_at({"spec": spec}, one.path)
        if template is None:
            continue
        labels = {"podset": one.name, "local-queue-name": name, "cluster-queue-name": cluster_queue}
        annotations = {f"{GROUP}/workload": f"{kind.lower()}-{metadata.get('name')}"}
        if _provisioned(queue, flavor, one):
            annotations["autoscaling.x-k8s.io/consume-provisioning-request"] = f"{kind.lower()}-{name}-1"
        own: Json = template.setdefault("metadata", {})
        own["labels"] = {**(own.get("labels") or {}), **{f"{GROUP}/{key}": value for key, value in labels.items()}}
        own["annotations"] = {**(own.get("annotations") or {}), **annotations}
        _placed(template.setdefault("spec", {}), queue.flavors.get(flavor, {}))
    return {"spec": spec}


def ray_job(live: Json, state: View) -> Json:
    """Add the operator's finalizer and status to a RayJob; Kueue starts it."""
    # The operator updates the whole object to add the finalizer.
    spec: Json = admitted("RayJob", live, state).get("spec") or rewritten(live.get("spec") or {})
    waits = bool(spec.get("suspend"))
    status = {
        "jobDeploymentStatus": "Suspended" if waits else "Initializing",
        "rayClusterName": "" if waits else f"{value_at(live, 'metadata.name')}-vwxyz",
        "observedGeneration": 1,
    }
    return {"metadata": {"finalizers": [JOB_FINALIZER]}, "spec": spec, "status": status}


def job(live: Json, state: View) -> Json:
    """Return a queued Job."""
    return admitted("Job", live, state)


def with_finalizer(live: Json, _state: View) -> Json:
    """Add Kueue's finalizer and the status "active"."""
    conditions = [{"type": "Active", "status": "True", "reason": "Ready", "lastTransitionTime": BEGAN}]
    return {
        "metadata": {"finalizers": [FINALIZER]},
        "spec": rewritten(live.get("spec") or {}),
        "status": {"conditions": conditions},
    }


def local_queue(_live: Json, _state: View) -> Json:
    """Add the counts of a LocalQueue."""
    counts = dict.fromkeys(("pendingWorkloads", "reservingWorkloads", "admittedWorkloads"), 0)
    return {"status": {**counts, "conditions": [{"type": "Active", "status": "True", "reason": "Ready"}]}}


def _queue(state: View, name: str) -> Queue | None:
    live = state.get(CLUSTER_QUEUE, name)
    if live is None:
        return None
    levels = {
        id_: [str(level.get("nodeLabel")) for level in spec.get("levels") or ()]
        for id_, spec in _specs(state, TOPOLOGY).items()
    }
    return Queue(live.get("spec") or {}, _specs(state, RESOURCE_FLAVOR), levels)


def _specs(state: View, type_: str) -> dict[str, Json]:
    return {id_: live.get("spec") or {} for _, id_, live in state.all(type_)}


def _provisioned(queue: Queue, flavor: str, one: PodSet) -> bool:
    checks = value_at(queue.spec, "admissionChecksStrategy.admissionChecks") or ()
    named = any(flavor in (check.get("onFlavors") or [flavor]) for check in checks)
    return named and any("gpu" in resource for resource in one.asks())


def _placed(spec: Json, flavor: Json) -> None:
    """Add the flavor's node selector; tolerations that the pods already have are not added again."""
    spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **(flavor.get("nodeLabels") or {})}
    before = spec.get("tolerations") or []
    more = [toleration for toleration in flavor.get("tolerations") or () if toleration not in before]
    if more:
        spec["tolerations"] = [*before, *more]


DRIFTS: Mapping[str, Callable[[Json, View], Json]] = {
    ADMISSION_CHECK: with_finalizer,
    CLUSTER_QUEUE: with_finalizer,
    RESOURCE_FLAVOR: with_finalizer,
    TOPOLOGY: with_finalizer,
    LOCAL_QUEUE: local_queue,
    "kubernetes:batch/v1:Job": job,
    "kubernetes:ray.io/v1:RayJob": ray_job,
}
