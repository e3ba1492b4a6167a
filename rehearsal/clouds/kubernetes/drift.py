"""What controllers change by themselves after a while.

A refresh shows only what the program asked for: the provider applies on the server's side and owns those fields alone.
So a program that says `replicas` of an autoscaled group sees the autoscaler's number as a difference; one that does not
say it sees nothing.
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
    """The autoscaler adds a worker to each group that may grow, and the operator reports the cluster.

    A cluster in a queue has no autoscaler; Kueue lets it run, or not.
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
    """The controller counts the template's generations in an annotation. From memory, 2026-11."""
    return {"metadata": {"annotations": {"deprecated.daemonset.template.generation": "1"}}}


def network(_live: Json, _state: View) -> Json:
    """A Network is ready, and marked as in use."""
    ready = [_true("Ready", "NetworkReady"), _true("ParamsReady", "GNPParamsReady")]
    return {"metadata": {"annotations": {"networking.gke.io/in-use": "true"}}, "status": {"conditions": ready}}


def param_set(live: Json, state: View) -> Json:
    """A parameter set has a finalizer, and says which Network refers to it."""
    own = (live.get("metadata") or {}).get("name")
    referring = [
        id_
        for _, id_, other in state.all(NETWORK)
        if ((other.get("spec") or {}).get("parametersRef") or {}).get("name") == own
    ]
    status = {"conditions": [_true("Ready", "GNPReady")], "networkName": referring[0] if referring else ""}
    return {"metadata": {"finalizers": ["networking.gke.io/gnp-controller"]}, "status": status}


def claim(live: Json, _state: View) -> Json:
    """A claim is bound to a volume: to the one that it names, or to one that was made for it. From memory, 2026-11."""
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
