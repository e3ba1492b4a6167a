"""GKE's network objects: readiness of GKENetworkParamSet and Network, and the finalizer of a parameter set.

Replaces the controllers of kubernetes/cloud-provider-gcp (pkg/controller/gkenetworkparamset at 006bd8b8 and 04532690,
read 2026-11-21), with their conditions, reasons, messages and finalizer. Pods: see `admission`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from infra.catalog.pins import GKE_NETWORK_API
from rehearsal.clouds.gcp import tokens as gcp
from rehearsal.clouds.kind import Json, value_at
from rehearsal.clouds.kubernetes.device_networks import GIVEN
from rehearsal.cluster.controllers.admission import NAMES, NETWORK, PARAMETERS
from rehearsal.cluster.controllers.events import NetworkReady
from rehearsal.cluster.controllers.snapshot import Context, Snapshot

FINALIZER = "networking.gke.io/gnp-controller"


class DeviceNetworks:
    """Maintains the conditions of the networks, their finalizer, and the list of networks for pods."""

    name = "device networks"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._reported: dict[str, str | None] = {}

    def reconcile(self, snapshot: Snapshot) -> None:
        """Update every parameter set and network that changed."""
        if snapshot.cluster is None or not value_at(snapshot.cluster.live, "enableMultiNetworking"):
            self._reported.clear()
            return
        networks, parameters = snapshot.custom(NETWORK), snapshot.custom(PARAMETERS)
        by_name = {each["metadata"]["name"]: each for each in parameters}
        for body in parameters:
            self._parameters(body, networks, unfit(body, parameters, snapshot))
        for body in networks:
            its = by_name.get(str(value_at(body, "spec.parametersRef.name")))
            self._network(body, its, None if its is None else unfit(its, parameters, snapshot))
        self._list([body["metadata"]["name"] for body in networks if not body["metadata"].get("deletionTimestamp")])

    def _parameters(self, body: Json, networks: list[Json], problem: tuple[str, str] | None) -> None:
        name, api = body["metadata"]["name"], self._context.api
        referring = [each["metadata"]["name"] for each in networks if value_at(each, "spec.parametersRef.name") == name]
        finalizers = list(body["metadata"].get("finalizers") or ())
        if body["metadata"].get("deletionTimestamp"):
            if FINALIZER in finalizers and not referring:
                finalizers.remove(FINALIZER)
                api.patch(GKE_NETWORK_API, PARAMETERS, name, None, {"metadata": {"finalizers": finalizers}})
            return
        if FINALIZER not in finalizers:
            api.patch(GKE_NETWORK_API, PARAMETERS, name, None, {"metadata": {"finalizers": [*finalizers, FINALIZER]}})
        now = _condition("Ready", problem, "GNPReady" if problem is None else problem[0])
        before = body.get("status") or {}
        used_by = referring[0] if referring and problem is None else before.get("networkName")
        if _differs(before, [now]) or used_by != before.get("networkName"):
            status = {"conditions": [now], **({"networkName": used_by} if used_by else {})}
            api.patch(GKE_NETWORK_API, PARAMETERS, name, None, {"status": status}, subresource="status")

    def _network(self, body: Json, parameters: Json | None, problem: tuple[str, str] | None) -> None:
        name = body["metadata"]["name"]
        wanted = value_at(body, "spec.parametersRef.name")
        if wanted is None:
            return
        if parameters is None:
            problem = "GNPDeleted", f"GKENetworkParamSet resource was deleted: {wanted}"
        elif problem is None and body["spec"]["type"] == "Device" and not value_at(parameters, "spec.deviceMode"):
            problem = "DeviceModeMissing", "Device type network requires device mode to be specified in params"
        elif problem is not None:
            problem = "GNPParamsNotReady", problem[1]
        said = None if problem is None else problem[1]
        reason = "GNPParamsReady" if problem is None else problem[0]
        now = [
            _condition("ParamsReady", problem, reason),
            _condition("Ready", problem, "NetworkReady" if problem is None else "ParamsNotReady"),
        ]
        if _differs(body.get("status") or {}, now):
            self._context.api.patch(
                GKE_NETWORK_API, NETWORK, name, None, {"status": {"conditions": now}}, subresource="status"
            )
        if name not in GIVEN and self._reported.get(name, "") != said:
            self._reported[name] = said
            self._context.report(NetworkReady(network=name, problem=said))

    def _list(self, names: list[str]) -> None:
        namespace, name = NAMES
        found = self._context.api.get("v1", "ConfigMap", name, namespace)
        listed = ",".join(sorted({*names, *GIVEN}))
        if found is not None and (found.get("data") or {}).get("names") != listed:
            self._context.api.patch("v1", "ConfigMap", name, namespace, {"data": {"names": listed}})


def unfit(body: Json, parameters: Iterable[Json], snapshot: Snapshot) -> tuple[str, str] | None:
    """Return why a parameter set is not ready, as (reason, message) of the controller; None if it is. Pure."""
    spec = body.get("spec") or {}
    vpc, subnet, mode = spec.get("vpc"), spec.get("vpcSubnet"), spec.get("deviceMode")
    ranges = value_at(spec, "podIPv4Ranges.rangeNames")
    if not vpc or not subnet:
        return "GNPConfigInvalid", "NetworkAttachment or (VPC + VPCSubnet) must be specified"
    if not ranges and not mode:
        return "SecondaryRangeAndDeviceModeUnspecified", "One of PodIPV4Ranges or DeviceMode must be specified."
    if ranges and mode:
        words = "PodIPv4Ranges and DeviceMode can not be specified at the same time"
        return "DeviceModeCantBeUsedWithSecondaryRange", words
    if body["metadata"]["name"] in GIVEN:
        return None
    if all(live.get("name") != subnet for live in snapshot.live(gcp.SUBNETWORK)):
        return "SubnetNotFound", f"subnet: {subnet} not found in VPC: {vpc}"
    if all(live.get("name") != vpc for live in snapshot.live(gcp.NETWORK)):
        return "VPCNotFound", f"VPC: {vpc} not found"
    own = str((snapshot.cluster.live if snapshot.cluster else {}).get("network") or "default").rpartition("/")[2]
    if mode and vpc == own:
        return "DeviceModeCantUseDefaultVPC", "GNP with deviceMode can't reference the default VPC"
    for other in parameters:
        its = other["metadata"]
        newer = str(body["metadata"].get("creationTimestamp")) > str(its.get("creationTimestamp"))
        if mode and its["name"] != body["metadata"]["name"] and value_at(other, "spec.vpcSubnet") == subnet and newer:
            words = (
                f"GNP with deviceMode can't reference a subnet already in use. Subnet '{value_at(other, 'spec.vpc')}'"
            )
            return "DeviceModeSubnetAlreadyInUse", f"{words} is already in use by '{its['name']}'"
    return None


def _condition(type_: str, problem: tuple[str, str] | None, reason: str) -> Json:
    return {
        "type": type_,
        "status": "True" if problem is None else "False",
        "reason": reason,
        "message": "" if problem is None else problem[1],
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _differs(before: Json, now: list[Json]) -> bool:
    known = {each["type"]: each for each in before.get("conditions") or ()}
    return any(
        each["type"] not in known
        or any(known[each["type"]].get(key) != each[key] for key in ("status", "reason", "message"))
        for each in now
    )
