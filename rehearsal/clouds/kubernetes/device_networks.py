"""Rules of GKE's multi-networking: parameter sets, networks, and pods that list interfaces.

The API accepts an invalid parameter set, which reports a condition and never becomes ready. The rehearsal refuses it
with the message of that condition.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rehearsal.clouds.kind import Call, Json, Refusal, value_at
from rehearsal.clouds.kubernetes.connection import here
from rehearsal.clouds.kubernetes.identity import api, name
from rehearsal.clouds.kubernetes.pods import templates

NETWORK = "kubernetes:networking.gke.io/v1:Network"
PARAM_SET = "kubernetes:networking.gke.io/v1:GKENetworkParamSet"
VPC = "gcp:compute/network:Network"
SUBNET = "gcp:compute/subnetwork:Subnetwork"
INTERFACES = "networking.gke.io/interfaces"
DEFAULT_INTERFACE = "networking.gke.io/default-interface"
GIVEN = ("default", "pod-network")
"""Networks that GKE creates itself: GoogleCloudPlatform/gke-networking-api: network_types.go, 39b01c24, read
2026-11."""

CONTROLLER = "kubernetes/cloud-provider-gcp: pkg/controller/gkenetworkparamset, 04532690, read 2026-11"
WEBHOOK = "GKE docs, multi-network support for Pods, 2026-08; wording of the webhook unverified, 2026-11"
ANNOTATIONS = "GoogleCloudPlatform/gke-networking-api: apis/network/v1/annotations.go, 057d89bd, read 2026-11"
DEVICE_MODES = "GKE docs gke-ai-hypercompute-custom, 2026-04-06: NetDevice for gVNIC, RDMA for the others"


def vpc_missing(call: Call) -> Refusal | None:
    """The VPC of a parameter set exists, and is given by name."""
    vpc = _spec(call, PARAM_SET).get("vpc")
    if vpc is None or any(live.get("name") == vpc for _, _, live in call.state.all(VPC)):
        return None
    return _not_ready(call, "VPCNotFound", f"VPC: {vpc} not found")


def subnet_missing(call: Call) -> Refusal | None:
    """The subnet of a parameter set exists, and is given by name."""
    spec = _spec(call, PARAM_SET)
    subnet = spec.get("vpcSubnet")
    if subnet is None or any(live.get("name") == subnet for _, _, live in call.state.all(SUBNET)):
        return None
    return _not_ready(call, "SubnetNotFound", f"subnet: {subnet} not found in VPC: {spec.get('vpc')}")


def subnet_shared(call: Call) -> Refusal | None:
    """A subnet serves one parameter set."""
    spec = _spec(call, PARAM_SET)
    if not spec.get("deviceMode"):
        return None
    for _, id_, live in call.state.all(PARAM_SET):
        if id_ != call.id and value_at(live, "spec.vpcSubnet") == spec.get("vpcSubnet"):
            words = f"GNP with deviceMode can't reference a subnet already in use. Subnet '{spec.get('vpcSubnet')}' is "
            return _not_ready(call, "DeviceModeSubnetAlreadyInUse", f"{words}already in use by '{id_}'")
    return None


def cluster_network_as_device(call: Call) -> Refusal | None:
    """The cluster's own VPC cannot be a device network."""
    spec = _spec(call, PARAM_SET)
    _, cluster = here(call)
    own = str(cluster.get("network") or "default").rpartition("/")[2]
    if not spec.get("deviceMode") or spec.get("vpc") != own:
        return None
    return _not_ready(call, "DeviceModeCantUseDefaultVPC", "GNP with deviceMode can't reference the default VPC")


def device_mode_or_ranges(call: Call) -> Refusal | None:
    """A parameter set is for devices or for pod addresses, never both."""
    spec = _spec(call, PARAM_SET)
    ranges = value_at(spec, "podIPv4Ranges.rangeNames")
    if not spec:
        return None
    if ranges and spec.get("deviceMode"):
        words = "PodIPv4Ranges and DeviceMode can not be specified at the same time"
        return _not_ready(call, "DeviceModeCantBeUsedWithSecondaryRange", words)
    if not ranges and not spec.get("deviceMode"):
        words = "One of PodIPV4Ranges or DeviceMode must be specified."
        return _not_ready(call, "SecondaryRangeAndDeviceModeUnspecified", words)
    return None


def device_mode_unfit(call: Call) -> Refusal | None:
    """The machine types of this program have NICs for NetDevice and RDMA."""
    mode = _spec(call, PARAM_SET).get("deviceMode")
    if mode in (None, "NetDevice", "RDMA"):
        return None
    return _not_ready(call, "DPDKUnsupported", f"device mode {mode} is not supported on this cluster", DEVICE_MODES)


