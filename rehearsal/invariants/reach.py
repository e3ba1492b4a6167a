"""Addresses, zones and network access: from outside, between pods and nodes, and to the shared folder."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network
from itertools import combinations
from typing import Any

from infra.settings import EksSettings
from rehearsal.engine.kind import Json, value_at
from rehearsal.invariants.invariant import Stack, at, differs, name_of
from rehearsal.invariants.placement import pod_labels, pods_of, ray_pods, ray_workloads, worker_templates

VPC, PLANE = "gcp:compute/network:Network", "privateClusterConfig.masterIpv4CidrBlock"
GKE, EKS = "gcp:container/cluster:Cluster", "aws:eks/cluster:Cluster"
RULES = ("SecurityGroupIngressRule", "SecurityGroupEgressRule")


def ranges_are_disjoint(stack: Stack) -> Iterator[str]:
    """The ranges of nodes, pods, Services and control plane are inside network.baseRange, and no two overlap."""
    if stack.on_users_cluster:
        return
    found = {node.name: at(node, "ipCidrRange") or at(node, "cidrBlock") for node in stack.of("Subnetwork", "Subnet")}
    for node in stack.of("Subnetwork"):
        found |= {f"{node.name} {one['rangeName']}": one["ipCidrRange"] for one in at(node, "secondaryIpRanges") or []}
    found |= {f"{node.name} control plane": at(node, PLANE) for node in stack.of(GKE)}
    ranges, base = {name: IPv4Network(text) for name, text in found.items()}, stack.cloud.network.base_range
    yield from (f"{name}: {one} is outside" for name, one in ranges.items() if not one.subnet_of(IPv4Network(base)))
    for one, other in combinations(ranges, 2):
        if ranges[one].overlaps(ranges[other]):
            yield f"{one} and {other} overlap"


def gpus_are_in_one_zone(stack: Stack) -> Iterator[str]:
    """Nodes, RDMA networks and the shared file system are in the zone of the stack file, which RDMA does not leave."""
    zone, subnets = stack.cluster.location, stack.of("aws:ec2/subnet:Subnet")
    zones = {node.id: at(node, "availabilityZone") or at(node, "availabilityZoneId") for node in subnets}
    if isinstance(stack.cluster, EksSettings):
        # The preview has checked the zone of a subnet that the user has.
        zones |= dict.fromkeys(stack.cluster.network.subnets[:1], zone)
    for node in stack.of("NodePool", "NodeGroup", "LustreFileSystem"):
        used = at(node, "subnetIds") or []
        located = at(node, "nodeLocations") or [zones[one] for one in ([used] if isinstance(used, str) else used)]
        yield from differs(f"{node.name}: zones", located, [zone])
    for node in stack.of(VPC):
        if f"/{zone}-" not in (at(node, "networkProfile") or f"/{zone}-"):
            yield f"{node.name} has the profile {at(node, 'networkProfile')}"


def nothing_is_open_to_the_internet(stack: Stack) -> Iterator[str]:
    """No Service, public address or rule opens nodes or pods beyond network.baseRange and access.authorizedNetworks,
    and the latter alone reach the control plane, or on GKE with access.dnsEndpoint whom IAM admits."""
    for node in stack.of("kubernetes:core/v1:Service", "Ingress"):
        yield from differs(f"{node.name}: type", at(node, "spec.type") or "ClusterIP", "ClusterIP")
    for workload in ray_workloads(stack):
        yield from differs(workload.name, "'serviceType': 'ClusterIP'" in str(workload.inputs), True)
    if stack.on_users_cluster:
        return
    access = stack.cloud.access
    for node in stack.of("Subnet"):
        yield from differs(f"{node.name}: public addresses", at(node, "mapPublicIpOnLaunch"), False)
    for node in stack.of(GKE):
        yield from differs(f"{node.name}: private nodes", at(node, "privateClusterConfig.enablePrivateNodes"), True)
        by_name = at(node, "controlPlaneEndpointsConfig.dnsEndpointConfig.allowExternalTraffic")
        yield from differs(f"{node.name}: DNS endpoint", by_name, getattr(access, "dns_endpoint", None))
        everyone = at(node, "masterAuthorizedNetworksConfig.gcpPublicCidrsAccessEnabled")
        yield from differs(f"{node.name}: other customers' machines", everyone, False)
    for node in stack.of("Cluster"):
        listed = at(node, "masterAuthorizedNetworksConfig.cidrBlocks") or []
        blocks = [block["cidrBlock"] for block in listed] + (at(node, "vpcConfig.publicAccessCidrs") or [])
        wanted = [] if at(node, "vpcConfig.endpointPublicAccess") is False else list(access.authorized_networks)
        yield from differs(f"{node.name}: networks", blocks, wanted)
    for node in stack.of("Firewall", "SecurityGroupIngressRule"):
        for text in filter(None, at(node, "sourceRanges") or [at(node, "cidrIpv4")]):
            inside = IPv4Network(text).subnet_of(IPv4Network(stack.cloud.network.base_range))
            if not inside and text not in access.authorized_networks:
                yield f"{node.name} admits {text}"


def ray_is_reached_by_few(stack: Stack) -> Iterator[str]:
    """One network policy selects Ray's pods and admits, of other pods, the operator to dashboard and Ray Serve and one
    namespace's collectors to metrics."""
    for workload in ray_workloads(stack):
        own, (head, *others) = {"matchLabels": pod_labels(workload)}, pods_of(workload)
        for pods in (head, *others) if not workload.type.endswith(":RayCluster") else ():
            # KubeRay labels the pods of a RayCluster itself.
            yield from differs(f"{pods}: labels", dict(pods.labels), pod_labels(workload))
        ports = {port["name"]: port["containerPort"] for port in head.containers[0]["ports"]}
        found = [(at(node, "metadata.namespace"), at(node, "spec.podSelector")) for node in stack.of("NetworkPolicy")]
        yield from differs("policies", found, [(at(workload, "metadata.namespace"), own)])
        peers, dashboard, metrics = at(stack.of("NetworkPolicy")[0], "spec.ingress")
        yield from differs("peers", peers, {"from": [{"podSelector": own}]})
        label, name = "app.kubernetes.io/name", "kuberay-operator"
        either = [{"key": label, "operator": "In", "values": [name, "kuberay"]}]
        anywhere = stack.on_users_cluster or stack.in_users_cluster
        # A user's operator may be in any namespace, and of the chart or of the manifests.
        names = {"matchExpressions": either} if anywhere else {"matchLabels": {label: name}}
        charts = [] if anywhere else stack.charts("kuberay-operator")
        places = [{"matchLabels": {"kubernetes.io/metadata.name": at(chart, "namespace")}} for chart in charts] or [{}]
        operator = {"namespaceSelector": places[0], "podSelector": names}
        yield from differs("operator", dashboard["from"], [operator])
        asked = [ports[name] for name in ("dashboard", "serve") if name in ports]
        yield from differs("operator's ports", [port["port"] for port in dashboard["ports"]], asked)
        opened = {port["port"] for port in metrics["ports"]}
        if not opened >= {ports["as-metrics"], ports["dash-metrics"]} or opened & {ports["dashboard"], ports["client"]}:
            yield f"collectors reach {metrics['ports']}"
        for node in stack.of("PodMonitoring"):
            collected = (at(node, "spec.selector"), {each["port"] for each in at(node, "spec.endpoints")})
            yield from differs("what GKE collects", collected, (own, opened))
        if not value_at(metrics, "from.0.namespaceSelector.matchLabels"):
            yield f"every namespace is admitted: {metrics['from']}"


