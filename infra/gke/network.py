"""The networks of a Google Cloud stack: the cluster's, that of the second host NIC, and the RoCE network.

None is open to the internet: nodes have private addresses and reach it through NAT. Pods request NICs with Network
objects (`fabric: multi-network`) or from the DRANET driver (`fabric: dranet`); the two must not be combined. With
`fabric: managed-dranet` GKE installs its own driver, and the stack creates neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

import pulumi
import pulumi_gcp as gcp
from pulumi import ResourceOptions

from infra.addresses import GkeAddresses
from infra.catalog.gcp import MTU, NAT_PORTS
from infra.catalog.names import rdma_network
from infra.catalog.pins import GKE_NETWORK_API, Chart
from infra.gke.names import PODS_RANGE, SERVICES_RANGE, Site
from infra.gke.pod import GVNIC_NETWORK
from infra.kubernetes.queue_objects import VISIBILITY_PORT, WEBHOOK_PORT
from infra.kubernetes.resources import helm_release, image_values, kubernetes_object

FLOW_LOGS: gcp.compute.SubnetworkLogConfigArgsDict = {
    "aggregation_interval": "INTERVAL_10_MIN",
    "flow_sampling": 0.5,
    "metadata": "INCLUDE_ALL_METADATA",
}


@dataclass(frozen=True, kw_only=True)
class NodeNetwork:
    """Network of an additional node interface, by name."""

    network: pulumi.Input[str]
    subnet: pulumi.Input[str]


@dataclass(frozen=True, kw_only=True)
class ClusterPlace:
    """Where a cluster is: ids of network and subnetwork, names of the ranges of pods and Services, and the project of
    both, if it is not the stack's."""

    network: pulumi.Input[str]
    subnet: pulumi.Input[str]
    pods_range: str = PODS_RANGE
    services_range: str = SERVICES_RANGE
    project: str | None = None


class ClusterNetwork(pulumi.ComponentResource):
    """Network of nodes, pods and Services (the first host NIC of a GPU node), with NAT, as the `place` of a cluster."""

    place: ClusterPlace

    def __init__(
        self, name: str, site: Site, addresses: GkeAddresses, opts: ResourceOptions, *, flow_logs: bool
    ) -> None:
        super().__init__("rdma-ray:gke:ClusterNetwork", name, {}, opts)
        opts = ResourceOptions(parent=self)
        network = _network(name, site, site.stack, opts, routing_mode="REGIONAL")
        ranges = {PODS_RANGE: addresses.pods, SERVICES_RANGE: addresses.services}
        subnet = gcp.compute.Subnetwork(
            name,
            name=site.stack,
            network=network.id,
            region=site.region,
            ip_cidr_range=str(addresses.nodes),
            secondary_ip_ranges=[
                {"range_name": range_name, "ip_cidr_range": str(cidr)} for range_name, cidr in ranges.items()
            ],
            # Nodes reach Google's registry and APIs without NAT.
            private_ip_google_access=True,
            log_config=FLOW_LOGS if flow_logs else None,
            opts=opts,
        )
        router = gcp.compute.Router(name, name=site.named("nat"), network=network.id, region=site.region, opts=opts)
        gcp.compute.RouterNat(
            name,
            name=site.named("nat"),
            router=router.name,
            region=site.region,
            nat_ip_allocate_option="AUTO_ONLY",
            source_subnetwork_ip_ranges_to_nat="ALL_SUBNETWORKS_ALL_IP_RANGES",
            enable_dynamic_port_allocation=True,
            min_ports_per_vm=NAT_PORTS[0],
            max_ports_per_vm=NAT_PORTS[1],
            log_config={"enable": True, "filter": "ERRORS_ONLY"},
            opts=opts,
        )
        self.place = ClusterPlace(network=network.id, subnet=subnet.id)
        self.register_outputs({"network": network.id, "subnet": subnet.id})


def _network(name: str, site: Site, own_name: str, opts: ResourceOptions, **inputs: Any) -> gcp.compute.Network:
    # A network has no labels, and its description is immutable (google-beta 2026-08-21: forceNew): without the ignore,
    # stacks that are older than this input would replace their networks. Subnets, routers and firewall rules need no
    # description: they name their network.
    kept = ResourceOptions.merge(opts, ResourceOptions(ignore_changes=["description"]))
    text = site.description
    return gcp.compute.Network(
        name, name=own_name, description=text, auto_create_subnetworks=False, mtu=MTU, opts=kept, **inputs
    )


def _subnet(
    name: str, site: Site, purpose: str, network: gcp.compute.Network, cidr: IPv4Network, opts: ResourceOptions
) -> gcp.compute.Subnetwork:
    own_name, region = site.named(purpose), site.region
    return gcp.compute.Subnetwork(
        name, name=own_name, network=network.id, region=region, ip_cidr_range=str(cidr), opts=opts
    )


