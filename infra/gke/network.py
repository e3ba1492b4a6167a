"""The three networks of a stack on Google Cloud: the cluster's own, that of the second host NIC, and the RoCE network.

They open nothing towards the internet: nodes have private addresses and reach out through NAT.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp
from pulumi import ResourceOptions

from infra.addresses import GkeAddresses
from infra.gke.facts import MTU
from infra.gke.names import PODS_RANGE, SERVICES_RANGE, GkeNames


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    """What the networks are made from. region: the region of the zone; zone: the one of every GPU node."""

    names: GkeNames
    addresses: GkeAddresses
    project: str
    region: str
    zone: str


class ClusterNetwork(pulumi.ComponentResource):
    """The network of nodes, pods and Services (the first host NIC of a GPU node), with NAT for what pods download."""

    network: pulumi.Output[str]
    subnet: pulumi.Output[str]

    def __init__(self, name: str, args: NetworkArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:gke:ClusterNetwork", name, {}, opts)
        own = ResourceOptions(parent=self)
        network = gcp.compute.Network(
            name, name=args.names.cluster, auto_create_subnetworks=False, mtu=MTU, routing_mode="REGIONAL", opts=own
        )
        subnet = gcp.compute.Subnetwork(
            name,
            name=args.names.cluster,
            network=network.id,
            region=args.region,
            ip_cidr_range=str(args.addresses.nodes),
            secondary_ip_ranges=[
                gcp.compute.SubnetworkSecondaryIpRangeArgs(range_name=range_name, ip_cidr_range=str(cidr))
                for range_name, cidr in ((PODS_RANGE, args.addresses.pods), (SERVICES_RANGE, args.addresses.services))
            ],
            # Google's own registry and APIs without going through NAT.
            private_ip_google_access=True,
            opts=own,
        )
        router = gcp.compute.Router(
            name, name=args.names.router, network=network.id, region=args.region, opts=ResourceOptions(parent=self)
        )
        gcp.compute.RouterNat(
            name,
            name=args.names.router,
            router=router.name,
            region=args.region,
            nat_ip_allocate_option="AUTO_ONLY",
            source_subnetwork_ip_ranges_to_nat="ALL_SUBNETWORKS_ALL_IP_RANGES",
            log_config=gcp.compute.RouterNatLogConfigArgs(enable=True, filter="ERRORS_ONLY"),
            opts=own,
        )
        self.network = network.id
        self.subnet = subnet.id
        self.register_outputs({"network": self.network, "subnet": self.subnet})


class GvnicNetwork(pulumi.ComponentResource):
    """The network of the second host NIC: open between the nodes, closed to everybody else."""

    network: pulumi.Output[str]
    subnet: pulumi.Output[str]

    def __init__(self, name: str, args: NetworkArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:gke:GvnicNetwork", name, {}, opts)
        own = ResourceOptions(parent=self)
        network = gcp.compute.Network(name, name=args.names.gvnic, auto_create_subnetworks=False, mtu=MTU, opts=own)
        subnet = gcp.compute.Subnetwork(
            name,
            name=args.names.gvnic_subnet,
            network=network.id,
            region=args.region,
            ip_cidr_range=str(args.addresses.gvnic),
            opts=own,
        )
        gcp.compute.Firewall(
            name,
            name=args.names.gvnic_firewall,
            network=network.id,
            direction="INGRESS",
            source_ranges=[str(args.addresses.gvnic)],
            allows=[
                gcp.compute.FirewallAllowArgs(protocol="tcp"),
                gcp.compute.FirewallAllowArgs(protocol="udp"),
                gcp.compute.FirewallAllowArgs(protocol="icmp"),
            ],
            opts=own,
        )
        self.network = network.name
        self.subnet = subnet.name
        self.register_outputs({"network": self.network, "subnet": self.subnet})


class RdmaNetwork(pulumi.ComponentResource):
    """The RoCE network: the zone's RDMA profile, one subnet for each RDMA NIC of a node.

    It never gets a firewall rule, a router or NAT: the profile allows all traffic between its NICs, which is all the
    traffic there is, and refuses the rest (Google Cloud docs rdma-network-profiles, read 2026-08).
    """

    network: pulumi.Output[str]
    subnets: tuple[pulumi.Output[str], ...]

    def __init__(self, name: str, profile: str, args: NetworkArgs, opts: ResourceOptions | None = None) -> None:
        """profile: what completes ZONE-… to the name of a network profile, such as "vpc-roce"."""
        super().__init__("rdma-ray:gke:RdmaNetwork", name, {}, opts)
        network = gcp.compute.Network(
            name,
            name=args.names.rdma,
            auto_create_subnetworks=False,
            mtu=MTU,
            # With the project: a path without it is refused as malformed (cloud-image-tests PR #537, read 2026-08).
            network_profile=f"projects/{args.project}/global/networkProfiles/{args.zone}-{profile}",
            opts=ResourceOptions(parent=self),
        )
        self.network = network.name
        self.subnets = tuple(
            gcp.compute.Subnetwork(
                f"{name}-{nic}",
                name=args.names.rdma_subnet(nic),
                network=network.id,
                region=args.region,
                ip_cidr_range=str(cidr),
                opts=ResourceOptions(parent=self),
            ).name
            for nic, cidr in enumerate(args.addresses.rdma)
        )
        self.register_outputs({"network": self.network, "subnets": list(self.subnets)})
