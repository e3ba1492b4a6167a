"""The `gke` target: an RDMA cluster on Google Cloud with Ray on it, from settings to stack outputs."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as kubernetes
import pulumi_random as random
from pulumi import ResourceOptions

from infra.catalog.names import rdma_network
from infra.existing.cloud import marked, refuse_other_owners
from infra.gke.budget import MonthlyBudget
from infra.gke.cluster import GkeCluster, TheirGkeCluster
from infra.gke.existing import existing_place
from infra.gke.existing_cluster import existing_cluster
from infra.gke.names import Site
from infra.gke.nccl_installer import NcclInstaller
from infra.gke.network import (
    ClusterNetwork,
    ClusterPlace,
    DeviceNetworks,
    Dranet,
    GvnicNetwork,
    NodeNetwork,
    RdmaNetwork,
    WebhookAccess,
)
from infra.gke.node_pools import ComputeClass, GpuPools
from infra.gke.pod import GVNIC_NETWORK, worker_pools
from infra.gke.storage import BucketAccess
from infra.gke.workload import ray_args
from infra.kubernetes.operators import install_operators
from infra.kubernetes.pods import ray_accounts
from infra.kubernetes.workload import Workload, team_workloads
from infra.naming import OWNER_BYTES
from infra.outputs import cluster_outputs
from infra.settings import GkeSettings, Problem, SettingsError
from infra.settings.problems import NOT_SET, Finding


def deploy(settings: GkeSettings) -> dict[str, Any]:
    """Register the resources of a Google Cloud stack; return its outputs under the names of `infra.outputs.Outputs`.

    Raises:
        SettingsError: No project is configured, or the user's subnetwork lacks something.
    """
    if problems := project_problems(gcp.config.project):
        raise SettingsError(problems, origin=f"The configuration of stack {pulumi.get_stack()}")
    # Before the first resource: what the subnetwork lacks must leave nothing behind.
    place, theirs = None, None
    if settings.cluster.existing is not None:
        theirs = existing_cluster(settings, pulumi.get_stack())
    elif settings.on_users_network:
        place = existing_place(settings, str(gcp.config.project))
    stack = GkeStack(pulumi.get_stack(), settings, place, theirs)
    name, kubeconfig = stack.site.named("ray"), stack.kubeconfig
    return cluster_outputs(settings, name, kubeconfig, stack.token, serve_token=stack.serve_token, teams=stack.teams)


def project_problems(project: str | None) -> list[Problem]:
    """Return the problem of a missing project, a setting of the provider."""
    if project:
        return []
    fix, source = "pulumi config set gcp:project YOUR-PROJECT-ID", "pulumi-gcp 10.2.0: provider configuration"
    finding = Finding("Every resource belongs to a project, which pays for it, but none is set.", fix, source)
    return [finding.problem(("gcp:project",), (NOT_SET,))]


class GkeStack(pulumi.ComponentResource):
    """All resources of a stack: networks, cluster, GPU node pools, and resources in the cluster.

    Args:
        place: Where the cluster is, if the stack makes no network for it.
        theirs: The user's cluster, if the stack makes none.
    """

    kubeconfig: pulumi.Output[str]
    token: pulumi.Output[str]
    serve_token: pulumi.Output[str] | None
    teams: pulumi.Output[Any] | None

    def __init__(
        self,
        name: str,
        settings: GkeSettings,
        place: ClusterPlace | None = None,
        theirs: TheirGkeCluster | None = None,
    ) -> None:
        # Children inherit `protect`. If only the cluster had it, the engine would delete the node pools before it
        # reports that the cluster is protected (seen with 3.259.0).
        super().__init__("rdma-ray:gke:GkeStack", name, {}, ResourceOptions(protect=settings.protect))
        opts = ResourceOptions(parent=self)
        owner = random.RandomId("owner", byte_length=OWNER_BYTES, opts=opts).hex
        if theirs is not None:
            owner = refuse_other_owners(owner, theirs.owners)
        self.site = site = Site(name, str(gcp.config.project), settings.location, owner)
        number: pulumi.Input[str] = ""
        if settings.storage.bucket is not None or settings.budget.email is not None:
            number = gcp.organizations.get_project_output(project_id=site.project).number
        if settings.budget.email is not None:
            MonthlyBudget("budget", settings.budget, site, opts, project_number=number)
        addresses, plane = settings.addresses, settings.addresses.control_plane
        if place is None and theirs is None:
            place = ClusterNetwork("cluster", site, addresses, opts, flow_logs=settings.hardening).place
        cluster = GkeCluster("cluster", settings, site, opts, place=place, control_plane=plane, theirs=theirs)
        # The networks of the additional NICs, by the names that pods use. With managed DRANET, GKE creates them.
        nics: dict[str, NodeNetwork] = {}
        fabric = settings.fabric_row
        profile = settings.machine.network_profile
        if profile is not None and not fabric.managed:
            nics[GVNIC_NETWORK] = GvnicNetwork("gvnic", site, addresses.gvnic, opts).node_network
            rdma = RdmaNetwork("rdma", site, profile, addresses.rdma, opts)
            nics |= {rdma_network(nic): one for nic, one in enumerate(rdma.node_networks)}
        bucket, rights = settings.storage.bucket, []
        if bucket is not None:
            for account in ray_accounts(settings):
                right = BucketAccess(bucket, account, opts, project_number=number, workload_pool=cluster.workload_pool)
                rights.append(right.grant)
        pools = GpuPools("pool", settings, site, opts, cluster=cluster, networks=list(nics.values()), depends_on=rights)

        provider = kubernetes.Provider(
            "kubernetes",
            kubeconfig=cluster.kubeconfig,
            # Only a new cluster replaces the provider and everything in the cluster; a new address does not.
            cluster_identifier=cluster.resource.id if cluster.resource else settings.cluster.existing,
            opts=opts,
        )
        # Children inherit deleted_with: they are deleted with the cluster, so `destroy` needs no API server.
        inside = ResourceOptions(parent=self, providers=[provider], deleted_with=cluster.resource)
        if theirs is not None:
            inside = ResourceOptions.merge(inside, marked(name, owner))
        if fabric.transport.installer is not None:
            own_pools = worker_pools(settings) if theirs else ()
            NcclInstaller("nccl-rdma-installer", settings.machine, inside, pools=own_pools)
        drivers: list[pulumi.Resource] = []
        if fabric.interfaces:
            drivers += DeviceNetworks("device-networks", nics, inside).networks
        if fabric.chart is not None:
            drivers.append(Dranet("dranet", fabric.chart, inside).release)
        if settings.compute_class:
            drivers.append(ComputeClass("compute-class", pools, inside).resource)
        args, needs, access = ray_args(settings, site.named("ray")), [cluster.system_pool], []
        if args.queue is not None and place is not None:
            nodes = cluster.account
            webhooks = WebhookAccess("webhooks", site, opts, place=place, control_plane=plane, account=nodes)
            access.append(webhooks.rule)
        operators = install_operators(args, inside, depends_on=needs, webhook_access=access, stack=name)
        workload = Workload("ray", args, inside, operators=operators, depends_on=[*pools.pools, *drivers])
        self.kubeconfig = pulumi.Output.secret(cluster.kubeconfig)
        self.token, self.serve_token = workload.token, workload.serve_token
        self.teams = team_workloads(
            settings,
            lambda of_team: ray_args(of_team, site.named("ray")),
            inside,
            operators=operators,
            depends_on=[*pools.pools, *drivers],
            kubeconfig=self.kubeconfig,
        )
        self.register_outputs({})
