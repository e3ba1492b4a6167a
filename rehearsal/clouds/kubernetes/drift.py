"""Changes that the API server and controllers make to an object and that a refresh shows.

The provider uses server-side apply and owns the fields that the program sets. A refresh shows other values of these
fields, and new items of its lists; fields that others add stay hidden. So this module has no status, no generated id
and no annotation of a controller, but:

- quantities in canonical form, in which the API server returns those of built-in kinds (Kubernetes:
  apimachinery/pkg/api/resource, Quantity, read 2026-11), and controllers in Go write whole custom objects;
- workers that Ray's autoscaler adds (ray-project/kuberay docs, autoscaling, v1.6.2, 2026-06-17);
- a Secret's plain text in its data, and no empty metadata (pulumi-kubernetes: provider/pkg/clients/unstructured.go,
  Normalize, 94977969, 2026-07-01: built-in kinds go through their Go types before a comparison, custom ones do not);
- suspension and start of queued jobs, with the node selectors and tolerations of their flavors
  (kubernetes-sigs/kueue: pkg/podset/podset.go, pkg/controller/jobframework/reconciler.go, 0.19.2, 2026-08-22).
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rehearsal.clouds.kubernetes import identity, pods, schemas
from rehearsal.clouds.kubernetes.connection import OWNER, here
from rehearsal.clouds.kubernetes.identity import api, namespace
from rehearsal.clouds.kubernetes.quantities import rewritten
from rehearsal.clouds.kubernetes.rules import installed, is_queued
from rehearsal.engine.kind import Call, Json, value_at, values_at
from rehearsal.engine.state import View
from rehearsal.engine.values import unknown


def normalized(type_: str, inputs: Json) -> Json:
    """Return the inputs as the provider compares and refreshes them: a Secret's `stringData` is in its `data`.

    Inputs with an unknown value are left as they are.
    """
    plain = inputs.get("stringData")
    if type_ != identity.SECRET or not plain or unknown(inputs):
        return inputs
    encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in plain.items()}
    rest = {key: value for key, value in inputs.items() if key != "stringData"}
    return {**rest, "data": {**(inputs.get("data") or {}), **encoded}}


def dropped(type_: str, inputs: Json) -> Json:
    """Return the metadata of a custom object that the API server drops, since it is empty ("labels": {}).

    The provider compares it with the object, so it is a difference in every preview.
    """
    metadata: Mapping[str, Any] = inputs.get("metadata") or {}
    return {key: value for key, value in metadata.items() if api(type_).custom and value in ({}, [])}


def added(call: Call) -> Json:
    """Return a new or changed object with the immediate additions of the API server and Kueue's webhook."""
    cluster, _ = here(call)
    kind = api(call.type)
    body = schemas.defaulted(call.type, call.now) if kind.custom else dict(call.now)
    if "spec" in body and not kind.custom:
        body["spec"] = rewritten(body["spec"])
    if call.verb == "create" and is_queued(call):
        body["spec"] = {**(body.get("spec") or {}), "suspend": True}
    empty = dropped(call.type, call.now)
    metadata: Json = {key: value for key, value in (body.get("metadata") or {}).items() if key not in empty}
    if kind.namespaced:
        metadata["namespace"] = namespace(call.inputs, call.config)
    return {**body, OWNER: cluster, "metadata": metadata}


def ray_cluster(live: Json, state: View) -> Json:
    """Add a worker to each group that may grow. A queued cluster has no autoscaler; Kueue decides whether it runs."""
    if queued := job(identity.RAY_CLUSTER, live, state):
        return queued
    spec: Json = live.get("spec") or {}
    groups = []
    for group in spec.get("workerGroupSpecs") or () if spec.get("enableInTreeAutoscaling") else ():
        replicas = max(group.get("replicas", 0), group.get("minReplicas", 0)) + 1
        grown = min(replicas, group.get("maxReplicas", 0))
        groups.append({"replicas": grown, "scaleStrategy": {"workersToDelete": []}})
    return {"spec": {"workerGroupSpecs": groups}} if groups else {}


def ray_job(live: Json, state: View) -> Json:
    """Write the whole object, as the operator does when it adds its finalizer; Kueue starts the job."""
    return job(identity.RAY_JOB, live, state) or written_whole(live, state)


def ray_service(live: Json, state: View) -> Json:
    """Write the whole object, as KubeRay does when it adds its finalizer, with the fields that its type always has."""
    drifted = written_whole(live, state)
    for group in value_at(drifted, "spec.rayClusterConfig.workerGroupSpecs") or ():
        group.setdefault("scaleStrategy", {})
    return drifted


def written_whole(live: Json, _state: View) -> Json:
    """Write an object whole, as Kueue does when it adds its finalizer."""
    return {"spec": rewritten(live.get("spec") or {})}


def job(type_: str, live: Json, state: View) -> Json:
    """Start a queued job if its queue has a flavor for each of its pods, whatever the quotas; {} for others."""
    metadata: Json = live.get("metadata") or {}
    name = (metadata.get("labels") or {}).get(identity.QUEUE)
    if not name or not installed(identity.KUEUE, state):
        return {}
    spec: Json = copy.deepcopy(rewritten(live.get("spec") or {}))
    local = state.get(identity.LOCAL_QUEUE, f"{metadata.get('namespace')}/{name}")
    queue = state.get(identity.CLUSTER_QUEUE, str(value_at(local, "spec.clusterQueue")))
    named = [str(each) for each in values_at(queue, "spec.resourceGroups.flavors.name")]
    flavors = [value_at(state.get(identity.RESOURCE_FLAVOR, each), "spec") or {} for each in named]
    templates = list(pods.templates(type_, {"spec": spec}))
    placed = [next((each for each in flavors if _fits(template, each)), None) for template in templates]
    spec["suspend"] = None in placed
    for template, flavor in zip(templates, placed, strict=True) if not spec["suspend"] else ():
        labels = template.setdefault("metadata", {}).setdefault("labels", {})
        labels[f"{identity.KUEUE}/podset"] = "main"
        own, chosen = template.setdefault("spec", {}), flavor or {}
        own["nodeSelector"] = {**(own.get("nodeSelector") or {}), **(chosen.get("nodeLabels") or {})}
        before = own.get("tolerations") or []
        if more := [each for each in chosen.get("tolerations") or () if each not in before]:
            own["tolerations"] = [*before, *more]
    return {"spec": spec}


def _fits(template: Json, flavor: Json) -> bool:
    selector = value_at(template, "spec.nodeSelector") or {}
    return all(selector.get(key, value) == value for key, value in (flavor.get("nodeLabels") or {}).items())


DRIFTS: Mapping[str, Callable[[Json, View], Json]] = {
    identity.CLUSTER_QUEUE: written_whole,
    identity.JOB: partial(job, identity.JOB),
    identity.RAY_CLUSTER: ray_cluster,
    identity.RAY_JOB: ray_job,
    identity.RAY_SERVICE: ray_service,
}
