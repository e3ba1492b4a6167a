"""What GKE does with a pod that names networks: refuses unknown ones, adds the resources of the known ones.

Stands in for GKE's webhook, which is not public (GKE docs, multi-network support for Pods, 2026-08; llm-d #1730 for the
resources that it adds). It is two admission policies in CEL, which the real API server carries out; the list of the
networks is in a ConfigMap that `device_networks` keeps.
"""

from __future__ import annotations

from infra.catalog.pins import GKE_NETWORK_API
from rehearsal.clouds.kind import Json
from rehearsal.clouds.kubernetes.device_networks import GIVEN, INTERFACES
from rehearsal.cluster.landlord.admission import NEW_PODS, denying, patching
from rehearsal.cluster.landlord.devices import NETWORK_PREFIX

API = GKE_NETWORK_API
NETWORK = "Network"
PARAMETERS = "GKENetworkParamSet"
NAMES = ("gke-managed-networking", "networks")
"""Namespace and name of the ConfigMap that tells the admission policy which networks there are; our own."""
PROBE = "rehearsal-probe"
"""A network that is listed while a cluster is being opened, to see whether the policies work."""
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
    """What a cluster with multi-networking begins with: the pods' own network, and the admission of pods."""
    parameters = {
        "apiVersion": API,
        "kind": PARAMETERS,
        "metadata": {"name": "default", "labels": {"addonmanager.kubernetes.io/mode": "EnsureExists"}},
        "spec": {"vpc": vpc, "vpcSubnet": subnet, "podIPv4Ranges": {"rangeNames": [pods_range]}},
    }
    reference = {"group": "networking.gke.io", "kind": PARAMETERS, "name": "default"}
    network = {
        "apiVersion": API,
        "kind": NETWORK,
        "metadata": {"name": "default", "labels": {"addonmanager.kubernetes.io/mode": "EnsureExists"}},
        "spec": {"type": "L3", "provider": "GKE", "parametersRef": reference},
    }
    namespace, name = NAMES
    config: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}
    return [parameters, network, {**config, "data": {"names": ",".join((*GIVEN, PROBE))}}, *_denial(), *_injection()]


def _denial() -> list[Json]:
    """Pods that name networks which are not there are refused."""
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
    """The first container asks for a device and an address of each network that it names, beside the pods' own."""
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
    spec = {
        "matchConditions": [_NAMES_NETWORKS],
        "variables": [{"name": "networks", "expression": _NETWORKS}],
    }
    return patching(WEBHOOK, NEW_PODS, spec, f"{parents} + {amounts}")


def probe(network: str) -> Json:
    """A pod that names a network: to ask, by dry run, whether the API server's admission knows the policies yet."""
    annotations = {INTERFACES: f'[{{"interfaceName":"eth1","network":"{network}"}}]'}
    spec = {"containers": [{"name": "probe", "image": "probe"}]}
    metadata = {"name": "probe", "namespace": NAMES[0], "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
