"""The `gke` target: from settings to an RDMA cluster on Google Cloud with Ray on it, and the outputs contract."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as kubernetes
from pulumi import ResourceOptions

from infra.addresses import gke_addresses
from infra.catalog.machines import gke_machine
from infra.gke import fabric as fabrics
from infra.gke.cluster import GkeCluster, GkeClusterArgs
from infra.gke.compute_class import ComputeClass, ComputeClassArgs
from infra.gke.device_networks import DeviceNetworks, DeviceNetworksArgs
from infra.gke.dranet import Dranet
from infra.gke.installer import NcclInstaller, NcclInstallerArgs
from infra.gke.names import GkeNames
from infra.gke.network import ClusterNetwork, GvnicNetwork, NetworkArgs, RdmaNetwork
from infra.gke.node_pools import GpuPools, GpuPoolsArgs, NodeNetwork
from infra.gke.preflight import cluster_version, machine_in_zone
from infra.gke.queue import admission, queue_shape
from infra.gke.ray import SYSTEM_NODES, cloud_side, gcs_folder
from infra.gke.storage import BucketAccess, BucketAccessArgs
from infra.gke.versions import minimum_version
from infra.gke.webhooks import WebhookAccess, WebhookAccessArgs
from infra.kubernetes.operators import OperatorsArgs, operators
from infra.kubernetes.outputs import outputs
from infra.kubernetes.queue_facts import VISIBILITY_PORT, WEBHOOK_PORT
from infra.kubernetes.ray_manifest import HEAD_ACCOUNT, NAMESPACE, WORKER_ACCOUNT
from infra.kubernetes.workload import WorkloadArgs, workload
from infra.kubernetes.workload_shape import workload_shape
from infra.settings import GkeSettings as Settings
from infra.settings.problems import Problem, SettingsError

METRICS_NAMESPACE = "gmp-system"
"""Where GKE's managed Prometheus runs its collectors (GKE docs managed-prometheus; from memory, 2026-11)."""


def deploy(settings: Settings) -> dict[str, Any]:
    """Register the resources of a Google Cloud stack; returns its outputs under the names of `infra.outputs.Outputs`.

    Raises `SettingsError` where no project is named.
    """
    problems = project_missing(gcp.config.project)
    if problems:
        raise SettingsError(problems, origin=f"The configuration of stack {pulumi.get_stack()}")
    stack = GkeStack(pulumi.get_stack(), settings)
    machine = gke_machine(settings.nodes.machine)
    return outputs(settings, machine, stack.names.ray_cluster, stack.kubeconfig, stack.token)


def project_missing(project: str | None) -> list[Problem]:
    """The provider's own setting: which project everything is made in, and who pays."""
    if project:
        return []
    return [
        Problem(
            settings=("gcp:project",),
            values=("(not set)",),
            says="Every resource belongs to a Google Cloud project, which also gets the bill; none is named.",
            fix="pulumi config set gcp:project YOUR-PROJECT-ID",
            source="pulumi-gcp 10.2.0: provider configuration",
        )
    ]


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where a stack is: its project, its zone, and the zone's region."""

    project: str
    zone: str
    region: str


