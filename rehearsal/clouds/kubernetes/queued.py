"""Rules of Kueue's webhooks for queued jobs: Jobs, RayClusters and RayJobs with the queue's label.

A label that names a missing LocalQueue is valid for Kueue: the job waits until the LocalQueue exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rehearsal.clouds.kind import Call, Json, Refusal, value_at
from rehearsal.clouds.kubernetes.identity import api
from rehearsal.clouds.kubernetes.kueue_shapes import GROUP
from rehearsal.clouds.kubernetes.pods import templates
from rehearsal.clouds.kubernetes.queues import QUEUE, READ, installed

RAY_CLUSTER = f"kubernetes-sigs/kueue: pkg/controller/jobs/raycluster/raycluster_webhook.go, {READ}"
RAY_JOB = f"kubernetes-sigs/kueue: pkg/controller/jobs/rayjob/rayjob_webhook.go, {READ}"
COMMON = f"kubernetes-sigs/kueue: pkg/controller/jobs/raycluster/common.go, {READ}"
FRAMEWORK = f"kubernetes-sigs/kueue: pkg/controller/jobframework/validation.go and tas_validation.go, {READ}"

KINDS = {("batch", "Job"), ("ray.io", "RayCluster"), ("ray.io", "RayJob")}
ELASTIC = f"{GROUP}/elastic-job"
LONGEST_RUN = f"{GROUP}/max-exec-time-seconds"
MOST_POD_SETS = 18
TOPOLOGY_WISHES = tuple(f"{GROUP}/podset-{wish}-topology" for wish in ("required", "preferred", "unconstrained"))
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def queued_and_autoscaled(call: Call) -> Refusal | None:
    """Kueue admits a cluster as a whole; it refuses one that Ray's autoscaler would resize, unless it is elastic."""
    for path, cluster in _clusters(call):
        if not cluster.get("enableInTreeAutoscaling") or _annotations(call).get(ELASTIC) == "true":
            continue
        words = f"{path}.enableInTreeAutoscaling: Invalid value: true: "
        if api(call.type).kind == "RayJob":
            words += "a kueue managed job should only use autoscaling when workload slicing is enabled"
            return _denied(call, words, COMMON)
        words += "a kueue-managed RayCluster can use autoscaling only as an elastic job: enable the "
        words += f'ElasticJobsViaWorkloadSlices feature gate and set the "{ELASTIC}": "true" annotation'
        return _denied(call, words, RAY_CLUSTER)
    return None


def queued_and_kept(call: Call) -> Refusal | None:
    """A queued RayJob releases its nodes: its cluster is deleted when it ends."""
    spec = _spec(call)
    if api(call.type).kind != "RayJob" or not spec.get("rayClusterSpec") or spec.get("shutdownAfterJobFinishes"):
        return None
    words = "spec.shutdownAfterJobFinishes: Invalid value: false: a kueue managed job should delete the cluster after "
    return _denied(call, f"{words}finishing", RAY_JOB)


def queued_on_other_cluster(call: Call) -> Refusal | None:
    """A queued RayJob has its own cluster, and selects no other."""
    spec = _spec(call)
    if api(call.type).kind != "RayJob" or not spec.get("clusterSelector") or not spec.get("rayClusterSpec"):
        return None
    words = "spec.clusterSelector: Invalid value: a kueue managed job should not use an existing cluster"
    return _denied(call, words, RAY_JOB)


def too_many_pod_sets(call: Call) -> Refusal | None:
    """A workload has at most 18 pod sets: the head and 17 worker groups."""
    for path, cluster in _clusters(call):
        count = len(cluster.get("workerGroupSpecs") or ()) + 1
        if count > MOST_POD_SETS:
            words = f"{path}.workerGroupSpecs: Too many: {count}: must have at most {MOST_POD_SETS} items"
            return _denied(call, words, COMMON)
    return None


