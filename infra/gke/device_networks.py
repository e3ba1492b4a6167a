"""Network objects: how pods on GKE name the NICs that they want, one pair of objects for each additional NIC.

Used by `fabric: multi-network` alone. DRANET claims devices instead, and must not be mixed with these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes.apiextensions import CustomResource

from infra.catalog.pins import GKE_NETWORK_API
from infra.gke.fabric import device_mode
from infra.gke.node_pools import NodeNetwork


@dataclass(frozen=True, kw_only=True)
class DeviceNetworksArgs:
    """networks: by the name that pods use (gvnic-1, rdma-0 …), the VPC and subnet of that NIC."""

    networks: Mapping[str, NodeNetwork]


class DeviceNetworks(pulumi.ComponentResource):
    """A GKENetworkParamSet and a Network for each NIC; both cluster-scoped, both with the NIC's name."""

    def __init__(self, name: str, args: DeviceNetworksArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:gke:DeviceNetworks", name, {}, opts)
        self.networks = [self._pair(nic, network) for nic, network in args.networks.items()]
        self.register_outputs({"networks": list(args.networks)})

    def _pair(self, nic: str, network: NodeNetwork) -> CustomResource:
        parameters = CustomResource(
            f"{nic}-parameters",
            api_version=GKE_NETWORK_API,
            kind="GKENetworkParamSet",
            metadata={"name": nic},
            spec={"vpc": network.network, "vpcSubnet": network.subnet, "deviceMode": device_mode(nic)},
            opts=ResourceOptions(parent=self),
        )
        return CustomResource(
            nic,
            api_version=GKE_NETWORK_API,
            kind="Network",
            metadata={"name": nic},
            spec={
                "type": "Device",
                "parametersRef": {
                    "group": "networking.gke.io",
                    "kind": "GKENetworkParamSet",
                    # An object without a namespace has its name as its id.
                    "name": parameters.id,
                },
            },
            opts=ResourceOptions(parent=self),
        )
