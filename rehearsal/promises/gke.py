"""What a stack on Google Cloud promises beyond that: its three networks, its cluster, its GPU pools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from ipaddress import IPv4Network

from infra.capacity import GKE_CAPACITIES
from infra.gke.device_networks import device_mode
from infra.gke.fabric import COMPUTE_CLASS, GVNIC_NETWORK, rdma_network
from infra.gke.installer import VERSION as GIB_VERSION
from infra.gke.network import MTU
from infra.gke.versions import minimum_version, version_key
from infra.machines import GkeMachine, gke_machine
from rehearsal.graph import Node
from rehearsal.promises.kubernetes import RAY_CLUSTER, RELEASE, on_the_way_down
from rehearsal.promises.promise import Promise, Stack, at, expect

NETWORK = "gcp:compute/network:Network"
SUBNET = "gcp:compute/subnetwork:Subnetwork"
FIREWALL = "gcp:compute/firewall:Firewall"
ROUTER = "gcp:compute/router:Router"
CLUSTER = "gcp:container/cluster:Cluster"
POOL = "gcp:container/nodePool:NodePool"
PAIR = ("kubernetes:networking.gke.io/v1:GKENetworkParamSet", "kubernetes:networking.gke.io/v1:Network")


def one_rdma_subnet_per_nic(stack: Stack) -> Iterator[str]:
    """The RoCE network has exactly one subnet per RDMA NIC, in the region of the zone."""
    if not _own_networks(stack):
        return
    roce = _roce(stack)
    if len(roce) != 1:
        yield f"there are {len(roce)} RoCE networks"
        return
    machine, zone = _machine(stack), str(stack.settings.location)
    profile = str(at(roce[0], "networkProfile"))
    if not profile.endswith(f"/global/networkProfiles/{zone}-{machine.network_profile}"):
        yield f"{roce[0].name}: networkProfile is {profile}"
    subnets = _subnets_of(stack, roce[0])
    if len(subnets) != machine.nics:
        yield f"{len(subnets)} subnets for {machine.nics} NICs"
    for subnet in subnets:
        yield from expect(subnet, region=zone.rpartition("-")[0])


def roce_network_is_bare(stack: Stack) -> Iterator[str]:
    """The RoCE network has no firewall rule, no router and no NAT."""
    for roce in _roce(stack):
        for node in (*stack.of(FIREWALL), *stack.of(ROUTER)):
            if roce.urn in stack.graph.needs(node.urn):
                yield f"{node.type} {node.name} is on it"


def networks_carry_large_frames(stack: Stack) -> Iterator[str]:
    """Every network carries frames of 8896 bytes, and makes no subnet by itself."""
    for node in stack.of(NETWORK):
        yield from expect(node, mtu=MTU, autoCreateSubnetworks=False)


def gvnic_network_is_open_inside(stack: Stack) -> Iterator[str]:
    """The nodes may talk to each other over the second host NIC, and nobody else may."""
    if not _own_networks(stack):
        return
    if not stack.of(FIREWALL):
        yield "no firewall rule lets them"
    for rule in stack.of(FIREWALL):
        ranges = at(rule, "sourceRanges") or []
        if not ranges or not all(IPv4Network(cidr).is_private for cidr in ranges):
            yield f"{rule.name} lets {ranges} in"
        if not {"tcp", "udp", "icmp"} <= {allow.get("protocol") for allow in at(rule, "allows") or []}:
            yield f"{rule.name} does not let tcp, udp and icmp in"


def nodes_reach_out_through_nat(stack: Stack) -> Iterator[str]:
    """Private nodes reach the internet through NAT, and Google's APIs without it."""
    if not stack.of("gcp:compute/routerNat:RouterNat"):
        yield "there is no NAT"
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
    """A GPU node has one more interface for the second host NIC and one per RDMA NIC, in the order of the NICs."""
    wanted = [at(node, "name") for node in _nic_subnets(stack)]
    for pool in _gpu_pools(stack):
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
    """Pods name a NIC by a Network object, which leads to the NIC's own subnet."""
    if stack.settings.fabric != "multi-network":
        if stack.of(PAIR[0]) or stack.of(PAIR[1]):
            yield "there are Network objects beside DRANET"
        return
    names = [GVNIC_NETWORK, *(rdma_network(nic) for nic in range(_machine(stack).nics))]
    for type_ in PAIR:
        found = {at(node, "metadata.name"): node for node in stack.of(type_)}
        if sorted(found) != sorted(names):
            yield f"{type_.rpartition(':')[2]}: {sorted(found)}"
    for parameters in stack.of(PAIR[0]):
        name = str(at(parameters, "metadata.name"))
        yield from expect(parameters, spec__deviceMode=device_mode(name))
        if not str(at(parameters, "spec.vpcSubnet")).endswith(f"-{name}"):
            yield f"{name} leads to {at(parameters, 'spec.vpcSubnet')}"
    for network in stack.of(PAIR[1]):
        yield from expect(network, spec__type="Device", spec__parametersRef__name=at(network, "metadata.name"))