def group_called_head(call: Call) -> Refusal | None:
    """No worker group has the name of the head's pod set."""
    for path, cluster in _clusters(call):
        for index, group in enumerate(cluster.get("workerGroupSpecs") or ()):
            if group.get("groupName") == "head":
                where = f"{path}.workerGroupSpecs[{index}].groupName"
                return _denied(call, f'{where}: Forbidden: "head" is reserved for the head group', COMMON)
    return None


def queue_misnamed(call: Call) -> Refusal | None:
    """The label has the format of a LocalQueue's name."""
    its = _labels(call.inputs).get(QUEUE)
    if not _spec(call) or not its or _SUBDOMAIN.fullmatch(str(its)):
        return None
    words = f'metadata.labels[{QUEUE}]: Invalid value: "{its}": a lowercase RFC 1123 subdomain must consist of lower '
    return _denied(call, f"{words}case alphanumeric characters, '-' or '.'", FRAMEWORK)


def queue_changed(call: Call) -> Refusal | None:
    """A running job stays in its queue."""
    if call.verb != "update" or not _is_job(call) or not installed(call.state) or value_at(call.live, "spec.suspend"):
        return None
    before, now = _labels(call.live).get(QUEUE), _labels(call.inputs).get(QUEUE)
    if not before or before == now:
        return None
    return _denied(call, f'metadata.labels[{QUEUE}]: Invalid value: "{now or ""}": field is immutable', FRAMEWORK)


def longest_run_unfit(call: Call) -> Refusal | None:
    """The maximum run time of a job is a number of seconds."""
    text = _labels(call.inputs).get(LONGEST_RUN)
    if not _spec(call) or text is None or (str(text).isdigit() and int(text) > 0):
        return None
    words = f'metadata.labels[{LONGEST_RUN}]: Invalid value: "{text}": should be greater than 0'
    return _denied(call, words, FRAMEWORK)


def topology_wished_twice(call: Call) -> Refusal | None:
    """Pods of a queued job have one topology request: required, preferred or unconstrained."""
    for template in templates(call.type, call.inputs) if _spec(call) else ():
        annotations: Json = template.metadata.get("annotations") or {}
        if sum(wish in annotations for wish in TOPOLOGY_WISHES) > 1:
            offered = ", ".join(f'"{wish}"' for wish in TOPOLOGY_WISHES)
            words = "must not contain more than one topology annotation: "
            return _denied(call, f"{template.path}.metadata.annotations: Invalid value: {words}[{offered}]", FRAMEWORK)
    return None


def _denied(call: Call, words: str, source: str) -> Refusal:
    own = f"v{api(call.type).kind.lower()}.kb.io"
    return Refusal("403 Forbidden", f'admission webhook "{own}" denied the request: {words}', source)


def _is_job(call: Call) -> bool:
    return (api(call.type).group, api(call.type).kind) in KINDS


def _spec(call: Call) -> Json:
    """Return the spec of a queued job in a cluster with Kueue; empty for anything else."""
    if call.verb == "delete" or not _is_job(call) or not _labels(call.inputs).get(QUEUE) or not installed(call.state):
        return {}
    spec: Json = call.inputs.get("spec") or {}
    return spec


def _clusters(call: Call) -> Iterator[tuple[str, Json]]:
    path = {"RayCluster": "spec", "RayJob": "spec.rayClusterSpec"}.get(api(call.type).kind)
    found = value_at({"spec": _spec(call)}, path) if path else None
    if path and isinstance(found, dict):
        yield path, found


def _labels(value: Any) -> Json:
    labels: Json = value_at(value, "metadata.labels") or {}
    return labels


def _annotations(call: Call) -> Json:
    annotations: Json = value_at(call.inputs, "metadata.annotations") or {}
    return annotations


RULES = (
    queued_and_autoscaled,
    queued_and_kept,
    queued_on_other_cluster,
    too_many_pod_sets,
    group_called_head,
    queue_misnamed,
    queue_changed,
    longest_run_unfit,
    topology_wished_twice,
)
