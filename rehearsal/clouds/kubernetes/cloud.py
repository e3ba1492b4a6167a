"""Simulated Kubernetes API: one kind for every object, with schema, references and rules, and Helm releases."""

from __future__ import annotations

from functools import cache, partial

from rehearsal.clouds.constraints import linked
from rehearsal.clouds.kubernetes import helm, identity, schemas
from rehearsal.clouds.kubernetes.connection import reaches
from rehearsal.clouds.kubernetes.drift import DRIFTS, added, normalized
from rehearsal.clouds.kubernetes.identity import conflict, object_id
from rehearsal.clouds.kubernetes.rules import RULES, references
from rehearsal.engine.kind import Call, Cloud, Json, ResourceKind, unchanged

_CONTAINER = (
    "args command env image imagePullPolicy lifecycle livenessProbe ports readinessProbe resources securityContext "
    "stdin stdinOnce terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts workingDir"
)
_POD = (
    "affinity automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks hostAliases hostIPC hostNetwork "
    "hostPID hostname imagePullSecrets nodeName nodeSelector overhead preemptionPolicy priority priorityClassName "
    "readinessGates restartPolicy runtimeClassName schedulerName securityContext serviceAccount serviceAccountName "
    "shareProcessNamespace subdomain terminationGracePeriodSeconds volumes"
)
_VOLUME = (
    "awsElasticBlockStore azureDisk azureFile cephfs cinder csi fc flexVolume flocker gcePersistentDisk glusterfs "
    "hostPath iscsi local nfs photonPersistentDisk portworxVolume quobyte rbd scaleIO storageos vsphereVolume"
)


def _paths(names: str, below: str = "spec") -> set[str]:
    return {f"{below}.{name}" for name in names.split()}


REPLACE_ON = {
    "kubernetes:apps/v1:DaemonSet": {"spec.selector"},
    "kubernetes:apps/v1:Deployment": {"spec.selector"},
    "kubernetes:apps/v1:StatefulSet": _paths(
        "podManagementPolicy revisionHistoryLimit selector serviceName volumeClaimTemplates"
    ),
    identity.JOB: _paths("completions parallelism selector template"),
    identity.CONFIG_MAP: {"binaryData", "data"},
    identity.SECRET: {"data", "stringData", "type"},
    identity.VOLUME: _paths(_VOLUME),
    identity.CLAIM: _paths("accessModes selector storageClassName volumeName"),
    identity.POD: _paths(_POD) | _paths(_CONTAINER, "spec.containers") | _paths(_CONTAINER, "spec.initContainers"),
    "kubernetes:core/v1:ResourceQuota": {"spec.scopes"},
    "kubernetes:core/v1:Service": {"spec.clusterIP"},
    "kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding": {"roleRef"},
    "kubernetes:rbac.authorization.k8s.io/v1:RoleBinding": {"roleRef"},
    identity.STORAGE_CLASS: {"parameters", "provisioner"},
}
"""Properties that force a replacement, besides name and namespace: all of pulumi-kubernetes' current API versions
(provider/pkg/provider/diff.go, forceNew, 94977969, 2026-07-01). Content of Secrets and ConfigMaps counts because
enableSecretMutable and enableConfigMapMutable are off by default."""

_HOLDERS = (
    *(identity.ADMISSION_CHECK, identity.CLUSTER_QUEUE, identity.RESOURCE_FLAVOR, identity.TOPOLOGY),
    *(identity.NETWORK, identity.PARAM_SET, identity.JOB, identity.RAY_CLUSTER, identity.RAY_JOB),
    identity.RAY_SERVICE,
)
"""Kinds whose objects keep others from deletion, or are kept."""


@cache
def other(type_: str) -> ResourceKind:
    """Return the kind of any object, built-in or custom."""
    return linked([helm.KIND, *map(_kind, {type_, *_HOLDERS} - {identity.RELEASE})])[type_]


def _kind(type_: str) -> ResourceKind:
    return ResourceKind(
        type=type_,
        identify=partial(object_id, type_),
        compute=added,
        normalized=partial(normalized, type_),
        replace_on=frozenset({"metadata.name", "metadata.namespace"} | REPLACE_ON.get(type_, set())),
        check=partial(schemas.failures, type_),
        references=tuple(references(type_)),
        rules=RULES,
        drift=DRIFTS.get(type_, unchanged),
        cascade=_goes_too,
        conflict=conflict,
        whole=True,
    )


def _goes_too(call: Call, type_: str, live: Json) -> bool:
    """Return whether an object is deleted with a namespace."""
    inside = live.get("namespace") if type_ == identity.RELEASE else (live.get("metadata") or {}).get("namespace")
    return call.type == identity.NAMESPACE and type_.startswith("kubernetes:") and inside == call.id


CLOUD = Cloud(
    package="kubernetes",
    kinds={type_: other(type_) for type_ in (identity.RELEASE, *_HOLDERS)},
    other=other,
    reaches=reaches,
    # With a cluster identifier, only its change replaces the provider; the stack sets one.
    replace_on=frozenset({"clusterIdentifier"}),
)
