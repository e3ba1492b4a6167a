"""RDMA: every NIC has its network, every node all NICs of its machine, and every worker all NICs of its node."""

from __future__ import annotations

import json
from collections.abc import Iterator

from infra.catalog.fabrics import FABRICS
from infra.catalog.machines import CATALOG
from infra.catalog.names import OTHER_GROUP
from rehearsal.engine.kind import value_at
from rehearsal.graph import GraphNode
from rehearsal.invariants.invariant import Stack, at, differs, name_of
from rehearsal.invariants.placement import (
    CHARTS,
    MachinePool,
    Pods,
    pods_of,
    worker_pods,
    worker_pools,
    worker_templates,
)

RESOURCES = [row.resource.name for row in FABRICS.values() if row.resource]
VPC = "gcp:compute/network:Network"


def nodes_have_every_nic(stack: Stack) -> Iterator[str]:
    """A GKE node has an interface in the subnet of each additional NIC, and one RDMA subnet per NIC of the machine; an
    EKS node has as many EFAs, and a primary interface."""
    if stack.on_users_cluster:
        return
    nics, subnets = CATALOG[stack.cloud.nodes.machine].nics, _subnets(stack)
    for pool in worker_pools(stack) if stack.cloud.target == "gke" else ():
        yield from differs(pool.name, sorted(_places(pool)), sorted(subnets))
        managed = at(pool.node, "networkConfig.acceleratorNetworkProfile") is not None
        rdma = sum(at(network, "networkProfile") is not None for network in subnets.values())
        yield from differs("RDMA subnets", rdma, 0 if managed else nics)
    for template in worker_templates(stack):
        asked = at(template, "networkInterfaces") or []
        efas = sum(one["interfaceType"] in ("efa", "efa-only") for one in asked)
        first = sum(one["networkCardIndex"] == one["deviceIndex"] == 0 for one in asked)
        yield from differs(f"{template.name}: EFAs, primary interfaces", [efas, first], [nics, 1])


def pods_have_every_nic_of_their_node(stack: Stack) -> Iterator[str]:
    """A pod with GPUs has every RDMA NIC of its node: by an annotation that lists Network objects of the node's
    interfaces in order, by EFA resources, or by a claim of all its containers. One of otherNodes has none."""
    parameters = {name_of(node): at(node, "spec") for node in stack.of("GKENetworkParamSet")}
    objects = stack.of("kubernetes:networking.gke.io/v1:Network")
    networks = {name_of(node): parameters[at(node, "spec.parametersRef.name")] for node in objects}
    for pods in worker_pods(stack):
        names = [one["network"] for one in json.loads(pods.annotations.get("networking.gke.io/interfaces", "[]"))]
        yield from differs(f"{pods}: additional networks", set(names[1:]), set(networks))
        listed = [networks[name] for name in names[1:]]
        rdma = sum(one["deviceMode"] == "RDMA" for one in listed)
        nics, gpus, own = stack.cluster.nics_per_node or 0, stack.cluster.gpus_per_node, stack.cluster.fabric_row
        resources = {*RESOURCES, *([own.resource.name] if own.resource else [])}
        asked = [int(pods.asks.get(name, 0)) for name in resources]
        ways = [number for number in (rdma, *asked, _claimed(stack, pods)) if number]
        nics = own.resource.amount(nics=nics, gpus=gpus) if own.resource else nics
        yield from differs(f"{pods}: NICs", ways, [nics] if own.transport.rdma and pods.name != OTHER_GROUP else [])
        for pool in worker_pools(stack) if names else ():
            places = [(one["vpc"], one["vpcSubnet"]) for one in listed]
            yield from differs(f"{pods} on {pool.name}", [names[0], *places], ["default", *_places(pool)])


def rdma_network_has_no_rules(stack: Stack) -> Iterator[str]:
    """A network with an RDMA profile has no firewall rule, router or NAT: the profile supports none."""
    for network in (node for node in stack.of(VPC) if at(node, "networkProfile")):
        users = [node.name for node in stack.of("Firewall", "Router") if stack.needs(node, network)]
        yield from differs(network.name, users, [])


def devices_have_one_provider(stack: Stack) -> Iterator[str]:
    """Each device that pods request has one provider, which runs on their nodes: a plugin for EFA resources or DRANET
    for claims, never both. GKE provides GPUs and managed DRANET itself, and a user's cluster all devices, or those of
    cluster.provides."""
    for pods in worker_pods(stack):
        nvidia = "nvidia-device-plugin"
        wanted = {nvidia: stack.cluster.target == "eks" and stack.cloud.installs(nvidia)}
        for chart, row in CHARTS.items():
            claimed = row == stack.cluster.fabric_row and _claimed(stack, pods) > 0
            provided = row.resource.name in pods.asks if row.resource else claimed
            wanted[chart] = provided and not stack.on_users_cluster and stack.cloud.installs("efa-device-plugin")
        yield from differs("drivers", {chart: len(stack.charts(chart)) for chart in wanted}, wanted)
    for release in stack.charts(*(chart for chart, row in CHARTS.items() if "eks" in row.targets)):
        machines = set(at(release, "values.supportedInstanceLabels.values"))
        yield from differs(release.name, machines, {pool.machine for pool in worker_pools(stack)})


def the_installer_writes_what_pods_mount(stack: Stack) -> Iterator[str]:
    """Folders that pods with GPUs mount from their host, or folders in them, are those that the installer writes."""
    daemons = [pods for node in stack.of("DaemonSet") for pods in pods_of(node)]
    written = [str(value_at(volume, "hostPath.path")) for pods in daemons for volume in pods.volumes]
    for pods in worker_pods(stack):
        for path in filter(None, (value_at(volume, "hostPath.path") for volume in pods.volumes)):
            if not any(f"{one}/".startswith(f"{path}/") for one in written):
                yield f"{pods} mount {path}, and the installer writes {written}"


def _subnets(stack: Stack) -> dict[tuple[str, str], GraphNode]:
    """Return the networks of the additional NICs by the names of network and subnet: all but the cluster's."""
    return {
        (name_of(network), name_of(subnet)): network
        for network in stack.of(VPC)
        for subnet in stack.of("Subnetwork")
        if stack.needs(subnet, network) and not any(stack.needs(one, network) for one in stack.of("Cluster"))
    }


def _places(pool: MachinePool) -> list[tuple[str, str]]:
    """Return the network and subnet of each additional interface of a GKE node."""
    asked = at(pool.node, "networkConfig.additionalNodeNetworkConfigs") or []
    return [(one["network"], one["subnetwork"]) for one in asked]


def _claimed(stack: Stack, pods: Pods) -> int:
    """Return the number of devices of the claims that every container of a pod uses."""
    requests = {name_of(node): at(node, "spec.spec.devices.requests") for node in stack.of("ResourceClaimTemplate")}
    used = [{claim["name"] for claim in value_at(one, "resources.claims") or []} for one in pods.containers]
    claims = [one for one in pods.spec.get("resourceClaims") or [] if all(one["name"] in names for names in used)]
    return sum(one["exactly"]["count"] for claim in claims for one in requests[claim["resourceClaimTemplateName"]])