def nodes_reach_the_internet_by_nat_alone(stack: Stack) -> Iterator[str]:
    """With access.egress: nat, and only then, the nodes' network has NAT, which is in a subnet with a route to the
    internet; nodes reach the cloud's storage without it. A network that the user has has its own."""
    theirs = not stack.on_users_cluster and stack.cloud.on_users_network
    tables = {at(one, "subnetId"): at(one, "routeTableId") for one in stack.of("RouteTableAssociation")}
    routes = [node for node in stack.of("Route") if at(node, "destinationCidrBlock") == "0.0.0.0/0"]
    ways_out = {at(node, "routeTableId") for node in routes if at(node, "gatewayId")}
    storage = {table for node in stack.of("VpcEndpoint") for table in at(node, "routeTableIds") or []}
    for cluster in stack.of(GKE):
        routed = [] if theirs else [at(cluster, "network")]
        yield from differs("NAT", [at(node, "network") for node in stack.of("Router")], routed)
        for subnet in (node for node in stack.of("Subnetwork") if stack.needs(cluster, node)):
            yield from differs(f"{subnet.name}: private access", at(subnet, "privateIpGoogleAccess"), True)
    nats = [tables[at(node, "subnetId")] in ways_out for node in stack.of("NatGateway")]
    wanted = [True for _ in stack.of(EKS) if stack.cloud.access.egress == "nat" and not theirs]
    yield from differs("NAT gateways with a way out", nats, wanted)
    for subnet in set() if theirs else {one for group in stack.of("NodeGroup") for one in at(group, "subnetIds")}:
        ways = [tables[subnet] in ways_out, tables[subnet] in storage]
        yield from differs(f"{subnet}: routes to the internet and to storage", ways, [False, True])


