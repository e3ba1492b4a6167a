"""How pods on GKE request NICs: Network objects with `fabric: multi-network`, the DRANET driver with `fabric: dranet`.

The two must not be combined. With `fabric: managed-dranet` GKE installs its own driver, and the stack creates neither.
"""

from __future__ import annotations

from collections.abc import Mapping

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes.apiextensions import CustomResource

from infra.catalog.pins import DRANET, GKE_NETWORK_API
from infra.gke.network import NodeNetwork
from infra.gke.pod import device_mode
from infra.kubernetes.resources import custom_resource, helm_release


class DeviceNetworks(pulumi.ComponentResource):
    """A GKENetworkParamSet and a Network for each additional NIC. Both are cluster-scoped and have the NIC's name.

    Args:
        networks: Network of each NIC, by the name that pods use (gvnic-1, rdma-0 …).
    """

    def __init__(self, name: str, networks: Mapping[str, NodeNetwork], opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:gke:DeviceNetworks", name, {}, opts)
        self.networks = [self._network(nic, network) for nic, network in networks.items()]
        self.register_outputs({"networks": list(networks)})

    def _network(self, nic: str, network: NodeNetwork) -> CustomResource:
        spec = {"vpc": network.network, "vpcSubnet": network.subnet, "deviceMode": device_mode(nic)}
        parameters = self._object(f"{nic}-parameters", "GKENetworkParamSet", nic, spec)
        # The id of an object without a namespace is its name.
        reference = {"group": "networking.gke.io", "kind": "GKENetworkParamSet", "name": parameters.id}
        return self._object(nic, "Network", nic, {"type": "Device", "parametersRef": reference})

    def _object(self, name: str, kind: str, nic: str, spec: Mapping[str, object]) -> CustomResource:
        manifest = {"apiVersion": GKE_NETWORK_API, "kind": kind, "metadata": {"name": nic}, "spec": spec}
        return custom_resource(name, manifest, ResourceOptions(parent=self))


class Dranet(pulumi.ComponentResource):
    """The open-source DRANET driver, from its Helm chart: it allocates a node's RDMA devices to pods with claims."""

    def __init__(self, name: str, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:gke:Dranet", name, {}, opts)
        own = ResourceOptions(parent=self)
        self.release = helm_release(name, DRANET, own)
        self.register_outputs({"version": DRANET.version})
