"""Simulated Kubernetes API: one kind for every object, with rules that select their own cases, and Helm releases."""

from __future__ import annotations

from functools import partial

from rehearsal.clouds.kind import Call, Cloud, Json, Kind, Rule, unchanged
from rehearsal.clouds.kubernetes import (
    compute_class,
    device_networks,
    fields,
    helm,
    jobs,
    naming,
    objects,
    queued,
    queues,
    ray,
    ray_job,
    serving,
    workloads,
)
from rehearsal.clouds.kubernetes.computed import added
from rehearsal.clouds.kubernetes.connection import reaches
from rehearsal.clouds.kubernetes.drift import DRIFTS
from rehearsal.clouds.kubernetes.identity import DEFINITION, NAMESPACE, RELEASE, api, conflict, object_id

# The API server's order: lookup of the kind, decoding, validation; then webhooks and operators.
RULES: tuple[Rule, ...] = (
    *serving.RULES,
    *fields.RULES,
    *naming.RULES,
    *objects.RULES,
    *workloads.RULES,
    *jobs.RULES,
    *device_networks.RULES,
    *compute_class.RULES,
    *queues.RULES,
    *ray.RULES,
    *ray_job.RULES,
    *queued.RULES,
)

_IDENTITY = frozenset({"metadata.name", "metadata.namespace"})
_REPLACE_ON = {
    "kubernetes:apps/v1:DaemonSet": {"spec.selector"},
    "kubernetes:apps/v1:Deployment": {"spec.selector"},
    "kubernetes:apps/v1:StatefulSet": {
        "spec.podManagementPolicy",
        "spec.revisionHistoryLimit",
        "spec.selector",
        "spec.serviceName",
        "spec.volumeClaimTemplates",
    },
    "kubernetes:batch/v1:Job": {"spec.completions", "spec.parallelism", "spec.selector", "spec.template"},
    "kubernetes:core/v1:ConfigMap": {"binaryData", "data"},
    "kubernetes:core/v1:Secret": {"data", "stringData", "type"},
    "kubernetes:core/v1:Service": {"spec.clusterIP"},
    "kubernetes:core/v1:PersistentVolume": {"spec.csi", "spec.hostPath", "spec.local", "spec.nfs"},
    "kubernetes:core/v1:PersistentVolumeClaim": {
        "spec.accessModes",
        "spec.selector",
        "spec.storageClassName",
        "spec.volumeName",
    },
    "kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding": {"roleRef"},
    "kubernetes:rbac.authorization.k8s.io/v1:RoleBinding": {"roleRef"},
    "kubernetes:storage.k8s.io/v1:StorageClass": {"parameters", "provisioner"},
}
"""Properties that force a replacement, besides the name: provider/pkg/provider/diff.go, 94977969, 2026-07-01. Content
of Secrets and ConfigMaps counts because enableSecretMutable and enableConfigMapMutable are off by default."""


def other(type_: str) -> Kind:
    """Return the kind of any object, built-in or custom."""
    return Kind(
        type=type_,
        identify=partial(object_id, type_),
        compute=added,
        replace_on=_IDENTITY | _REPLACE_ON.get(type_, set()),
        rules=RULES,
        drift=DRIFTS.get(type_, unchanged),
        cascade=_goes_too,
        conflict=conflict,
    )


def _goes_too(call: Call, type_: str, live: Json) -> bool:
    """Return whether an object is deleted with a namespace, or with the CRD of its kind."""
    if not type_.startswith("kubernetes:"):
        return False
    if call.type == NAMESPACE:
        inside = live.get("namespace") if type_ == RELEASE else (live.get("metadata") or {}).get("namespace")
        return bool(inside == call.id)
    return call.type == DEFINITION and type_ != RELEASE and api(type_).resource == call.id


CLOUD = Cloud(
    package="kubernetes",
    kinds={RELEASE: helm.KIND},
    other=other,
    reaches=reaches,
    # With a cluster identifier, only its change replaces the provider; the stack sets one.
    replace_on=frozenset({"clusterIdentifier"}),
)
