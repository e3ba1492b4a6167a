"""The `gke` target: an RDMA cluster on Google Cloud with Ray on it, from settings to stack outputs."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network
from typing import Any

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as kubernetes
from pulumi import ResourceOptions

from infra.addresses import gke_addresses
from infra.catalog.machines import GKE_CATALOG
from infra.gke.cluster import GkeCluster
from infra.gke.device_networks import DeviceNetworks, Dranet
from infra.gke.nccl_installer import NcclInstaller
from infra.gke.network import ClusterNetwork, GvnicNetwork, NodeNetwork, RdmaNetwork, WebhookAccess
from infra.gke.node_pools import ComputeClass, GpuPools
from infra.gke.pod import GVNIC_NETWORK, SYSTEM_NODES, gpu_pod, rdma_network
from infra.gke.queue import queue_args
from infra.gke.site import Site
from infra.gke.storage import BucketAccess, gcs_folder
from infra.kubernetes.operators import install_operators
from infra.kubernetes.pods import HEAD_ACCOUNT, WORKER_ACCOUNT, RayArgs, SharedFolder
from infra.kubernetes.workload import Workload
from infra.outputs import cloud_outputs
from infra.settings import GkeSettings, Problem, SettingsError

METRICS_NAMESPACE = "gmp-system"
"""Namespace of the collectors of GKE's managed Prometheus (GKE docs managed-prometheus; unverified, 2026-11)."""


def deploy(settings: GkeSettings) -> dict[str, Any]:
    """Register the resources of a Google Cloud stack; return its outputs under the names of `infra.outputs.Outputs`.

    Raises:
        SettingsError: No project is configured.
    """
    if problems := project_problems(gcp.config.project):
        raise SettingsError(problems, origin=f"The configuration of stack {pulumi.get_stack()}")
    stack = GkeStack(pulumi.get_stack(), settings)
    machine = GKE_CATALOG[settings.nodes.machine]
    return cloud_outputs(
        settings, machine, stack.site.named("ray"), pulumi.Output.secret(stack.kubeconfig), stack.token
    )


def project_problems(project: str | None) -> list[Problem]:
    """Return the problem of a missing project, a setting of the provider."""
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


def ray_args(settings: GkeSettings, name: str) -> RayArgs:
    """Return the arguments of the stack's RayCluster, RayJob or Indexed Job, without what depends on resources."""
    return RayArgs(
        settings=settings,
        name=name,
        pod=gpu_pod(settings, GKE_CATALOG[settings.nodes.machine]),
        head_selector=SYSTEM_NODES,
        metrics_namespace=METRICS_NAMESPACE,
    )


class GkeStack(pulumi.ComponentResource):
    """All resources of a stack: networks, cluster, GPU node pools, and resources in the cluster."""

    kubeconfig: pulumi.Output[str]
    token: pulumi.Output[str]

    def __init__(self, name: str, settings: GkeSettings) -> None:
        # Children inherit `protect`. If only the cluster had it, the engine would delete the node pools before it
        # reports that the cluster is protected (seen with 3.259.0).
        super().__init__("rdma-ray:gke:GkeStack", name, {}, ResourceOptions(protect=settings.protect))
        self._own = ResourceOptions(parent=self)
        self._settings = settings
        self.site = site = Site(name, str(gcp.config.project), settings.location)
        self._machine = GKE_CATALOG[settings.nodes.machine]
        base_range = IPv4Network(settings.network.base_range)
        self._addresses = gke_addresses(base_range, settings.nodes.max, self._machine.nics)
        network = ClusterNetwork("cluster", site, self._addresses, self._own)
        plane = self._addresses.control_plane
        cluster = GkeCluster("cluster", settings, site, self._own, network=network, control_plane=plane)
        # With managed DRANET, GKE creates the networks of the NICs.
        nics = {} if settings.fabric == "managed-dranet" else self._nics()
        pools = GpuPools("pool", settings, site, self._own, cluster=cluster, networks=list(nics.values()))
        self.kubeconfig = cluster.kubeconfig
        self.token = self._in_cluster(network, cluster, pools, nics)
        self.register_outputs({})

    def _nics(self) -> dict[str, NodeNetwork]:
        """Create the networks of the additional NICs; return them by the names that pods use."""
        gvnic = GvnicNetwork("gvnic", self.site, self._addresses.gvnic, self._own)
        rdma = RdmaNetwork("rdma", self.site, self._machine.network_profile, self._addresses.rdma, self._own)
        return {
            GVNIC_NETWORK: gvnic.node_network,
            **{rdma_network(nic): network for nic, network in enumerate(rdma.node_networks)},
        }

    def _in_cluster(
        self, network: ClusterNetwork, cluster: GkeCluster, pools: GpuPools, nics: dict[str, NodeNetwork]
    ) -> pulumi.Output[str]:
        """Create the resources in the cluster; return Ray's token."""
        settings, machine = self._settings, self._machine
        provider = kubernetes.Provider(
            "kubernetes",
            kubeconfig=cluster.kubeconfig,
            # Only a new cluster replaces the provider and everything in the cluster; a new address does not.
            cluster_identifier=cluster.resource.id,
            opts=self._own,
        )
        inside = ResourceOptions(
            parent=self,
            providers=[provider],
            # Children inherit deleted_with: they are deleted with the cluster, so `destroy` needs no API server.
            deleted_with=cluster.resource,
        )
        NcclInstaller("nccl-rdma-installer", machine, inside)
        drivers: list[pulumi.Resource] = []
        if settings.fabric == "multi-network":
            drivers += DeviceNetworks("device-networks", nics, inside).networks
        if settings.fabric == "dranet":
            drivers.append(Dranet("dranet", inside).release)
        if settings.compute_class:
            drivers.append(ComputeClass("compute-class", pools, inside).resource)
        queue = queue_args(settings, machine) if settings.queue == "kueue" else None
        operators, cluster_queue = install_operators(
            inside,
            node_selector=SYSTEM_NODES,
            depends_on=[cluster.system_pool],
            webhook_access=[self._webhook_access(network, cluster)] if queue else [],
            kuberay=settings.ray.mode != "indexed-job",
            queue=queue,
        )
        args = replace(
            ray_args(settings, self.site.named("ray")),
            folder=self._folder(cluster),
            cluster_queue=cluster_queue,
            max_run_s=queue.max_run_s if queue else None,
            depends_on=[*pools.pools, *drivers, *operators],
        )
        return Workload("ray", args, inside).token

    def _webhook_access(self, network: ClusterNetwork, cluster: GkeCluster) -> pulumi.Resource:
        return WebhookAccess(
            "webhooks",
            self.site,
            network=network.network,
            control_plane=self._addresses.control_plane,
            account=cluster.account,
            opts=self._own,
        ).rule

    def _folder(self, cluster: GkeCluster) -> SharedFolder | None:
        """Grant the pods access to the bucket; return it as a folder, None without a bucket."""
        bucket = self._settings.storage.bucket
        if bucket is None:
            return None
        # An Indexed Job has no separate head.
        with_head = self._settings.ray.mode != "indexed-job"
        for account in (HEAD_ACCOUNT, WORKER_ACCOUNT) if with_head else (WORKER_ACCOUNT,):
            pool = cluster.workload_pool
            BucketAccess(bucket, account, self._own, project=self.site.project, workload_pool=pool)
        return gcs_folder(bucket, self._settings.storage.mount_path)