def parameters_missing(call: Call) -> Refusal | None:
    """The parameter set of a Network exists; otherwise the Network is never ready."""
    reference = _spec(call, NETWORK).get("parametersRef") or {}
    wanted = reference.get("name")
    if not reference or str(reference.get("kind")).lower() != "gkenetworkparamset":
        return None
    parameters = call.state.get(PARAM_SET, str(wanted))
    if parameters is None:
        words = f"GKENetworkParamSet {wanted} does not exist"
        return _not_ready(call, "ParamsNotReady", words, f"{CONTROLLER}; wording unverified, 2026-11")
    if _spec(call, NETWORK).get("type") == "Device" and not value_at(parameters, "spec.deviceMode"):
        words = "Device type network requires device mode to be specified in params"
        return _not_ready(call, "DeviceModeMissing", words)
    return None


def network_of_gke(call: Call) -> Refusal | None:
    """GKE creates the network of the pods itself."""
    its = name(call.inputs)
    if call.verb != "create" or call.type not in (NETWORK, PARAM_SET) or its not in GIVEN:
        return None
    return Refusal("409 AlreadyExists", f'{api(call.type).resource} "{its}" already exists', ANNOTATIONS)


def interfaces_malformed(call: Call) -> Refusal | None:
    """The list of interfaces is JSON: objects with interfaceName and network, each name once."""
    for path, text in _annotations(call):
        interfaces = _interfaces(text)
        named = [each.get("interfaceName") for each in interfaces or ()]
        if interfaces is None or any(not isinstance(each, str) or not each for each in named):
            return _denied(f"{path}: {INTERFACES} is not a JSON list of interfaceName and network", ANNOTATIONS)
        if len(set(named)) < len(named):
            return _denied(f"{path}: {INTERFACES} names an interface twice: {', '.join(map(str, named))}")
        if any(("network" in each) == ("interface" in each) for each in interfaces):
            return _denied(f"{path}: {INTERFACES}: each interface has either network or interface", ANNOTATIONS)
    return None


def network_missing(call: Call) -> Refusal | None:
    """The networks of a pod exist."""
    for path, text in _annotations(call):
        for interface in _interfaces(text) or ():
            wanted = interface.get("network")
            if wanted not in (None, *GIVEN) and call.state.get(NETWORK, str(wanted)) is None:
                return _denied(f'{path}: network "{wanted}" of interface {interface.get("interfaceName")} not found')
    return None


def default_interface_missing(call: Call) -> Refusal | None:
    """The interface of the default route is in the list."""
    for template in [] if call.verb == "delete" else templates(call.type, call.inputs):
        annotations = template.metadata.get("annotations") or {}
        chosen, interfaces = annotations.get(DEFAULT_INTERFACE), _interfaces(annotations.get(INTERFACES))
        if chosen and interfaces and all(each.get("interfaceName") != chosen for each in interfaces):
            return _denied(f"{template.path}: {DEFAULT_INTERFACE} {chosen} is not in {INTERFACES}")
    return None


def network_in_use(call: Call) -> Refusal | None:
    """A Network in use is not deleted, nor is its parameter set; the deletion waits until nothing uses it."""
    if call.verb != "delete" or call.type not in (NETWORK, PARAM_SET):
        return None
    for type_, id_, live in call.state.all():
        if not type_.startswith("kubernetes:"):
            continue
        if call.type == PARAM_SET and type_ == NETWORK and value_at(live, "spec.parametersRef.name") == call.id:
            return _stays(call, f"Network {id_} still refers to it", CONTROLLER)
        if call.type == NETWORK and call.id in _used(type_, live):
            return _stays(call, f"the pods of {api(type_).kind} {id_} use it", WEBHOOK)
    return None


def _used(type_: str, live: Json) -> set[Any]:
    texts = [(template.metadata.get("annotations") or {}).get(INTERFACES) for template in templates(type_, live)]
    return {interface.get("network") for text in texts if text for interface in _interfaces(text) or ()}


def _stays(call: Call, why: str, source: str) -> Refusal:
    kind = api(call.type)
    return Refusal(
        "timeout",
        f"{kind.resource} {call.id}: timed out waiting for the deletion: a finalizer keeps the object, because {why}",
        source,
    )


def _spec(call: Call, type_: str) -> Json:
    spec: Json = {} if call.verb == "delete" or call.type != type_ else call.inputs.get("spec") or {}
    return spec


def _not_ready(call: Call, reason: str, words: str, source: str = CONTROLLER) -> Refusal:
    return Refusal(f"condition Ready=False {reason}", f"{api(call.type).kind} {call.id}: {words}", source)


def _denied(words: str, source: str = WEBHOOK) -> Refusal:
    return Refusal("403 Forbidden", f"admission webhook of GKE's multi-networking denied the request: {words}", source)


def _annotations(call: Call) -> Iterator[tuple[str, Any]]:
    for template in [] if call.verb == "delete" else templates(call.type, call.inputs):
        text = (template.metadata.get("annotations") or {}).get(INTERFACES)
        if text is not None:
            yield template.path, text


def _interfaces(text: Any) -> list[Json] | None:
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if isinstance(found, list) and all(isinstance(each, dict) for each in found) else None


RULES = (
    vpc_missing,
    subnet_missing,
    subnet_shared,
    cluster_network_as_device,
    device_mode_or_ranges,
    device_mode_unfit,
    parameters_missing,
    network_of_gke,
    interfaces_malformed,
    network_missing,
    default_interface_missing,
    network_in_use,
)