class GkeStack(pulumi.ComponentResource):
    """Everything of a stack, as one tree: networks, cluster, GPU pools, and what runs in the cluster."""

    kubeconfig: pulumi.Output[str]
    token: pulumi.Output[str]

    def __init__(self, name: str, settings: Settings) -> None:
        # Every child inherits it. On the cluster alone it would not do: the engine deletes the node pools and all that
        # goes before the cluster, and only then says that the cluster is protected (seen with 3.259.0).
        super().__init__("rdma-ray:gke:GkeStack", name, {}, ResourceOptions(protect=settings.protect))
        own = ResourceOptions(parent=self)
        zone = str(settings.location)
        self.names = GkeNames(name)
        self._settings = settings
        self._machine = gke_machine(settings.nodes.machine)
        self._place = _Place(
            project=str(gcp.config.project),
            zone=zone,
            region=zone.rpartition("-")[0],
        )
        self._labels = {"rdma-ray-stack": name}
        self._addresses = gke_addresses(
            IPv4Network(settings.network.base_range), settings.nodes.max, self._machine.nics
        )
        network_args = NetworkArgs(
            names=self.names,
            addresses=self._addresses,
            project=self._place.project,
            region=self._place.region,
            zone=zone,
        )
        cluster_network = ClusterNetwork("cluster", network_args, own)
        nics = self._nics(network_args, own)
        cluster = self._cluster(cluster_network, own)
        pools = GpuPools(
            "pool",
            GpuPoolsArgs(
                settings=settings,
                machine=self._machine,
                machine_type=machine_in_zone(self._machine.name, zone),
                cluster=cluster.resource.name,
                location=self._place.region,
                zone=zone,
                account=cluster.account,
                networks=list(nics.values()),
                roles=cluster.roles,
                labels=self._labels,
            ),
            own,
        )
        self.kubeconfig = cluster.kubeconfig
        self.token = self._inside(cluster, pools, nics, self._ways_in(cluster_network, cluster, own))
        self.register_outputs({})

    def _nics(self, args: NetworkArgs, own: ResourceOptions) -> dict[str, NodeNetwork]:
        """The additional networks by the names of their NICs; none where GKE makes them."""
        if self._settings.fabric == "managed-dranet":
            return {}
        gvnic = GvnicNetwork("gvnic", args, own)
        rdma = RdmaNetwork("rdma", self._machine.network_profile, args, own)
        return {
            fabrics.GVNIC_NETWORK: NodeNetwork(network=gvnic.network, subnet=gvnic.subnet),
            **{
                fabrics.rdma_network(nic): NodeNetwork(network=rdma.network, subnet=subnet)
                for nic, subnet in enumerate(rdma.subnets)
            },
        }

    def _cluster(self, network: ClusterNetwork, own: ResourceOptions) -> GkeCluster:
        settings = self._settings
        return GkeCluster(
            "cluster",
            GkeClusterArgs(
                names=self.names,
                project=self._place.project,
                location=self._place.region,
                zone=self._place.zone,
                network=network.network,
                subnet=network.subnet,
                version=cluster_version(self._place.region, minimum_version(settings, self._machine)),
                multi_networking=settings.fabric != "managed-dranet",
                control_plane=str(self._addresses.control_plane),
                public_endpoint=settings.access.public_endpoint,
                authorized_networks=settings.access.authorized_networks,
                protect=settings.protect,
                labels=self._labels,
            ),
            own,
        )

    def _ways_in(self, network: ClusterNetwork, cluster: GkeCluster, own: ResourceOptions) -> list[pulumi.Resource]:
        """What lets the control plane call controllers; KubeRay has no webhook."""
        if self._settings.queue == "none":
            return []
        args = WebhookAccessArgs(
            called=self.names.webhooks_firewall,
            network=network.network,
            control_plane=str(self._addresses.control_plane),
            account=cluster.account,
            ports=(WEBHOOK_PORT, VISIBILITY_PORT),
        )
        return [WebhookAccess("webhooks", args, own).rule]

    def _inside(
        self, cluster: GkeCluster, pools: GpuPools, nics: dict[str, NodeNetwork], ways_in: list[pulumi.Resource]
    ) -> pulumi.Output[str]:
        """What runs in the cluster; returns Ray's token."""
        provider = kubernetes.Provider(
            "kubernetes",
            kubeconfig=cluster.kubeconfig,
            # Only another cluster replaces the provider, and with it everything inside; another address does not.
            cluster_identifier=cluster.resource.id,
            opts=ResourceOptions(parent=self),
        )
        inside = ResourceOptions(
            parent=self,
            providers=[provider],
            # Children inherit it: all of this goes with the cluster, so `destroy` need not reach its API server.
            deleted_with=cluster.resource,
        )
        settings = self._settings
        needs: list[pulumi.Resource] = [*pools.pools]
        NcclInstaller("nccl-rdma-installer", NcclInstallerArgs(machine=self._machine), inside)
        if settings.fabric == "multi-network":
            needs += DeviceNetworks("device-networks", DeviceNetworksArgs(networks=nics), inside).networks
        if settings.fabric == "dranet":
            needs.append(Dranet("dranet", inside).release)
        if settings.compute_class:
            args = ComputeClassArgs(pools=[pool.name for pool in pools.pools])
            needs.append(ComputeClass("compute-class", args, inside).resource)
        without_operator = settings.ray.mode == "indexed-job"
        folder = None
        if settings.storage.bucket is not None:
            folder = gcs_folder(settings.storage.bucket, str(settings.storage.mount_path))
            for account in (WORKER_ACCOUNT,) if without_operator else (HEAD_ACCOUNT, WORKER_ACCOUNT):
                access = BucketAccessArgs(
                    bucket=settings.storage.bucket,
                    project=self._place.project,
                    workload_pool=cluster.workload_pool,
                    namespace=NAMESPACE,
                    account=account,
                )
                BucketAccess(f"bucket-{account}", access, ResourceOptions(parent=self))
        controllers = operators(
            OperatorsArgs(
                node_selector=SYSTEM_NODES,
                nodes=[cluster.system_pool],
                ways_in=ways_in,
                ray=not without_operator,
                shape=queue_shape(settings, self._machine) if settings.queue == "kueue" else None,
                admission=admission(settings),
            ),
            inside,
        )
        return workload(
            WorkloadArgs(
                name=self.names.ray_cluster,
                shape=workload_shape(settings, cloud_side(settings, self._machine, self.names, folder)),
                metrics_namespace=METRICS_NAMESPACE,
                queue=controllers.queue,
                needs=[*needs, *controllers.needs],
            ),
            inside,
        )
