"""Identity of an object by its type token (API, kind, scope, id), and the tokens of the kinds with rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rehearsal.engine.kind import Json, Refusal

KUEUE = "kueue.x-k8s.io"
RELEASE = "kubernetes:helm.sh/v3:Release"
NAMESPACE = "kubernetes:core/v1:Namespace"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
SECRET = "kubernetes:core/v1:Secret"
POD = "kubernetes:core/v1:Pod"
NODE = "kubernetes:core/v1:Node"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"
DAEMON_SET = "kubernetes:apps/v1:DaemonSet"
DEFINITION = "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition"
PRIORITY_CLASS = "kubernetes:scheduling.k8s.io/v1:PriorityClass"
SERVICE_ACCOUNT = "kubernetes:core/v1:ServiceAccount"
VOLUME = "kubernetes:core/v1:PersistentVolume"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
STORAGE_CLASS = "kubernetes:storage.k8s.io/v1:StorageClass"
CLAIM_TEMPLATE = "kubernetes:resource.k8s.io/v1:ResourceClaimTemplate"
JOB = "kubernetes:batch/v1:Job"
RAY_CLUSTER = "kubernetes:ray.io/v1:RayCluster"
RAY_JOB = "kubernetes:ray.io/v1:RayJob"
RAY_SERVICE = "kubernetes:ray.io/v1:RayService"
NETWORK = "kubernetes:networking.gke.io/v1:Network"
PARAM_SET = "kubernetes:networking.gke.io/v1:GKENetworkParamSet"
COMPUTE_CLASS = "kubernetes:cloud.google.com/v1:ComputeClass"
ADMISSION_CHECK = f"kubernetes:{KUEUE}/v1beta2:AdmissionCheck"
CLUSTER_QUEUE = f"kubernetes:{KUEUE}/v1beta2:ClusterQueue"
LOCAL_QUEUE = f"kubernetes:{KUEUE}/v1beta2:LocalQueue"
PROVISIONING = f"kubernetes:{KUEUE}/v1beta2:ProvisioningRequestConfig"
RESOURCE_FLAVOR = f"kubernetes:{KUEUE}/v1beta2:ResourceFlavor"
TOPOLOGY = f"kubernetes:{KUEUE}/v1beta2:Topology"

QUEUE = f"{KUEUE}/queue-name"
"""Label of a job with its LocalQueue."""

PRESENT = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
"""Namespaces of a new cluster."""

_CLUSTER_SCOPED = frozenset(
    {
        # Kubernetes 1.34 API reference, 2026-11.
        *("ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "DeviceClass", "Namespace", "Node"),
        *("PersistentVolume", "PriorityClass", "ResourceSlice", "RuntimeClass", "StorageClass"),
        *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
        # GKE docs, 2026-04-13.
        *("ComputeClass", "GKENetworkParamSet"),
        # kueue.x-k8s.io 0.19.2, 2026-08-22.
        *("AdmissionCheck", "ClusterQueue", "Cohort", "ProvisioningRequestConfig", "ResourceFlavor", "Topology"),
        "WorkloadPriorityClass",
    }
)


@dataclass(frozen=True)
class ObjectApi:
    """API and kind of a type token. `group` is empty for the core API."""

    group: str
    version: str
    kind: str

    @property
    def written(self) -> str:
        """The apiVersion of an object: "v1", "ray.io/v1"."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def plural(self) -> str:
        """The name in URLs: "daemonsets", "networkpolicies", "computeclasses"."""
        name = self.kind.lower()
        if name.endswith(("s", "x", "ch")):
            return f"{name}es"
        return f"{name[:-1]}ies" if name.endswith("y") and name[-2] not in "aeiou" else f"{name}s"

    @property
    def resource(self) -> str:
        """The name in error messages: "namespaces", "daemonsets.apps"."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def custom(self) -> bool:
        """Whether a CRD defines the kind."""
        return "." in self.group and not self.group.endswith(".k8s.io")

    @property
    def namespaced(self) -> bool:
        """Whether its objects are namespaced. GKE's Network is not; networking.k8s.io has no such kind."""
        return self.kind not in _CLUSTER_SCOPED and (self.group, self.kind) != ("networking.gke.io", "Network")


def api(type_: str) -> ObjectApi:
    """Return the API and kind of a token such as "kubernetes:apps/v1:DaemonSet"."""
    _, address, kind = type_.split(":")
    group, _, version = address.rpartition("/")
    return ObjectApi("" if group == "core" else group, version, kind)


def name(inputs: Json) -> str:
    """Return the object's name, or ""."""
    return str((inputs.get("metadata") or {}).get("name") or "")


def namespace(inputs: Json, config: Mapping[str, Any]) -> str:
    """Return the object's namespace: its own, the provider's, or "default"."""
    return str((inputs.get("metadata") or {}).get("namespace") or config.get("namespace") or "default")


def object_id(type_: str, inputs: Json, config: Mapping[str, Any]) -> str:
    """Return the id on the wire: "namespace/name", or "name"."""
    return f"{namespace(inputs, config)}/{name(inputs)}" if api(type_).namespaced else name(inputs)


def thing(type_: str, name: str, namespace: str = "", labels: Json | None = None, **fields: Any) -> Json:
    """Return the live value of an object that is there."""
    place = {"namespace": namespace} if namespace else {}
    metadata = {"name": name, **place, **({"labels": labels} if labels else {})}
    return {"apiVersion": api(type_).written, "kind": api(type_).kind, "metadata": metadata, **fields}


def conflict(type_: str, id_: str) -> Refusal:
    """Return the refusal of a name that is in use, of the API server or Helm."""
    if type_ == RELEASE:
        return Refusal("helm", "cannot re-use a name that is still in use", "helm 3.18: pkg/action/install.go")
    return Refusal(
        "409 AlreadyExists",
        f'{api(type_).resource} "{id_.rpartition("/")[2]}" already exists',
        "pulumi-kubernetes: provider/pkg/await/await.go, 94977969, 2026-07-01; creating no longer adopts (4.29)",
    )
