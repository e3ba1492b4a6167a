"""Admission policies in CEL that replace GKE's webhooks; the real API server evaluates them.

Mutating policies are generally available since Kubernetes 1.36 (apiserver 0.36.1: pkg/features), so no certificate and
no webhook server is needed. GKE's webhooks are not public. Networks of pods: GKE docs, multi-network support for Pods,
2026-08; llm-d #1730 for the injected resources. ProvisioningRequests: the refusal of several PodSets is in GKE Warden's
words (ray-project/ray #57839, 2025-10-17); the settings of the stacks limit the run time to seven days.
The toleration of queued nodes is inferred from a published run whose pods had none (saltysoup/nearmap-gcp-oasis,
086f5b6, 2025-07-10).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infra.catalog.pins import ADMISSION_API, GKE_NETWORK_API
from rehearsal.clouds.kubernetes.pods import GIVEN, INTERFACES
from rehearsal.cluster.controllers.devices import NETWORK_PREFIX
from rehearsal.engine.kind import Json

NEW_PODS: Json = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}


def denying(name: str, rule: Json, spec: Json, binding: Json | None = None) -> list[Json]:
    """Return a policy that denies requests, and its binding. `spec` has the validations, `rule` the match."""
    bound = {"policyName": name, "validationActions": ["Deny"], **(binding or {})}
    return [
        _object("ValidatingAdmissionPolicy", name, _matching(rule, spec)),
        _object("ValidatingAdmissionPolicyBinding", name, bound),
    ]


def patching(name: str, rule: Json, spec: Json, expression: str) -> list[Json]:
    """Return a policy that applies the JSON patches of `expression`, and its binding."""
    mutation = {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}
    whole = _matching(rule, {**spec, "reinvocationPolicy": "Never", "mutations": [mutation]})
    return [
        _object("MutatingAdmissionPolicy", name, whole),
        _object("MutatingAdmissionPolicyBinding", name, {"policyName": name}),
    ]


def _matching(rule: Json, spec: Json) -> Json:
    return {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]}, **spec}


def _object(kind: str, name: str, spec: dict[str, Any]) -> Json:
    return {"apiVersion": ADMISSION_API, "kind": kind, "metadata": {"name": name}, "spec": spec}


NETWORK = "Network"
PARAMETERS = "GKENetworkParamSet"
NAMES = ("gke-managed-networking", "networks")
"""Namespace and name of our ConfigMap that lists the networks for the admission policy."""
PROBE = "rehearsal-probe"
"""Network that is listed while a cluster starts, to check whether the policies are active."""
WEBHOOK = "multi-network-pods.networking.gke.io"
_NETWORKS = (
    f"object.metadata.annotations['{INTERFACES}']"
    r""".findAll('"network"\\s*:\\s*"[^"]*"').map(found, found.split('"')[3])"""
)
_DEVICES = f"variables.networks.filter(network, !(network in {list(GIVEN)}))"
_NAMES_NETWORKS = {
    "name": "names-networks",
    "expression": f"has(object.metadata.annotations) && '{INTERFACES}' in object.metadata.annotations",
}


def installed(vpc: str, subnet: str, pods_range: str) -> list[Json]:
    """Return the initial objects of a cluster with multi-networking: the default network, and the admission of pods."""
    parameters = {
        "apiVersion": GKE_NETWORK_API,
        "kind": PARAMETERS,
        "metadata": {"name": "default", "labels": {"addonmanager.kubernetes.io/mode": "EnsureExists"}},
        "spec": {"vpc": vpc, "vpcSubnet": subnet, "podIPv4Ranges": {"rangeNames": [pods_range]}},
    }
    reference = {"group": "networking.gke.io", "kind": PARAMETERS, "name": "default"}
    network = {
        "apiVersion": GKE_NETWORK_API,
        "kind": NETWORK,
        "metadata": {"name": "default", "labels": {"addonmanager.kubernetes.io/mode": "EnsureExists"}},
        "spec": {"type": "L3", "provider": "GKE", "parametersRef": reference},
    }
    namespace, name = NAMES
    config: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}
    return [parameters, network, {**config, "data": {"names": ",".join((*GIVEN, PROBE))}}, *_denial(), *_injection()]


def _denial() -> list[Json]:
    """Deny pods that name missing networks."""
    namespace, name = NAMES
    missing = "variables.networks.filter(network, !(network in params.data.names.split(',')))"
    spec = {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConditions": [_NAMES_NETWORKS],
        "variables": [{"name": "networks", "expression": _NETWORKS}],
        "validations": [
            {
                "expression": f"{missing}.size() == 0",
                "messageExpression": f"'network \"' + {missing}[0] + '\" not found'",
                "reason": "Forbidden",
            }
        ],
    }
    reference = {"name": name, "namespace": namespace, "parameterNotFoundAction": "Deny"}
    return denying(WEBHOOK, NEW_PODS, spec, {"paramRef": reference})


def _injection() -> list[Json]:
    """Add a device and an address of each named network to the first container's requests and limits."""
    at = "/spec/containers/0/resources"
    has = "object.spec.containers[0]"
    whole = f'[JSONPatch{{op: "add", path: "{at}", value: Object.spec.containers.resources{{}}}}]'
    parents = f"(has({has}.resources) ? [] : {whole}) + " + " + ".join(
        f"(has({has}.resources) && has({has}.resources.{which}) ? [] : "
        f'[JSONPatch{{op: "add", path: "{at}/{which}", value: {{}}}}])'
        for which in ("requests", "limits")
    )
    amounts = " + ".join(
        f'{_DEVICES}.map(network, JSONPatch{{op: "add", path: "{at}/{which}/" + '
        f'jsonpatch.escapeKey("{NETWORK_PREFIX}" + network + "{suffix}"), value: "1"}})'
        for which in ("requests", "limits")
        for suffix in ("", ".IP")
    )
    spec = {"matchConditions": [_NAMES_NETWORKS], "variables": [{"name": "networks", "expression": _NETWORKS}]}
    return patching(WEBHOOK, NEW_PODS, spec, f"{parents} + {amounts}")


