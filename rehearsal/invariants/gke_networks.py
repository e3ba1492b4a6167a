"""Invariants of a Google Cloud stack's three networks, and of the pods' NICs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from ipaddress import IPv4Network

from infra.catalog.gcp import MTU
from infra.gke.pod import GVNIC_NETWORK, device_mode, rdma_network
from infra.kubernetes.queue_objects import VISIBILITY_PORT, WEBHOOK_PORT
from rehearsal.graph import Node
from rehearsal.invariants.gke_resources import (
    CLUSTER,
    FIREWALL,
    NETWORK,
    PAIR,
    POOL,
    ROUTER,
    SUBNET,
    gpu_pools,
    gvnic_networks,
    machine_of,
    nic_subnets,
    own_networks,
    roce_networks,
    subnets_of,
)
from rehearsal.invariants.invariant import Invariant, Stack, at, expect
from rehearsal.invariants.kubernetes import ray_clusters


def one_rdma_subnet_per_nic(stack: Stack) -> Iterator[str]:
    """The RoCE network has exactly one subnet per RDMA NIC, in the region of the zone."""
    if not own_networks(stack):
        return
    found = roce_networks(stack)
    if len(found) != 1:
        yield f"there are {len(found)} RoCE networks"
        return
    machine, zone = machine_of(stack), str(stack.gke.location)
    profile = str(at(found[0], "networkProfile"))
    if not profile.endswith(f"/global/networkProfiles/{zone}-{machine.network_profile}"):
        yield f"{found[0].name}: networkProfile is {profile}"
    subnets = subnets_of(stack, found[0])
    if len(subnets) != machine.nics:
        yield f"{len(subnets)} subnets for {machine.nics} NICs"
    for subnet in subnets:
        yield from expect(subnet, region=zone.rpartition("-")[0])


def roce_network_is_bare(stack: Stack) -> Iterator[str]:
    """The RoCE network has no firewall rule, no router and no NAT."""
    for roce in roce_networks(stack):
        for node in (*stack.of(FIREWALL), *stack.of(ROUTER)):
            if roce.urn in stack.graph.needs(node.urn):
                yield f"{node.type} {node.name} is on it"


def networks_carry_large_frames(stack: Stack) -> Iterator[str]:
    """Every network has an MTU of 8896 bytes and no automatic subnets."""
    for node in stack.of(NETWORK):
        yield from expect(node, mtu=MTU, autoCreateSubnetworks=False)


def gvnic_network_is_open_inside(stack: Stack) -> Iterator[str]:
    """Only the nodes reach each other over the second host NIC."""
    if not own_networks(stack):
        return
    rules = [rule for rule in stack.of(FIREWALL) if not for_webhooks(rule)]
    if not rules:
        yield "no firewall rule allows them"
    for rule in rules:
        yield from expect(rule, direction="INGRESS")
        if not any(str(at(rule, "network")).endswith(f"/{at(node, 'name')}") for node in gvnic_networks(stack)):
            yield f"{rule.name} is on {at(rule, 'network')}"
        ranges = at(rule, "sourceRanges") or []
        if not ranges or not all(IPv4Network(cidr).is_private for cidr in ranges):
            yield f"{rule.name} lets {ranges} in"
        if not {"tcp", "udp", "icmp"} <= {allow.get("protocol") for allow in at(rule, "allows") or []}:
            yield f"{rule.name} does not allow tcp, udp and icmp"


def control_plane_calls_kueue(stack: Stack) -> Iterator[str]:
    """Only the control plane reaches Kueue's webhooks and API; without a queue no rule allows it."""
    rules = [rule for rule in stack.of(FIREWALL) if for_webhooks(rule)]
    if len(rules) != (stack.gke.queue == "kueue"):
        yield f"{len(rules)} firewall rules allow the control plane"
    for rule in rules:
        (cluster,) = stack.of(CLUSTER)
        ports = [{"protocol": "tcp", "ports": [str(WEBHOOK_PORT), str(VISIBILITY_PORT)]}]
        calls_from = [at(cluster, "privateClusterConfig.masterIpv4CidrBlock")]
        yield from expect(rule, direction="INGRESS", sourceRanges=calls_from, allows=ports)
        if at(rule, "network") != at(cluster, "network"):
            yield f"{rule.name} is on {at(rule, 'network')}"
        accounts = {at(pool, "nodeConfig.serviceAccount") for pool in stack.of(POOL)}
        if set(at(rule, "targetServiceAccounts") or []) != accounts:
            yield f"{rule.name} is for {at(rule, 'targetServiceAccounts')}, and nodes are {sorted(map(str, accounts))}"


def for_webhooks(rule: Node) -> bool:
    """Return whether a firewall rule is for the control plane."""
    return str(at(rule, "name")).endswith("-webhooks")


