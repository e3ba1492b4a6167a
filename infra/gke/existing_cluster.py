"""The user's GKE cluster, in which a stack makes node pools: read and checked in a preview, never changed.

The setting is `cluster.existing`. GPU nodes get their networks by managed DRANET, for which the cluster needs no
setting that cannot be changed later, or by additional networks of the stack, for which multi-networking must be on.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network

import pulumi_gcp as gcp
from pulumi_gcp.container import GetClusterResult

from infra.addresses import nodes_of_pods
from infra.catalog.gcp import SYSTEM_POOL, version_key
from infra.catalog.names import rdma_network
from infra.catalog.pins import COMPUTE_CLASS_API, GKE_NETWORK_API
from infra.existing.cloud import EXISTING, PROVIDES, Inside, outside_namespace
from infra.existing.questions import made_by
from infra.gke.cluster import TheirGkeCluster, kubeconfig
from infra.gke.pod import COMPUTE_CLASS, GVNIC_NETWORK, worker_pools
from infra.gke.workload import ray_args
from infra.naming import OWNER, STACK
from infra.settings import GkeSettings, SettingsError
from infra.settings.problems import Finding, Problem

DOCS = "GKE docs: Autopilot, multi-network, allocate-network-resources-dra, flexible-pod-cidr; read 2026-11"
ORIGIN = "The stack's cluster"


def existing_cluster(settings: GkeSettings, stack: str) -> TheirGkeCluster:
    """Return the user's cluster. Raises `SettingsError` with everything for which the stack cannot be in it."""
    path = str(settings.cluster.existing)
    location, _, name = path.partition("/")
    try:
        found = gcp.container.get_cluster(name=name, location=location)
    except Exception as error:
        fix = "`gcloud container clusters list` names those of the project; check that you may read it"
        finding = Finding(f"Google Cloud does not show it: {error}", fix, DOCS)
        raise SettingsError([finding.problem((EXISTING,), (path,))], origin=ORIGIN) from error
    access = _kubeconfig(found)
    if lacks := [*problems(found, settings, stack)]:
        raise SettingsError(lacks, origin=ORIGIN)
    inside = Inside(access, settings, stack, _ours(settings, stack))
    if inside.problems:
        raise SettingsError(inside.problems, origin=ORIGIN)
    pools = {pool.name: _labels(pool) for pool in found.node_pools}
    owners = {f"node pool {each}": str(pools[each].get(OWNER)) for each in _pools(settings) if each in pools}
    return TheirGkeCluster(
        name=name,
        location=location,
        workload_pool=_pool_of(found),
        kubeconfig=access,
        owners={**inside.owners, **owners},
    )