def probe(network: str) -> Json:
    """Return a pod that names a network, for a dry run that checks whether the policies are active."""
    annotations = {INTERFACES: f'[{{"interfaceName":"eth1","network":"{network}"}}]'}
    spec = {"containers": [{"name": "probe", "image": "probe"}]}
    metadata = {"name": "probe", "namespace": NAMES[0], "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


WARDEN = "warden-validating.common-webhooks.networking.gke.io"
ONE_POD_SET = (
    "GKE Warden rejected the request because it violates one or more constraints. Violations details: "
    '{"[denied by provisioning-request-cr-validation]":["the queued provisioning feature currently supports only '
    'single PodSet per request"]}'
)
_QUEUED = {"name": "queued", "expression": "object.spec.provisioningClassName == 'queued-provisioning.gke.io'"}
_TOLERATION = "cloud.google.com/gke-queued"
CONSUMES = (
    "autoscaling.x-k8s.io/consume-provisioning-request",
    "cluster-autoscaler.kubernetes.io/consume-provisioning-request",
)
"""Annotations of pods that use the nodes of a ProvisioningRequest: no pool grows for them (kueue 0.19.2:
pkg/controller/admissionchecks/provisioning; the older name until autoscaler 1.30)."""


def policies() -> Iterator[Json]:
    """Yield the policies for ProvisioningRequests and their pods, with bindings."""
    rule = {
        "apiGroups": ["autoscaling.x-k8s.io"],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["provisioningrequests"],
    }
    spec = {
        "matchConditions": [_QUEUED],
        "validations": [{"expression": "object.spec.podSets.size() == 1", "message": ONE_POD_SET}],
    }
    yield from denying(WARDEN, rule, spec)
    consumes = " || ".join(f"'{each}' in object.metadata.annotations" for each in CONSUMES)
    own = f"has(object.spec.tolerations) && object.spec.tolerations.exists(t, has(t.key) && t.key == '{_TOLERATION}')"
    value = f'Object.spec.tolerations{{key: "{_TOLERATION}", operator: "Exists", effect: "NoSchedule"}}'
    one = f'JSONPatch{{op: "add", path: "/spec/tolerations/-", value: {value}}}'
    first = f'JSONPatch{{op: "add", path: "/spec/tolerations", value: [{value}]}}'
    spec = {
        "matchConditions": [
            {"name": "uses-a-request", "expression": f"has(object.metadata.annotations) && ({consumes})"},
            {"name": "does-not-tolerate", "expression": f"!({own})"},
        ]
    }
    patch = f"[has(object.spec.tolerations) ? {one} : {first}]"
    yield from patching("queued-pods.networking.gke.io", NEW_PODS, spec, patch)