def nodes_reach_out_through_nat(stack: Stack) -> Iterator[str]:
    """Private nodes reach the internet through NAT, and Google's APIs without it."""
    nats = stack.of("gcp:compute/routerNat:RouterNat")
    if not nats:
        yield "there is no NAT"
    for nat in nats:
        yield from expect(
            nat,
            natIpAllocateOption="AUTO_ONLY",
            sourceSubnetworkIpRangesToNat="ALL_SUBNETWORKS_ALL_IP_RANGES",
            logConfig__enable=True,
            logConfig__filter="ERRORS_ONLY",
        )
    for router in stack.of(ROUTER):
        clusters = {at(cluster, "network") for cluster in stack.of(CLUSTER)}
        if at(router, "network") not in clusters:
            yield f"{router.name}: it is on {at(router, 'network')}"
    for subnet in stack.of(SUBNET):
        if at(subnet, "secondaryIpRanges"):
            yield from expect(subnet, privateIpGoogleAccess=True)


def ranges_are_disjoint(stack: Stack) -> Iterator[str]:
    """No two address ranges of the stack overlap."""
    ranges = [
        (f"{subnet.name} {name}", IPv4Network(cidr))
        for subnet in stack.of(SUBNET)
        for name, cidr in (
            ("nodes", at(subnet, "ipCidrRange")),
            *((extra["rangeName"], extra["ipCidrRange"]) for extra in at(subnet, "secondaryIpRanges") or []),
        )
    ]
    for node in stack.of(CLUSTER):
        ranges.append((f"{node.name} control plane", IPv4Network(at(node, "privateClusterConfig.masterIpv4CidrBlock"))))
    for number, (name, one) in enumerate(ranges):
        for other_name, other in ranges[number + 1 :]:
            if one.overlaps(other):
                yield f"{name} and {other_name} do"


def nine_node_networks(stack: Stack) -> Iterator[str]:
    """A GPU node has one extra interface for the second host NIC and one per RDMA NIC, in the order of the NICs."""
    wanted = [at(node, "name") for node in nic_subnets(stack)]
    for pool in gpu_pools(stack):
        found = [one.get("subnetwork") for one in at(pool, "networkConfig.additionalNodeNetworkConfigs") or []]
        if found != wanted:
            yield f"{pool.name}: {found}"
        if not wanted:
            yield from expect(pool, networkConfig__acceleratorNetworkProfile="auto")
        if (
            not wanted
            and (at(pool, "nodeConfig.labels") or {}).get("cloud.google.com/gke-networking-dra-driver") != "true"
        ):
            yield f"{pool.name}: the label of the DRA driver is missing"


def network_objects_match_subnets(stack: Stack) -> Iterator[str]:
    """Each Network object that pods name refers to the subnet of its NIC."""
    if stack.gke.fabric != "multi-network":
        if stack.of(PAIR[0]) or stack.of(PAIR[1]):
            yield "Network objects exist in addition to DRANET"
        return
    names = [GVNIC_NETWORK, *(rdma_network(nic) for nic in range(machine_of(stack).nics))]
    for type_ in PAIR:
        found = {at(node, "metadata.name"): node for node in stack.of(type_)}
        if sorted(found) != sorted(names):
            yield f"{type_.rpartition(':')[2]}: {sorted(found)}"
    for parameters in stack.of(PAIR[0]):
        name = str(at(parameters, "metadata.name"))
        yield from expect(parameters, spec__deviceMode=device_mode(name))
        if not str(at(parameters, "spec.vpcSubnet")).endswith(f"-{name}"):
            yield f"{name} refers to {at(parameters, 'spec.vpcSubnet')}"
    for network in stack.of(PAIR[1]):
        yield from expect(network, spec__type="Device", spec__parametersRef__name=at(network, "metadata.name"))


def pods_ask_for_every_nic(stack: Stack) -> Iterator[str]:
    """A worker gets every NIC of its node, by annotation or by claim."""
    machine = machine_of(stack)
    for ray in ray_clusters(stack):
        template = "spec.workerGroupSpecs.0.template"
        annotations = at(ray, f"{template}.metadata.annotations") or {}
        claims = at(ray, f"{template}.spec.resourceClaims") or []
        interfaces = json.loads(annotations.get("networking.gke.io/interfaces", "[]"))
        if stack.gke.fabric == "multi-network" and len(interfaces) != machine.nics + 2:
            yield f"{ray.name}: {len(interfaces)} interfaces"
        if stack.gke.fabric != "multi-network" and not claims:
            yield f"{ray.name}: no claim"


INVARIANTS: tuple[Invariant, ...] = (
    one_rdma_subnet_per_nic,
    roce_network_is_bare,
    networks_carry_large_frames,
    gvnic_network_is_open_inside,
    control_plane_calls_kueue,
    nodes_reach_out_through_nat,
    ranges_are_disjoint,
    nine_node_networks,
    network_objects_match_subnets,
    pods_ask_for_every_nic,
)
