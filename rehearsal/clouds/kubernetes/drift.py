"""Changes that controllers make over time.

A refresh shows only the program's fields, because the provider uses server-side apply and owns only those. If the
program sets `replicas` of an autoscaled group, the autoscaler's number shows as a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rehearsal.clouds.kind import Json
from rehearsal.clouds.kubernetes import queue_drift
from rehearsal.clouds.kubernetes.computed import BEGAN
from rehearsal.clouds.kubernetes.device_networks import NETWORK, PARAM_SET
from rehearsal.clouds.state import View

KUBERAY = "ray-project/kuberay docs, autoscaling: replicas and scaleStrategy are the autoscaler's; v1.6.2, 2026-06-17"
CONTROLLER = "kubernetes/cloud-provider-gcp: pkg/controller/gkenetworkparamset, 006bd8b8, read 2026-11"


def ray_cluster(live: Json, state: View) -> Json:
    """Add a worker to each group that may grow, as the autoscaler does, and report the cluster's status.

    A cluster in a queue has no autoscaler; Kueue decides whether it runs.
    """
    queued = queue_drift.admitted("RayCluster", live, state)
    if queued:
        waits = queued["spec"]["suspend"]
        return {**queued, "status": {"state": "suspended" if waits else "ready", "observedGeneration": 1}}
    spec: Json = live.get("spec") or {}
    groups = []
    for group in spec.get("workerGroupSpecs") or ():
        least, most = group.get("minReplicas", 0), group.get("maxReplicas", 0)
        now = max(group.get("replicas", 0), least)
        grown = {"replicas": min(now + 1, most), "scaleStrategy": {"workersToDelete": []}}
        groups.append(grown if spec.get("enableInTreeAutoscaling") else {})
    workers = sum(group.get("replicas", 0) for group in groups)
    condition = {
        "type": "HeadPodReady",
        "status": "True",
        "reason": "HeadPodRunningAndReady",
        "lastTransitionTime": BEGAN,
    }
    status = {"state": "ready", "desiredWorkerReplicas": workers, "observedGeneration": 1, "conditions": [condition]}
    return {"spec": {"workerGroupSpecs": groups} if groups else {}, "status": status}


def daemon_set(_live: Json, _state: View) -> Json:
    """Count the template's generations in an annotation, as the controller does. Unverified, 2026-11."""
    return {"metadata": {"annotations": {"deprecated.daemonset.template.generation": "1"}}}


def network(_live: Json, _state: View) -> Json:
    """Mark a Network as ready and in use."""
    ready = [_true("Ready", "NetworkReady"), _true("ParamsReady", "GNPParamsReady")]
    return {"metadata": {"annotations": {"networking.gke.io/in-use": "true"}}, "status": {"conditions": ready}}


def param_set(live: Json, state: View) -> Json:
    """Add the finalizer of a parameter set and the name of its Network."""
    own = (live.get("metadata") or {}).get("name")
    referring = [
        id_
        for _, id_, other in state.all(NETWORK)
        if ((other.get("spec") or {}).get("parametersRef") or {}).get("name") == own
    ]
    status = {"conditions": [_true("Ready", "GNPReady")], "networkName": referring[0] if referring else ""}
    return {"metadata": {"finalizers": ["networking.gke.io/gnp-controller"]}, "status": status}


def claim(live: Json, _state: View) -> Json:
    """Bind a claim to the volume that it names, or to a new one. Unverified, 2026-11."""
    volume = (live.get("spec") or {}).get("volumeName") or f"pvc-{(live.get('metadata') or {}).get('uid', '')}"
    annotations = {"pv.kubernetes.io/bind-completed": "yes"}
    return {"metadata": {"annotations": annotations}, "spec": {"volumeName": volume}, "status": {"phase": "Bound"}}


def _true(type_: str, reason: str) -> Json:
    return {"type": type_, "status": "True", "reason": reason, "lastTransitionTime": BEGAN}


DRIFTS: Mapping[str, Callable[[Json, View], Json]] = {
    "kubernetes:ray.io/v1:RayCluster": ray_cluster,
    "kubernetes:apps/v1:DaemonSet": daemon_set,
    "kubernetes:core/v1:PersistentVolumeClaim": claim,
    NETWORK: network,
    PARAM_SET: param_set,
    **queue_drift.DRIFTS,
}
