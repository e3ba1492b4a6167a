"""Rules about served kinds: they depend on the cluster's version, its features and installed CRDs."""

from __future__ import annotations

from rehearsal.clouds.kind import Call, Json, Refusal
from rehearsal.clouds.kubernetes.connection import EKS_CLUSTER, here, switched_on, version
from rehearsal.clouds.kubernetes.identity import DEFINITION, Api, api
from rehearsal.clouds.kubernetes.sdk_shapes import built_in

PROVIDER = "pulumi-kubernetes: provider/pkg/provider/provider.go, 94977969, 2026-07-01"
MULTI_NETWORKING = "GKE docs, multi-network support for Pods: the CRDs exist only with enable_multi_networking; 2026-08"
DRA = "Kubernetes 1.34 release notes: resource.k8s.io/v1 is served from 1.34; GKE docs, 2026-04-10"
DRA_SINCE = (1, 34)
MULTI_NETWORK_KINDS = ("Network", "GKENetworkParamSet", "GKENetworkParamSetList", "NetworkInterface")
ON_EVERY_GKE = frozenset(
    {
        ("cloud.google.com", "v1", "ComputeClass"),
        ("cloud.google.com", "v1", "BackendConfig"),
        ("networking.gke.io", "v1", "ManagedCertificate"),
        ("networking.gke.io", "v1beta1", "FrontendConfig"),
        ("monitoring.googleapis.com", "v1", "PodMonitoring"),
    }
)
"""Custom kinds of every GKE cluster: GKE docs, 2026-04-13, and unverified, 2026-11."""

ON_EVERY_EKS = frozenset(
    {
        ("crd.k8s.amazonaws.com", "v1alpha1", "ENIConfig"),
        ("networking.k8s.aws", "v1alpha1", "PolicyEndpoint"),
        ("vpcresources.k8s.aws", "v1beta1", "SecurityGroupPolicy"),
        ("vpcresources.k8s.aws", "v1alpha1", "CNINode"),
    }
)
"""Custom kinds of every EKS cluster (EKS docs, vpc-cni; unverified, 2026-11)."""


def custom_kind_unknown(call: Call) -> Refusal | None:
    """A custom kind needs an installed CRD (KubeRay's and Kueue's are installed with their Helm releases)."""
    kind = api(call.type)
    if call.verb == "delete" or _is_gke_network(kind) or built_in(kind) is not None or _installed(call, kind):
        return None
    return _no_match(call, kind, PROVIDER)


def device_networks_unknown(call: Call) -> Refusal | None:
    """GKE's Network and GKENetworkParamSet exist in clusters with multi-networking only."""
    kind = api(call.type)
    _, cluster = here(call)
    if call.verb == "delete" or not _is_gke_network(kind) or switched_on(cluster, "enableMultiNetworking"):
        return None
    return _no_match(call, kind, MULTI_NETWORKING)


def device_claims_too_new(call: Call) -> Refusal | None:
    """resource.k8s.io/v1 is served from Kubernetes 1.34."""
    kind = api(call.type)
    _, cluster = here(call)
    running = version(cluster)
    newest = (kind.group, kind.version) == ("resource.k8s.io", "v1")
    if call.verb == "delete" or not newest or running is None or running >= DRA_SINCE:
        return None
    return _no_match(call, kind, DRA)


def patch_of_nothing(call: Call) -> Refusal | None:
    """Patch resources change objects that the stack did not create; the rehearsal does not support them."""
    if not api(call.type).kind.endswith("Patch") or call.verb == "delete":
        return None
    return Refusal(
        "rehearsal",
        f"{call.type}: the simulated API does not support patches of objects that the stack did not create",
        "rdma-ray: rehearsal/clouds/kubernetes, 2026-11",
    )


def _no_match(call: Call, kind: Api, source: str) -> Refusal:
    return Refusal(
        "404 NotFound",
        f"{call.verb} of {kind.kind} {call.id} failed because the Kubernetes API server reported that the apiVersion "
        "for this resource does not exist. Verify that any required CRDs have been created: "
        f'no matches for kind "{kind.kind}" in version "{kind.written}"',
        source,
    )


def _is_gke_network(kind: Api) -> bool:
    return kind.group == "networking.gke.io" and kind.kind in MULTI_NETWORK_KINDS


def _installed(call: Call, kind: Api) -> bool:
    id_, cluster = here(call)
    if (kind.group, kind.version, kind.kind) in (ON_EVERY_EKS if _is_eks(call, id_) else ON_EVERY_GKE):
        return True
    if kind.group == "ray.io" and _ray_add_on(cluster):
        return True
    definition = call.state.get(DEFINITION, kind.resource)
    return definition is not None and _serves(definition, kind.version)


def _is_eks(call: Call, id_: str) -> bool:
    return call.state.get(EKS_CLUSTER, id_) is not None


def _ray_add_on(cluster: Json) -> bool:
    return switched_on(
        cluster,
        "addonsConfig.rayOperatorConfigs.0.enabled",
        "addonsConfig.rayOperatorConfig.enabled",
        "addonsConfig.0.rayOperatorConfigs.0.enabled",
    )


def _serves(definition: Json, wanted: str) -> bool:
    versions = (definition.get("spec") or {}).get("versions") or ()
    return any(each.get("name") == wanted and each.get("served", True) for each in versions)


RULES = (patch_of_nothing, custom_kind_unknown, device_networks_unknown, device_claims_too_new)