def rules_admit_the_ranges_of_their_peers(stack: Stack) -> Iterator[str]:
    """On GKE, firewall rules admit the range of the additional host NIC to its network, and with Kueue the control
    plane to the nodes of the cluster."""
    paths = ("network", "sourceRanges", "targetServiceAccounts")
    found = [tuple(at(node, path) for path in paths) for node in stack.of("Firewall")]
    wanted: list[tuple[Any, ...]] = []
    clusters = stack.of(GKE)
    for subnet in (node for node in stack.of("Subnetwork") if not any(stack.needs(one, node) for one in clusters)):
        if not any(at(network, "networkProfile") and stack.needs(subnet, network) for network in stack.of(VPC)):
            wanted.append((at(subnet, "network"), [at(subnet, "ipCidrRange")], None))
    for cluster in clusters:
        accounts = sorted({at(pool, "nodeConfig.serviceAccount") for pool in stack.of("NodePool")})
        wanted += [(at(cluster, "network"), [at(cluster, PLANE)], accounts) for _ in stack.charts("kueue")]
    yield from differs("rules", sorted(found, key=str), sorted(wanted, key=str))


def _gpu_interfaces(stack: Stack) -> list[Json]:
    """Return the network interfaces of the GPU nodes."""
    return [one for template in worker_templates(stack) for one in at(template, "networkInterfaces")]


def security_groups_admit_their_peers(stack: Stack) -> Iterator[str]:
    """Every interface of a GPU node has the cluster's security group and one that is open to itself, as EFA needs;
    servers of Lustre and nodes admit each other at the same ports, and servers each other. In a user's cluster, no
    rule is in a group that the stack did not make."""
    paths = ("securityGroupId", "referencedSecurityGroupId", "ipProtocol", "fromPort", "toPort")
    rules = {(node.type.rpartition(":")[2], *(at(node, path) for path in paths)) for node in stack.of(*RULES)}
    nodes = {value_at(node.outputs, "vpcConfig.clusterSecurityGroupId") for node in stack.of(EKS)}
    made, interfaces = {node.id for node in stack.of("SecurityGroup")}, _gpu_interfaces(stack)
    if stack.in_users_cluster and stack.cluster.target == "eks":
        nodes = {group for one in interfaces for group in one["securityGroups"]} - made
        yield from differs("rules in groups of the user's", {rule[1] for rule in rules} - made, set())
        yield from differs("groups of the user's cluster", len(nodes), 1)
    itself = {rule[1] for rule in rules if {(kind, rule[1], rule[1], "-1", None, None) for kind in RULES} <= rules}
    for one in interfaces:
        groups = set(one.get("securityGroups") or [])
        if groups != nodes | itself or not itself:
            yield f"card {one['networkCardIndex']} has {groups}, and {itself} are open to themselves"
    nodes = itself if stack.in_users_cluster else nodes
    for server in {group for system in stack.of("LustreFileSystem") for group in at(system, "securityGroupIds")}:
        ports = {rule[3:] for rule in rules if server in rule[1:3]}
        wanted = {(kind, server, peer, *port) for kind in RULES for peer in nodes | {server} for port in ports}
        wanted |= {(RULES[0], node, server, *port) for node in nodes for port in ports}
        if not ports or not wanted <= rules:
            yield f"no rules {sorted(wanted - rules)}"


def every_pod_of_ray_has_the_bucket(stack: Stack) -> Iterator[str]:
    """With storage.bucket, every pod of Ray mounts it at storage.mountPath: on GKE itself, on EKS the claim of the
    volume of the file system that is linked to it. On a user's cluster it is storage.claim."""
    storage = stack.cluster.storage
    links = {at(node, "fileSystemId"): at(node, "dataRepositoryPath") for node in stack.of("DataRepositoryAssociation")}
    volumes = {name_of(node): links[at(node, "spec.csi.volumeHandle")] for node in stack.of("PersistentVolume")}
    claims = {name_of(node): volumes[at(node, "spec.volumeName")][5:] for node in stack.of("PersistentVolumeClaim")}
    if stack.on_users_cluster and storage.source:
        claims[storage.source] = storage.source
    for pods in ray_pods(stack):
        buckets = {
            volume["name"]: value_at(volume, "csi.volumeAttributes.bucketName")
            or claims.get(value_at(volume, "persistentVolumeClaim.claimName"))
            for volume in pods.volumes
        }
        found = [(buckets[one["name"]], one["mountPath"]) for one in pods.containers[0]["volumeMounts"]]
        wanted = [(storage.source, storage.mount_path)] if storage.source else []
        yield from differs(f"{pods}: folders", [one for one in found if one[0]], wanted)