class GvnicNetwork(pulumi.ComponentResource):
    """Network of the second host NIC: open between the nodes, closed to everything else."""

    node_network: NodeNetwork

    def __init__(self, name: str, site: Site, cidr: IPv4Network, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:gke:GvnicNetwork", name, {}, opts)
        opts = ResourceOptions(parent=self)
        network = _network(name, site, site.named("gvnic"), opts)
        subnet = _subnet(name, site, GVNIC_NETWORK, network, cidr, opts)
        gcp.compute.Firewall(
            name,
            name=site.named("gvnic-internal"),
            network=network.id,
            direction="INGRESS",
            source_ranges=[str(cidr)],
            allows=[{"protocol": protocol} for protocol in ("tcp", "udp", "icmp")],
            opts=opts,
        )
        self.node_network = NodeNetwork(network=network.name, subnet=subnet.name)
        self.register_outputs({"network": network.name, "subnet": subnet.name})


class RdmaNetwork(pulumi.ComponentResource):
    """RoCE network: the zone's RDMA profile, and one subnet per RDMA NIC of a node.

    It has no firewall rule, router or NAT: the profile allows all traffic between its NICs and rejects everything else
    (Google Cloud docs rdma-network-profiles, read 2026-08).

    Args:
        profile: Suffix of the network profile after the zone, such as "vpc-roce".
    """

    node_networks: list[NodeNetwork]

    def __init__(
        self, name: str, site: Site, profile: str, cidrs: tuple[IPv4Network, ...], opts: ResourceOptions | None = None
    ) -> None:
        super().__init__("rdma-ray:gke:RdmaNetwork", name, {}, opts)
        opts = ResourceOptions(parent=self)
        network = _network(
            name,
            site,
            site.named("rdma"),
            opts,
            # The API rejects a path without the project as malformed (cloud-image-tests PR #537, read 2026-08).
            network_profile=f"projects/{site.project}/global/networkProfiles/{site.zone}-{profile}",
        )
        subnets = [
            _subnet(f"{name}-{nic}", site, rdma_network(nic), network, cidr, opts) for nic, cidr in enumerate(cidrs)
        ]
        self.node_networks = [NodeNetwork(network=network.name, subnet=subnet.name) for subnet in subnets]
        self.register_outputs({"network": network.name, "subnets": [subnet.name for subnet in subnets]})


class WebhookAccess(pulumi.ComponentResource):
    """Firewall rule that lets the control plane call Kueue: its webhooks and the API that its pod serves.

    In a cluster with private nodes, the control plane reaches only ports 443 and 10250 of pods (GKE docs, private
    clusters, firewall rules; also chaos-mesh/chaos-mesh #3877 and the open-policy-agent/gatekeeper docs, read 2026-11).
    Without this rule calls to Kueue's webhook time out, and the API server rejects every workload.

    Args:
        control_plane: Range of the control plane.
        account: Service account of the nodes that the rule applies to.
    """

    def __init__(
        self,
        name: str,
        site: Site,
        opts: ResourceOptions,
        *,
        place: ClusterPlace,
        control_plane: IPv4Network,
        account: pulumi.Input[str],
    ) -> None:
        super().__init__("rdma-ray:gke:WebhookAccess", name, {}, opts)
        ports = [str(port) for port in (WEBHOOK_PORT, VISIBILITY_PORT)]
        self.rule = gcp.compute.Firewall(
            name,
            name=site.named("webhooks"),
            project=place.project,
            network=place.network,
            direction="INGRESS",
            source_ranges=[str(control_plane)],
            target_service_accounts=[account],
            allows=[{"protocol": "tcp", "ports": ports}],
            opts=ResourceOptions(parent=self),
        )
        self.register_outputs({})


class DeviceNetworks(pulumi.ComponentResource):
    """A GKENetworkParamSet and a Network for each additional NIC. Both are cluster-scoped and have the NIC's name.

    Args:
        networks: Network of each NIC, by the name that pods use (gvnic-1, rdma-0 …).
    """

    def __init__(self, name: str, networks: Mapping[str, NodeNetwork], opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:gke:DeviceNetworks", name, {}, opts)
        self.networks = [self._network(nic, network) for nic, network in networks.items()]
        self.register_outputs({"networks": list(networks)})

    def _network(self, nic: str, network: NodeNetwork) -> pulumi.CustomResource:
        # As an interface, or with its RDMA device (GKE multi-network docs, 2026-04-06).
        mode = "NetDevice" if nic == GVNIC_NETWORK else "RDMA"
        spec = {"vpc": network.network, "vpcSubnet": network.subnet, "deviceMode": mode}
        parameters = self._object(f"{nic}-parameters", "GKENetworkParamSet", nic, spec)
        # The id of an object without a namespace is its name.
        reference = {"group": "networking.gke.io", "kind": "GKENetworkParamSet", "name": parameters.id}
        return self._object(nic, "Network", nic, {"type": "Device", "parametersRef": reference})

    def _object(self, name: str, kind: str, nic: str, spec: Mapping[str, object]) -> pulumi.CustomResource:
        manifest = {"apiVersion": GKE_NETWORK_API, "kind": kind, "metadata": {"name": nic}, "spec": spec}
        return kubernetes_object(name, manifest, ResourceOptions(parent=self))


class Dranet(pulumi.ComponentResource):
    """The open-source DRANET driver, from its Helm chart: it allocates a node's RDMA devices to pods with claims."""

    def __init__(self, name: str, chart: Chart, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:gke:Dranet", name, {}, opts)
        opts = ResourceOptions(parent=self)
        self.release = helm_release(name, chart, opts, values={"image": image_values(chart, None)})
        self.register_outputs({"version": chart.version})
