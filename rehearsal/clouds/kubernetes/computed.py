"""Fields that the API server and the first round of controllers add to a new or changed object."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Mapping

from rehearsal.clouds.kind import Call, Json, value_at
from rehearsal.clouds.kubernetes import kueue_shapes as kueue
from rehearsal.clouds.kubernetes import queues
from rehearsal.clouds.kubernetes.connection import OWNER, here
from rehearsal.clouds.kubernetes.identity import NAMESPACE, api, name, namespace

BEGAN = "2026-11-01T00:00:00Z"
"""Creation time of every object: fixed, so that reports can be compared."""


def added(call: Call) -> Json:
    """Return the object's metadata, and the additions of its kind."""
    cluster, _ = here(call)
    more = _MORE.get(call.type)
    return {OWNER: cluster, "metadata": _metadata(call), **(more(call) if more is not None else {})}


def _metadata(call: Call) -> Json:
    asked: Json = call.now.get("metadata") or {}
    before: Json = call.live.get("metadata") or {}
    changed = call.live.get("spec") != call.now.get("spec")
    generation = int(before.get("generation", 0)) + (1 if changed or not before else 0)
    metadata: Json = {
        **asked,
        "uid": before.get("uid") or str(uuid.uuid5(uuid.NAMESPACE_URL, f"{call.type}/{call.id}")),
        "creationTimestamp": before.get("creationTimestamp") or BEGAN,
        "resourceVersion": str(int(before.get("resourceVersion", "0")) + 1),
    }
    if "spec" in call.inputs:
        metadata["generation"] = generation
    if api(call.type).namespaced:
        metadata["namespace"] = namespace(call.inputs, call.config)
    if call.type == NAMESPACE:
        # Kubernetes docs, automatic labelling of namespaces; since 1.22.
        metadata["labels"] = {**(asked.get("labels") or {}), "kubernetes.io/metadata.name": name(call.inputs)}
    return metadata


def _namespace(call: Call) -> Json:
    return {"status": {"phase": "Active"}, "spec": {**(call.now.get("spec") or {}), "finalizers": ["kubernetes"]}}


def _secret(call: Call) -> Json:
    """Return plain text encoded, as it is read back."""
    written = call.now.get("stringData") or {}
    encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in written.items()}
    return {"type": call.now.get("type") or "Opaque", "data": {**(call.now.get("data") or {}), **encoded}}


def _service(call: Call) -> Json:
    """Return an address in 34.118.224.0/20, GKE's own range for services. GKE docs, unverified, 2026-11."""
    spec: Json = call.now.get("spec") or {}
    address = spec.get("clusterIP") or f"34.118.{224 + _number(call.id) % 16}.{1 + _number(call.id) // 16 % 254}"
    type_ = spec.get("type") or "ClusterIP"
    given = {} if type_ == "ExternalName" else {"clusterIP": address, "clusterIPs": [address]}
    return {"spec": {"type": type_, "sessionAffinity": "None", **spec, **given}, "status": {"loadBalancer": {}}}


def _daemon_set(call: Call) -> Json:
    """Return the status of a DaemonSet without matching nodes, which is ready immediately."""
    counts = ("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady")
    spec: Json = call.now.get("spec") or {}
    return {
        "spec": {"updateStrategy": {"type": "RollingUpdate"}, "revisionHistoryLimit": 10, **spec},
        "status": {**dict.fromkeys(counts, 0), "observedGeneration": 1},
    }


def _job(call: Call) -> Json:
    """Return defaults of a Job, and the labels of its pods. It has no result, because no pod runs.

    Kubernetes: pkg/apis/batch/v1/defaults.go; its labels since 1.27. Unverified, 2026-11.
    """
    spec: Json = call.now.get("spec") or {}
    uid = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{call.type}/{call.id}"))
    own = {"batch.kubernetes.io/controller-uid": uid}
    defaults = {"completionMode": "NonIndexed", "backoffLimit": 6, "suspend": False, "manualSelector": False}
    if spec.get("podFailurePolicy") is None:
        defaults["podReplacementPolicy"] = "TerminatingOrFailed"
    template: Json = spec.get("template") or {}
    metadata: Json = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), **own, "batch.kubernetes.io/job-name": name(call.inputs)}
    labelled = {**template, "metadata": {**metadata, "labels": labels}}
    waits = _suspended(call)
    live = call.live.get("status") or {"active": 0, "ready": 0}
    return {
        "spec": {**defaults, **spec, "template": labelled, "selector": {"matchLabels": own}, **waits},
        "status": live,
    }


