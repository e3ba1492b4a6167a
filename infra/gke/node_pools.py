"""The GPU node pools, one per kind of capacity that the stack file names, and the ComputeClass that orders them.

The catalog lists what each kind of capacity (`infra.catalog.capacity`) and each machine (`infra.catalog.machines`)
requires of a pool. No pool has a fixed size: pending pods add nodes, and the autoscaler removes empty nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pulumi
from pulumi import ResourceOptions
from pulumi_gcp import compute, container

from infra.catalog.capacity import CRITICAL_PODS_S, GKE_CAPACITIES, GkeCapacity
from infra.catalog.gcp import GPU_POOL
from infra.catalog.pins import COMPUTE_CLASS_API
from infra.gke.cluster import GkeCluster, keep_pool
from infra.gke.names import Site
from infra.gke.network import NodeNetwork
from infra.gke.pod import COMPUTE_CLASS, COMPUTE_CLASS_LABEL, worker_pools, worker_taint
from infra.kubernetes.resources import kubernetes_object
from infra.settings import GkeSettings

RESERVATION_KEY = "compute.googleapis.com/reservation-name"
"""Key of a reservation by name (Compute Engine docs, reservations; cluster-toolkit, 10470803, 2026-06-25)."""


class GpuPools(pulumi.ComponentResource):
    """The stack's GPU node pools, in the order in which a ComputeClass or Kueue tries them.

    Args:
        networks: Networks of the second host NIC and of each RDMA NIC, in order; empty where GKE creates them (managed
            DRANET).
        depends_on: Rights of the pods. Ray's objects go with the cluster, so the pods end with their nodes, and until
            then they write checkpoints.
    """

    def __init__(
        self,
        name: str,
        settings: GkeSettings,
        site: Site,
        opts: ResourceOptions,
        *,
        cluster: GkeCluster,
        networks: Sequence[NodeNetwork],
        depends_on: Sequence[pulumi.Resource],
    ) -> None:
        super().__init__("rdma-ray:gke:GpuPools", name, {}, opts)
        self._settings, self._site, self._cluster, self._networks = settings, site, cluster, networks
        # Without its roles a node starts but cannot report; the roles must outlive the nodes.
        self._needs = [*cluster.roles, *depends_on]
        machine = settings.nodes.machine
        types = compute.get_machine_types_output(zone=site.zone, filter=f'name = "{machine}"')
        self._machine_type = types.apply(partial(_machine_type, machine=machine, zone=site.zone))
        self._policy = None
        if settings.nodes.compact and "workload" in {
            GKE_CAPACITIES[kind].placement for kind in settings.nodes.capacities
        }:
            # Best effort: a maximum distance would make stock scarcer (Compute Engine docs about-workload-policies).
            self._policy = compute.ResourcePolicy(
                f"{name}-placement",
                name=site.named("gpu"),
                description=site.description,
                region=site.region,
                workload_policy={"type": "HIGH_THROUGHPUT"},
                opts=ResourceOptions(parent=self),
            )
        self.pools = [self._pool(name, pool, GKE_CAPACITIES[kind]) for pool, kind in worker_pools(settings).items()]
        self.register_outputs({"pools": [pool.name for pool in self.pools]})

    def _pool(self, name: str, pool: str, capacity: GkeCapacity) -> container.NodePool:
        site, nodes = self._site, self._settings.nodes
        # The first pool keeps the minimum of nodes; the fallback may be empty.
        fewest = nodes.min if pool == GPU_POOL else 0
        return container.NodePool(
            f"{name}-{pool}",
            name=pool,
            cluster=self._cluster.name,
            location=self._cluster.location,
            node_locations=[site.zone],
            initial_node_count=fewest,
            autoscaling={"total_min_node_count": fewest, "total_max_node_count": nodes.max, "location_policy": "ANY"},
            management={"auto_repair": capacity.auto_repair, "auto_upgrade": True},
            # Flex-start nodes are renewed by their run time, and reject surge settings (GKE docs, 2026-04-13).
            upgrade_settings=None
            if capacity.flex_start
            else {"strategy": "SURGE", "max_surge": 0, "max_unavailable": 1},
            queued_provisioning={"enabled": True} if capacity.queued else None,
            placement_policy=self._placement(capacity),
            network_config=self._network(),
            node_config=self._node(capacity),
            opts=ResourceOptions(
                parent=self,
                depends_on=self._needs,
                ignore_changes=[
                    # The autoscaler owns both.
                    "initialNodeCount",
                    "nodeCount",
                    # GKE adds labels to the nodes of some pools (cluster-toolkit ignores them, too).
                    "nodeConfig.labels",
                ],
                hooks=keep_pool(pool, self._settings),
                # The provider's default is two hours, during which a zone out of stock would block `up`.
                custom_timeouts=pulumi.CustomTimeouts(create="45m", update="90m", delete="90m"),
            ),
        )

    def _placement(self, capacity: GkeCapacity) -> container.NodePoolPlacementPolicyArgsDict | None:
        if capacity.placement is None or not self._settings.nodes.compact:
            return None
        if self._policy is not None and capacity.placement == "workload":
            return {"type": "COMPACT", "policy_name": self._policy.name}
        return {"type": "COMPACT"}

    def _network(self) -> container.NodePoolNetworkConfigArgsDict:
        if not self._networks and not self._settings.fabric_row.managed:
            return {"enable_private_nodes": True}
        if not self._networks:
            # Cannot be combined with additional networks (terraform-provider-google-beta, 93c65b2d, 2026-08-21).
            return {"enable_private_nodes": True, "accelerator_network_profile": "auto"}
        return {
            "enable_private_nodes": True,
            "additional_node_network_configs": [
                {"network": one.network, "subnetwork": one.subnet} for one in self._networks
            ],
        }

    def _node(self, capacity: GkeCapacity) -> container.NodePoolNodeConfigArgsDict:
        machine, nodes = self._settings.machine, self._settings.nodes
        affinity: container.NodePoolNodeConfigReservationAffinityArgsDict = {
            "consume_reservation_type": capacity.reservation_affinity
        }
        if capacity.reservation_affinity == "SPECIFIC_RESERVATION":
            affinity |= {"key": RESERVATION_KEY, "values": [str(nodes.reservation)]}
        node: container.NodePoolNodeConfigArgsDict = {
            **self._cluster.node_config(self._site),
            "machine_type": self._machine_type,
            "reservation_affinity": affinity,
            "disk_type": machine.boot_disk,
            "disk_size_gb": nodes.boot_disk_gib,
            "labels": _labels(self._settings),
            "taints": _taints(self._settings),
        }
        if machine.gpus:
            node["guest_accelerators"] = [
                {
                    "type": machine.accelerator,
                    "count": machine.gpus,
                    "gpu_driver_installation_config": {"gpu_driver_version": nodes.gpu_driver.upper()},
                }
            ]
        if capacity.flex_start:
            node["flex_start"] = True
            if nodes.max_run_hours:
                node["max_run_duration"] = f"{nodes.max_run_hours * 3600}s"
        if capacity.spot:
            node["spot"] = True
        if capacity.shutdown_s:
            # GKE accepts both on spot pools only. Without them, pods have 15 s (infra.catalog.capacity.SPOT_NOTICE).
            node["kubelet_config"] = {
                "shutdown_grace_period_seconds": capacity.shutdown_s,
                "shutdown_grace_period_critical_pods_seconds": CRITICAL_PODS_S,
            }
        if machine.local_ssds:
            node["ephemeral_storage_local_ssd_config"] = {"local_ssd_count": machine.local_ssds}
        return node


class ComputeClass(pulumi.ComponentResource):
    """The ComputeClass that worker pods select: the node pools, tried in order.

    It names existing pools. A ComputeClass can create pools, but not with additional networks (GKE docs ComputeClass
    CRD reference, 2026-04-13).
    """

    def __init__(self, name: str, pools: GpuPools, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:gke:ComputeClass", name, {}, opts)
        manifest = {
            "apiVersion": COMPUTE_CLASS_API,
            "kind": "ComputeClass",
            "metadata": {"name": COMPUTE_CLASS},
            "spec": {
                "activeMigration": {"optimizeRulePriority": False},
                # A rule that names pools may contain nothing else.
                "priorities": [{"nodepools": [pool.name]} for pool in pools.pools],
                # Explicit, because the default changed in GKE 1.33.
                "whenUnsatisfiable": "DoNotScaleUp",
            },
        }
        self.resource = kubernetes_object(name, manifest, ResourceOptions(parent=self))
        self.register_outputs({"name": COMPUTE_CLASS})


def _machine_type(types: compute.GetMachineTypesResult, *, machine: str, zone: str) -> str:
    """Return the machine type; fail the preview if the zone lacks it."""
    if not types.machine_types:
        raise pulumi.RunError(
            f"nodes.machine: {machine} is not offered in location: {zone}, so its nodes would never come. Choose "
            f"another zone; `gcloud compute machine-types list --filter='name={machine}'` names those that have it"
        )
    return machine


def _labels(settings: GkeSettings) -> dict[str, str]:
    """Return the node labels that pods select; GKE adds cloud.google.com/gke-accelerator and others."""
    return {
        **({COMPUTE_CLASS_LABEL: COMPUTE_CLASS} if settings.compute_class else {}),
        **settings.fabric_row.node_labels,
    }


def _taints(settings: GkeSettings) -> list[container.NodePoolNodeConfigTaintArgsDict]:
    """Return the taints that repel pods other than workers and, with a ComputeClass, pods that do not select it.

    GKE adds the first taint as well, to nodes with GPUs. Declared here, it also applies to the pool's first node, and
    to the autoscaler's plans while the pool is empty.
    """
    taints = {
        worker_taint(settings.machine): "present",
        **({COMPUTE_CLASS_LABEL: COMPUTE_CLASS} if settings.compute_class else {}),
    }
    return [{"key": key, "value": value, "effect": "NO_SCHEDULE"} for key, value in taints.items()]