def pods_ask_for_every_nic(stack: Stack) -> Iterator[str]:
    """A worker gets every NIC of its node: by annotation, or by a claim."""
    machine = _machine(stack)
    for ray in stack.of(RAY_CLUSTER):
        template = "spec.workerGroupSpecs.0.template"
        annotations = at(ray, f"{template}.metadata.annotations") or {}
        claims = at(ray, f"{template}.spec.resourceClaims") or []
        interfaces = json.loads(annotations.get("networking.gke.io/interfaces", "[]"))
        if stack.settings.fabric == "multi-network" and len(interfaces) != machine.nics + 2:
            yield f"{ray.name}: {len(interfaces)} interfaces"
        if stack.settings.fabric != "multi-network" and not claims:
            yield f"{ray.name}: no claim"


def cluster_carries_the_fabric(stack: Stack) -> Iterator[str]:
    """The cluster has what can be chosen at creation only: VPC-native addresses, Dataplane V2, multi-networking."""
    for cluster in stack.of(CLUSTER):
        yield from expect(
            cluster,
            networkingMode="VPC_NATIVE",
            datapathProvider="ADVANCED_DATAPATH",
            enableMultiNetworking=stack.settings.fabric != "managed-dranet",
            nodeLocations=[stack.settings.location],
        )
        if not at(cluster, "ipAllocationPolicy.clusterSecondaryRangeName"):
            yield f"{cluster.name}: pods have no range of their own"


def cluster_is_closed(stack: Stack) -> Iterator[str]:
    """Nodes are private and shielded, pods have identities of their own, the control plane answers whom it should."""
    access = stack.settings.access
    for cluster in stack.of(CLUSTER):
        yield from expect(
            cluster,
            privateClusterConfig__enablePrivateNodes=True,
            privateClusterConfig__enablePrivateEndpoint=not access.public_endpoint,
            enableShieldedNodes=True,
        )
        blocks = at(cluster, "masterAuthorizedNetworksConfig.cidrBlocks")
        if blocks is None or [block["cidrBlock"] for block in blocks] != list(access.authorized_networks):
            yield f"{cluster.name}: authorized networks are {blocks}"
        if not at(cluster, "workloadIdentityConfig.workloadPool"):
            yield f"{cluster.name}: no workload identity"
        if at(cluster, "controlPlaneEndpointsConfig.dnsEndpointConfig.allowExternalTraffic") is not True:
            yield f"{cluster.name}: the DNS endpoint is closed"


def everything_is_protected(stack: Stack) -> Iterator[str]:
    """`protect` keeps the stack: the cluster by Google Cloud, everything by the engine before it deletes anything."""
    for cluster in stack.of(CLUSTER):
        yield from expect(cluster, deletionProtection=stack.settings.protect)
    for node in stack.graph.made:
        if node.protect != stack.settings.protect:
            yield f"{node.name}: the engine's protection is {node.protect}"


def nothing_upgrades_under_a_job(stack: Stack) -> Iterator[str]:
    """No minor version and no node is upgraded by itself; the first version suffices for machine and fabric."""
    minimum = minimum_version(stack.settings, _machine(stack))
    for cluster in stack.of(CLUSTER):
        yield from expect(cluster, releaseChannel__channel="REGULAR")
        exclusions = at(cluster, "maintenancePolicy.maintenanceExclusions") or []
        if "NO_MINOR_OR_NODE_UPGRADES" not in [one.get("exclusionOptions", {}).get("scope") for one in exclusions]:
            yield f"{cluster.name}: no exclusion of upgrades"
        if version_key(str(at(cluster, "minMasterVersion"))) < version_key(minimum):
            yield f"{cluster.name}: minMasterVersion is {at(cluster, 'minMasterVersion')}, less than {minimum}"


