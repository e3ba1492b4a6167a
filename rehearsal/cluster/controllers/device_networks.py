"""GKE's network objects: readiness of GKENetworkParamSet and Network, and the finalizer of a parameter set.

Replaces the controllers of kubernetes/cloud-provider-gcp (pkg/controller/gkenetworkparamset at 006bd8b8 and 04532690,
read 2026-11-21), with their conditions, messages and finalizer. Pods: see `admission`.
"""

from __future__ import annotations

from collections.abc import Iterable

from infra.catalog.pins import GKE_NETWORK_API
from rehearsal.clouds.gcp import references as gcp
from rehearsal.clouds.kubernetes.pods import GIVEN
from rehearsal.cluster.controllers.admission import NAMES, NETWORK, PARAMETERS
from rehearsal.cluster.controllers.snapshot import Context, Snapshot, new_condition
from rehearsal.engine.kind import Json, value_at

FINALIZER = "networking.gke.io/gnp-controller"
Problem = tuple[str, str]
"""Reason and message."""


class DeviceNetworks:
    """Maintains the conditions of the networks, their finalizer, and the list of networks for pods."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._reported: dict[str, str | None] = {}

    def reconcile(self, snapshot: Snapshot) -> None:
        """Update every parameter set and network that changed."""
        if snapshot.cluster is None or not value_at(snapshot.cluster.live, "enableMultiNetworking"):
            self._reported.clear()
            return
        networks, parameters = snapshot.custom(NETWORK), snapshot.custom(PARAMETERS)
        problems = {body["metadata"]["name"]: unfit(body, parameters, snapshot) for body in parameters}
        for body in parameters:
            self._parameters(body, networks, problems[body["metadata"]["name"]])
        for body in networks:
            wanted = str(value_at(body, "spec.parametersRef.name"))
            deleted = "GNPDeleted", f"GKENetworkParamSet resource was deleted: {wanted}"
            self._network(body, problems.get(wanted, deleted))
        self._list([body["metadata"]["name"] for body in networks if not body["metadata"].get("deletionTimestamp")])

    def _parameters(self, body: Json, networks: list[Json], problem: Problem | None) -> None:
        name, api = body["metadata"]["name"], self._context.api
        referring = any(value_at(each, "spec.parametersRef.name") == name for each in networks)
        finalizers = body["metadata"].get("finalizers") or []
        if not body["metadata"].get("deletionTimestamp"):
            if FINALIZER not in finalizers:
                more = {"metadata": {"finalizers": [*finalizers, FINALIZER]}}
                api.patch(GKE_NETWORK_API, PARAMETERS, name, None, more)
            self._set(body, new_condition("Ready", *_said(problem, "GNPReady")))
        elif FINALIZER in finalizers and not referring:
            kept = [each for each in finalizers if each != FINALIZER]
            api.patch(GKE_NETWORK_API, PARAMETERS, name, None, {"metadata": {"finalizers": kept}})

    def _network(self, body: Json, problem: Problem | None) -> None:
        name = body["metadata"]["name"]
        params = new_condition("ParamsReady", *_said(problem, "GNPParamsReady", "GNPParamsNotReady"))
        self._set(body, params, new_condition("Ready", *_said(problem, "NetworkReady", "ParamsNotReady")))
        message = problem[1] if problem else None
        if name not in GIVEN and self._reported.get(name, "") != message:
            self._reported[name] = message
            state = f"not ready: {message}" if message else "ready"
            self._context.report("NetworkReady", network=name, state=state)

    def _set(self, body: Json, *conditions: Json) -> None:
        """Write the conditions of an object if they have changed."""
        known = {each["type"]: (each["status"], each["message"]) for each in value_at(body, "status.conditions") or ()}
        if any(known.get(each["type"]) != (each["status"], each["message"]) for each in conditions):
            status = {"status": {"conditions": list(conditions)}}
            name = body["metadata"]["name"]
            self._context.api.patch(GKE_NETWORK_API, body["kind"], name, None, status, subresource="status")

    def _list(self, names: list[str]) -> None:
        namespace, name = NAMES
        found = self._context.api.get("v1", "ConfigMap", name, namespace)
        listed = ",".join(sorted({*names, *GIVEN}))
        if found is not None and (found.get("data") or {}).get("names") != listed:
            self._context.api.patch("v1", "ConfigMap", name, namespace, {"data": {"names": listed}})


def unfit(body: Json, parameters: Iterable[Json], snapshot: Snapshot) -> Problem | None:
    """Return why a parameter set is not ready, as the controller does; None if it is. Pure."""
    metadata, spec = body["metadata"], body["spec"]
    vpc, subnet, mode = spec.get("vpc"), spec.get("vpcSubnet"), spec.get("deviceMode")
    ranges = value_at(spec, "podIPv4Ranges.rangeNames")
    own = str((snapshot.cluster.live if snapshot.cluster else {}).get("network") or "default").rpartition("/")[2]
    users = [
        other["metadata"]["name"]
        for other in parameters
        if other["spec"].get("vpcSubnet") == subnet
        and str(other["metadata"].get("creationTimestamp")) < str(metadata.get("creationTimestamp"))
    ]
    both = "PodIPv4Ranges and DeviceMode can not be specified at the same time"
    neither = "One of PodIPV4Ranges or DeviceMode must be specified."
    shared = f"GNP with deviceMode can't reference a subnet already in use. Subnet '{vpc}' is already in use by "
    problems = (
        (ranges and mode, "DeviceModeCantBeUsedWithSecondaryRange", both),
        (not ranges and not mode, "SecondaryRangeAndDeviceModeUnspecified", neither),
        (_lacks(snapshot, gcp.SUBNETWORK, subnet), "SubnetNotFound", f"subnet: {subnet} not found in VPC: {vpc}"),
        (_lacks(snapshot, gcp.NETWORK, vpc), "VPCNotFound", f"VPC: {vpc} not found"),
        (mode and vpc == own, "DeviceModeCantUseDefaultVPC", "GNP with deviceMode can't reference the default VPC"),
        (mode and users, "DeviceModeSubnetAlreadyInUse", f"{shared}{users}"),
    )
    if metadata["name"] in GIVEN:
        return None
    return next(((reason, words) for broken, reason, words in problems if broken), None)


def _lacks(snapshot: Snapshot, type_: str, name: str) -> bool:
    return all(live.get("name") != name for live in snapshot.live[type_])


def _said(problem: Problem | None, good: str, bad: str = "") -> tuple[str, str, str]:
    """Return the status, reason and message of a condition."""
    return ("True", good, "") if problem is None else ("False", bad or problem[0], problem[1])