def problems(found: GetClusterResult, settings: GkeSettings, stack: str) -> Iterator[Problem]:
    """Yield what the cluster's settings lack for this stack, each with the command that adds it, if there is one."""
    location, _, name = str(settings.cluster.existing).partition("/")
    row, machine = settings.fabric_row, settings.machine
    update = f"gcloud container clusters update {name} --location {location}"

    def problem(message: str, fix: str, setting: str = EXISTING, value: str = "") -> Problem:
        return Finding(message, fix, DOCS).problem((setting,), (value or str(settings.cluster.existing),))

    if found.enable_autopilot:
        message = "It is an Autopilot cluster, which has no node pools: GPU nodes with RDMA networks cannot be made."
        yield problem(message, "name a Standard cluster, or remove cluster.existing")
        return
    minimum = settings.minimum_version
    if version_key(found.master_version) < version_key(minimum):
        message = f"Its control plane is {found.master_version}, and machine, capacity and fabric need {minimum}."
        yield problem(message, f"gcloud container clusters upgrade {name} --location {location} --master")
    if not found.ip_allocation_policies:
        message = "It is not VPC-native, so its pods have no addresses of the network."
        yield problem(message, "name a VPC-native cluster: this cannot be changed later")
    if row.managed and found.datapath_provider != "ADVANCED_DATAPATH":
        message = "It has no Dataplane V2, without which managed DRANET does not work."
        yield problem(message, "name a cluster with Dataplane V2, which cannot be turned on later", "fabric", row.name)
    if machine.network_profile is not None and not row.managed and not found.enable_multi_networking:
        message = "Multi-networking is off in the cluster, so its nodes can have no additional networks."
        yield problem(message, "set fabric to managed-dranet, which does not need it", "fabric", row.name)
    for pool in found.node_pools:
        maker = _labels(pool).get(STACK)
        if pool.name in _pools(settings) and maker != stack:
            message = f"It has a node pool {pool.name}, {made_by(maker)}."
            yield problem(message, "use another cluster: a stack's pools have fixed names")
    pods, zones = IPv4Network(found.cluster_ipv4_cidr), len(found.node_locations) + 1
    theirs = [pool for pool in found.node_pools if _labels(pool).get(STACK) != stack]
    there = sum(pool.node_count * (len(pool.node_locations) or zones) for pool in theirs)
    nodes = settings.nodes.max * len(settings.nodes.capacities) + settings.cluster.system_nodes
    if nodes_of_pods(pods) < there + nodes:
        message = (
            f"{pods} has room for the pods of {nodes_of_pods(pods)} nodes, a /24 each; {there} are there, and the "
            f"stack has up to {nodes}."
        )
        yield problem(message, "lower nodes.max, or add a range of pods and name another cluster")
    watched = (each.managed_prometheuses or () for each in found.monitoring_configs or ())
    if not any(each.enabled for blocks in watched for each in blocks):
        message = "Managed Prometheus is off, whose PodMonitoring collects Ray's metrics."
        yield problem(message, f"{update} --enable-managed-prometheus")
    addons = found.addons_configs[0] if found.addons_configs else None
    if settings.storage.bucket is not None:
        if not _pool_of(found):
            message = "It has no Workload Identity, so pods have no right to the bucket."
            fix = f"{update} --workload-pool PROJECT.svc.id.goog"
            yield problem(message, fix, "storage.bucket", settings.storage.bucket)
        if addons is None or not any(each.enabled for each in addons.gcs_fuse_csi_driver_configs or ()):
            message = "It has no GCS FUSE driver, which mounts the bucket."
            yield problem(message, f"{update} --update-addons GcsFuseCsiDriver=ENABLED", "storage.bucket", "")
    add_on = addons is not None and any(each.enabled for each in addons.ray_operator_configs or ())
    if add_on and settings.installs("kuberay") and settings.ray.mode != "indexed-job":
        message = "GKE's Ray add-on is on, and must be the only operator of a cluster."
        yield problem(message, "add kuberay to cluster.provides", PROVIDES, "none")


def _pool_of(found: GetClusterResult) -> str:
    """Return the workload identity pool; "" without one. A block that is off may be missing from an answer."""
    return next((each.workload_pool for each in found.workload_identity_configs or ()), "")


def _pools(settings: GkeSettings) -> list[str]:
    """Return the names of the stack's node pools."""
    return [SYSTEM_POOL, *worker_pools(settings)]


def _labels(pool: gcp.container.outputs.GetClusterNodePoolResult) -> dict[str, str]:
    return dict(pool.node_configs[0].resource_labels or {}) if pool.node_configs else {}


def _ours(settings: GkeSettings, stack: str) -> list[str]:
    """Return the API paths of the stack's objects in a cluster, outside its namespace."""
    row, machine = settings.fabric_row, settings.machine
    paths = outside_namespace(ray_args(settings, f"{stack}-ray"))
    if row.transport.installer is not None:
        paths.append(f"/apis/apps/v1/namespaces/kube-system/daemonsets/{machine.nccl_installer}")
    if row.chart is not None:
        paths.append(f"/apis/apps/v1/namespaces/kube-system/daemonsets/{row.chart.release}")
    if row.interfaces:
        for nic in (GVNIC_NETWORK, *map(rdma_network, range(machine.nics))):
            paths += [f"/apis/{GKE_NETWORK_API}/{kind}/{nic}" for kind in ("networks", "gkenetworkparamsets")]
    if settings.compute_class:
        paths.append(f"/apis/{COMPUTE_CLASS_API}/computeclasses/{COMPUTE_CLASS}")
    return paths


def _kubeconfig(found: GetClusterResult) -> str:
    """Return the kubeconfig of the control plane's DNS name if it is open, else of its address."""
    for each in found.control_plane_endpoints_configs or ():
        for dns in each.dns_endpoint_configs or ():
            if dns.allow_external_traffic and dns.endpoint:
                return kubeconfig(found.name, dns.endpoint)
    return kubeconfig(found.name, found.endpoint, found.master_auths[0].cluster_ca_certificate)