def cluster_watches_gpus(stack: Stack) -> Iterator[str]:
    """GPU metrics (DCGM), managed Prometheus and buckets as folders are switched on."""
    for cluster in stack.of(CLUSTER):
        if "DCGM" not in (at(cluster, "monitoringConfig.enableComponents") or []):
            yield f"{cluster.name}: no DCGM"
        yield from expect(
            cluster,
            monitoringConfig__managedPrometheus__enabled=True,
            addonsConfig__gcsFuseCsiDriverConfig__enabled=True,
        )


def nodes_have_an_identity_of_their_own(stack: Stack) -> Iterator[str]:
    """Nodes run as the stack's own service account, with the roles of a node and no others."""
    accounts = stack.of("gcp:serviceaccount/account:Account")
    if len(accounts) != 1:
        yield f"there are {len(accounts)} service accounts"
    for pool in stack.of(POOL):
        if not str(at(pool, "nodeConfig.serviceAccount")).startswith(f"{at(accounts[0], 'accountId')}@"):
            yield f"{pool.name}: {at(pool, 'nodeConfig.serviceAccount')}"
        yield from expect(pool, nodeConfig__workloadMetadataConfig__mode="GKE_METADATA")
    for member in stack.of("gcp:projects/iAMMember:IAMMember"):
        if at(member, "role") in ("roles/editor", "roles/owner", "roles/container.admin"):
            yield f"{member.name}: {at(member, 'role')}"


def pools_are_as_their_capacity_demands(stack: Stack) -> Iterator[str]:
    """A GPU pool is as the way to get machines demands: size, location, repair, reservation, run time, upgrades."""
    nodes = stack.settings.nodes
    ways = {"gpu": nodes.capacity, "fallback": nodes.fallback}
    if [at(pool, "name") for pool in _gpu_pools(stack)] != sorted(name for name, way in ways.items() if way):
        yield f"the pools are {[at(pool, 'name') for pool in _gpu_pools(stack)]}"
    for pool in _gpu_pools(stack):
        capacity = GKE_CAPACITIES[str(ways[str(at(pool, "name"))])]
        yield from expect(
            pool,
            autoscaling__totalMaxNodeCount=nodes.max,
            autoscaling__locationPolicy="ANY",
            nodeCount=None,
            nodeLocations=[stack.settings.location],
            management__autoRepair=capacity.auto_repair,
            nodeConfig__reservationAffinity__consumeReservationType=capacity.reservation_affinity,
            nodeConfig__flexStart=capacity.flex_start or None,
            nodeConfig__spot=capacity.spot or None,
            nodeConfig__maxRunDuration=f"{3600 * (nodes.max_run_hours or 0)}s" if capacity.flex_start else None,
        )
        if capacity.starts_empty:
            yield from expect(pool, initialNodeCount=0, autoscaling__totalMinNodeCount=0)
        if capacity.flex_start and at(pool, "upgradeSettings"):
            yield f"{pool.name}: upgrade settings on flex-start"


def pools_are_as_their_machine_demands(stack: Stack) -> Iterator[str]:
    """A GPU pool is as the machine demands: GPUs, driver, NICs, disks, taint."""
    machine = _machine(stack)
    for pool in _gpu_pools(stack):
        yield from expect(
            pool,
            nodeConfig__machineType=machine.name,
            nodeConfig__guestAccelerators__0__type=machine.accelerator,
            nodeConfig__guestAccelerators__0__count=machine.gpus,
            nodeConfig__guestAccelerators__0__gpuDriverInstallationConfig__gpuDriverVersion="LATEST",
            nodeConfig__gvnic__enabled=True,
            nodeConfig__ephemeralStorageLocalSsdConfig__localSsdCount=machine.local_ssds,
            nodeConfig__diskType=machine.boot_disk,
            nodeConfig__gcfsConfig__enabled=True,
            nodeConfig__shieldedInstanceConfig__enableSecureBoot=True,
            networkConfig__enablePrivateNodes=True,
        )
        taints = {taint["key"] for taint in at(pool, "nodeConfig.taints") or []}
        labels = at(pool, "nodeConfig.labels") or {}
        if "nvidia.com/gpu" not in taints:
            yield f"{pool.name}: pods without a GPU may come"
        if stack.settings.compute_class and (
            "cloud.google.com/compute-class" not in taints
            or labels.get("cloud.google.com/compute-class") != COMPUTE_CLASS
        ):
            yield f"{pool.name}: does not belong to the ComputeClass"