def _claim(call: Call) -> Json:
    spec: Json = call.now.get("spec") or {}
    status = call.live.get("status") or {"phase": "Pending"}
    return {"spec": {"volumeMode": "Filesystem", "storageClassName": "standard-rwo", **spec}, "status": status}


def _ray_cluster(call: Call) -> Json:
    """Return defaults of the CRD: a group without a number of workers has none.

    ray-project/kuberay: ray-operator/config/crd/bases, v1.6.2, 2026-06-17.
    """
    spec = {**_with_groups(call.now.get("spec") or {}), **_suspended(call)}
    return {"spec": spec, "status": call.live.get("status") or {}}


def _ray_job(call: Call) -> Json:
    """Return defaults of the CRD, including those of its cluster; the source is that of the RayCluster."""
    defaults = {"submissionMode": "K8sJobMode", "backoffLimit": 0, "ttlSecondsAfterFinished": 0}
    spec: Json = {**defaults, **(call.now.get("spec") or {}), **_suspended(call)}
    if spec.get("rayClusterSpec"):
        spec["rayClusterSpec"] = _with_groups(spec["rayClusterSpec"])
    return {"spec": spec, "status": call.live.get("status") or {}}


def _with_groups(spec: Json) -> Json:
    defaults = {"replicas": 0, "minReplicas": 0, "maxReplicas": 2147483647, "numOfHosts": 1}
    return {**spec, "workerGroupSpecs": [{**defaults, **group} for group in spec.get("workerGroupSpecs") or ()]}


def _suspended(call: Call) -> Json:
    """Suspend a new job in a queue, as Kueue's webhook does (kubernetes-sigs/kueue:
    pkg/controller/jobframework/defaults.go, 0.19.2, 2026-08-22)."""
    waits = call.verb == "create" and (value_at(call.inputs, "metadata.labels") or {}).get(queues.QUEUE)
    return {"suspend": True} if waits and queues.installed(call.state) else {}


def _cluster_queue(call: Call) -> Json:
    """Return defaults of the CRD (kubernetes-sigs/kueue: config/components/crd/bases, 0.19.2, 2026-08-22)."""
    defaults = {
        "queueingStrategy": "BestEffortFIFO",
        "stopPolicy": "None",
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
        "preemption": {
            "withinClusterQueue": "Never",
            "reclaimWithinCohort": "Never",
            "borrowWithinCohort": {"policy": "Never"},
        },
    }
    return {"spec": {**defaults, **(call.now.get("spec") or {})}, "status": call.live.get("status") or {}}


def _local_queue(call: Call) -> Json:
    return {"spec": {"stopPolicy": "None", **(call.now.get("spec") or {})}, "status": call.live.get("status") or {}}


def _provisioning(call: Call) -> Json:
    spec: Json = call.now.get("spec") or {}
    retries = {"backoffLimitCount": 3, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800}
    return {"spec": {**spec, "retryStrategy": {**retries, **(spec.get("retryStrategy") or {})}}}


def _number(text: str) -> int:
    return uuid.uuid5(uuid.NAMESPACE_URL, text).int


_MORE: Mapping[str, Callable[[Call], Json]] = {
    NAMESPACE: _namespace,
    "kubernetes:core/v1:Secret": _secret,
    "kubernetes:core/v1:Service": _service,
    "kubernetes:core/v1:PersistentVolumeClaim": _claim,
    "kubernetes:apps/v1:DaemonSet": _daemon_set,
    "kubernetes:batch/v1:Job": _job,
    "kubernetes:ray.io/v1:RayCluster": _ray_cluster,
    "kubernetes:ray.io/v1:RayJob": _ray_job,
    kueue.CLUSTER_QUEUE: _cluster_queue,
    kueue.LOCAL_QUEUE: _local_queue,
    kueue.PROVISIONING: _provisioning,
}