def a_pool_without_gpus(stack: Stack) -> Iterator[str]:
    """A small pool without GPUs carries the head, the operator and the system's own pods."""
    others = [pool for pool in stack.of(POOL) if pool not in _gpu_pools(stack)]
    if len(others) != 1:
        yield f"there are {len(others)}"
    for pool in others:
        if not (at(pool, "autoscaling.totalMinNodeCount") or 0) >= 1:
            yield f"{pool.name} may be empty"


def plugin_is_pinned(stack: Stack) -> Iterator[str]:
    """The NCCL plugin is installed on the machine's nodes by a pinned image, and does not change under a job."""
    found = [node for node in stack.of("kubernetes:apps/v1:DaemonSet") if "installer" in node.name]
    if not found:
        yield "nothing installs it"
    for node in found:
        if f":{GIB_VERSION}" not in str(at(node, "spec.template.spec.initContainers.0.image")):
            yield f"{node.name}: {at(node, 'spec.template.spec.initContainers.0.image')}"
        yield from expect(node, spec__updateStrategy__type="OnDelete")


def resources_are_labelled(stack: Stack) -> Iterator[str]:
    """Cluster and machines carry the stack's name, so that the bill can be split."""
    for node in stack.of(CLUSTER):
        if not (at(node, "resourceLabels") or {}).get("rdma-ray-stack"):
            yield f"{node.name} does not"
    for node in stack.of(POOL):
        if not (at(node, "nodeConfig.resourceLabels") or {}).get("rdma-ray-stack"):
            yield f"{node.name} does not"


def down_in_order(stack: Stack) -> Iterator[str]:
    """On the way down each waits for the one before: Ray, operator and pools, cluster, subnets, networks."""
    used = [node for node in stack.of(SUBNET) if any(node.urn in stack.graph.needs(c.urn) for c in stack.of(CLUSTER))]
    yield from on_the_way_down(
        stack.graph, [stack.of(RAY_CLUSTER), stack.of(RELEASE), _system_pools(stack), stack.of(CLUSTER), used]
    )
    yield from on_the_way_down(stack.graph, [stack.of(RAY_CLUSTER), _gpu_pools(stack), _nic_subnets(stack)])
    for subnet in stack.of(SUBNET):
        if not any(network.urn in stack.graph.needs(subnet.urn) for network in stack.of(NETWORK)):
            yield f"{subnet.name} could go after its network"


def _own_networks(stack: Stack) -> bool:
    return stack.settings.fabric != "managed-dranet"


def _machine(stack: Stack) -> GkeMachine:
    return gke_machine(stack.settings.nodes.machine)


def _roce(stack: Stack) -> list[Node]:
    return [node for node in stack.of(NETWORK) if at(node, "networkProfile")]


def _subnets_of(stack: Stack, network: Node) -> list[Node]:
    return [node for node in stack.of(SUBNET) if network.urn in stack.graph.needs(node.urn)]


def _nic_subnets(stack: Stack) -> list[Node]:
    """The subnets of the additional NICs in the order of the NICs."""
    names = [GVNIC_NETWORK, *(rdma_network(nic) for nic in range(_machine(stack).nics))]
    found = [(name, node) for name in names for node in stack.of(SUBNET) if str(at(node, "name")).endswith(f"-{name}")]
    return [node for _, node in found]


def _gpu_pools(stack: Stack) -> list[Node]:
    return [node for node in stack.of(POOL) if at(node, "nodeConfig.guestAccelerators")]


def _system_pools(stack: Stack) -> list[Node]:
    return [node for node in stack.of(POOL) if not at(node, "nodeConfig.guestAccelerators")]


PROMISES: tuple[Promise, ...] = (
    one_rdma_subnet_per_nic,
    roce_network_is_bare,
    networks_carry_large_frames,
    gvnic_network_is_open_inside,
    nodes_reach_out_through_nat,
    ranges_are_disjoint,
    nine_node_networks,
    network_objects_match_subnets,
    pods_ask_for_every_nic,
    cluster_carries_the_fabric,
    cluster_is_closed,
    everything_is_protected,
    nothing_upgrades_under_a_job,
    cluster_watches_gpus,
    nodes_have_an_identity_of_their_own,
    pools_are_as_their_capacity_demands,
    pools_are_as_their_machine_demands,
    a_pool_without_gpus,
    plugin_is_pinned,
    resources_are_labelled,
    down_in_order,
)
