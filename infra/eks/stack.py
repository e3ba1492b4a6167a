"""The `eks` target: registers a stack on AWS and returns its outputs.

No resource needs a call to AWS before it is created, so a first preview works without data from the account. Only the
subnets of `network.subnets` are read, and the cluster of `cluster.existing`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as kubernetes
import pulumi_random as random
from pulumi import ResourceOptions

from infra.catalog.aws import zone_region
from infra.catalog.names import NAMESPACE
from infra.eks.addons import BEFORE_NODES, Addons, DevicePlugins
from infra.eks.autoscaler import Autoscaler, autoscaler_role
from infra.eks.budget import monthly_budget
from infra.eks.cluster import EksCluster, TheirEksCluster
from infra.eks.existing import existing_place
from infra.eks.existing_cluster import existing_cluster
from infra.eks.iam import CNI_POLICIES, NODE_POLICIES, POD_IDENTITY, PodRole, Role
from infra.eks.names import EksNames
from infra.eks.network import AuditedNetwork, ClusterVpc, VpcPlace, egress
from infra.eks.node_groups import GpuNodes, SystemNodes
from infra.eks.security_groups import EfaSecurityGroup
from infra.eks.storage import SharedFileSystem, SharedVolume
from infra.eks.workload import ray_args
from infra.existing.cloud import marked, refuse_other_owners
from infra.kubernetes.operators import install_operators
from infra.kubernetes.pods import ray_accounts
from infra.kubernetes.workload import Workload, team_workloads
from infra.naming import OWNER_BYTES
from infra.outputs import cluster_outputs
from infra.settings import EksSettings, Problem, SettingsError
from infra.settings.eks import region_problems
from infra.settings.problems import NOT_SET, Finding


def deploy(settings: EksSettings) -> dict[str, Any]:
    """Register the resources of a stack and return its outputs, under the names of `infra.outputs.Outputs`.

    Raises `SettingsError` if the configured region is not the zone's, or the user's subnets or cluster lack something.
    """
    problems = provider_problems(settings, aws.config.region)
    if problems:
        raise SettingsError(problems, origin=f"The configuration of stack {pulumi.get_stack()}")
    names = EksNames(pulumi.get_stack(), str(aws.config.region), existing=settings.cluster.existing)
    # Before the first resource: what the subnets lack must leave nothing behind.
    place, theirs = None, None
    if not settings.own_cluster:
        theirs = existing_cluster(settings, names)
        place = theirs.place
    elif settings.on_users_network:
        place = existing_place(settings, names.cluster)
    stack = EksStack(settings, names, place, theirs)
    name, kubeconfig = names.named("ray"), stack.kubeconfig
    return cluster_outputs(settings, name, kubeconfig, stack.token, serve_token=stack.serve_token, teams=stack.teams)


def provider_problems(settings: EksSettings, region: str | None) -> list[Problem]:
    """Return the problems of the provider's region."""
    if region:
        return region_problems(settings.location, region)
    fix = f"pulumi config set aws:region {zone_region(settings.location) or 'THE-REGION-OF-THE-ZONE'}"
    source = "pulumi-aws 7.51.1: provider configuration"
    finding = Finding("Every resource belongs to a region, but none is set.", fix, source)
    return [finding.problem(("aws:region",), (NOT_SET,))]


class EksStack(pulumi.ComponentResource):
    """Root component of a stack: network, cluster, node groups, and the resources in the cluster.

    Args:
        place: Where the cluster is, if the stack makes no VPC for it.
        theirs: The user's cluster, if the stack makes none.
    """

    kubeconfig: pulumi.Output[str]
    token: pulumi.Output[str]
    serve_token: pulumi.Output[str] | None
    teams: pulumi.Output[Any] | None

    def __init__(
        self,
        settings: EksSettings,
        names: EksNames,
        place: VpcPlace | None = None,
        theirs: TheirEksCluster | None = None,
    ) -> None:
        # Children inherit `protect`. If only the cluster had it, the engine would delete the node groups before it
        # reports that the cluster is protected (seen with 3.259.0).
        super().__init__("rdma-ray:eks:EksStack", names.stack, {}, ResourceOptions(protect=settings.protect))
        opts, storage, mirror = ResourceOptions(parent=self), settings.storage, settings.access.image_mirror
        owner = random.RandomId("owner", byte_length=OWNER_BYTES, opts=opts).hex
        if theirs is not None:
            owner = refuse_other_owners(owner, theirs.owners)
        names = replace(names, owner=owner)

        routes: list[pulumi.Resource] = []
        if place is None:
            network = ClusterVpc("cluster", settings, names, opts)
            if settings.hardening:
                AuditedNetwork("hardening", names, opts, vpc=network.vpc)
            routes = egress(settings.access, names, opts, network=network)
            place = network.place
        efa = EfaSecurityGroup("efa", names, opts, vpc=place.vpc)
        cluster = theirs or EksCluster("cluster", settings, names, opts, place=place)
        name, of_nodes = cluster.name, [cluster.security_group, efa.id]

        # The user's CNI may use the role of its node.
        of_role = [*NODE_POLICIES, *(CNI_POLICIES if theirs else ())]
        role = Role("nodes", names, opts, service="ec2.amazonaws.com", policies=of_role)
        if settings.budget.email is not None:
            monthly_budget(settings.budget, names, opts, role=role)
        version, before, addons = settings.cluster.version, {}, {}
        if theirs is None:
            cni = Role("cni", names, opts, service=POD_IDENTITY, policies=CNI_POLICIES)
            before = Addons(
                "before-nodes", BEFORE_NODES, names, opts, cluster=name, kubernetes=version, roles={"vpc-cni": cni}
            ).addons

        needs = [*routes, *before.values(), *place.before_system]
        system = SystemNodes(
            "system",
            settings,
            names,
            opts,
            cluster=name,
            role=role,
            subnet=place.private[0],
            depends_on=needs,
            # In the user's cluster the rules with the file system are in the stack's own group.
            security_groups=of_nodes if theirs else (),
        ).group
        rights: list[pulumi.Resource] = []
        if policies := settings.ray.policies:
            accounts = {account: account for account in ray_accounts(settings)}
            pods = PodRole(
                "RayRole", "ray", names, opts, cluster=name, namespace=NAMESPACE, accounts=accounts, policies=policies
            )
            rights = pods.grants
        gpu = GpuNodes(
            "gpu",
            settings,
            names,
            opts,
            cluster=name,
            role=role,
            subnet=place.gpu,
            security_groups=of_nodes,
            # The rights outlive the pods, which end with their nodes.
            depends_on=[*routes, *before.values(), *place.before_gpu, *efa.rules, *rights],
        ).group
        if theirs is None:
            # The FSx driver has no role: it mounts a file system that the stack creates.
            after = ["coredns", "eks-node-monitoring-agent", *(["aws-fsx-csi-driver"] if storage.bucket else [])]
            addons = Addons(
                "after-nodes", after, names, opts, cluster=name, kubernetes=version, depends_on=[system]
            ).addons

        provider = kubernetes.Provider(
            "kubernetes",
            kubeconfig=cluster.kubeconfig,
            # Only a new cluster replaces the provider, and with it every resource in the cluster. A new cluster of the
            # same name has the same id and ARN but another endpoint.
            cluster_identifier=cluster.endpoint,
            opts=opts,
        )
        # Children inherit deleted_with: they are deleted with the cluster, so `destroy` need not reach its API server.
        inside = ResourceOptions(parent=self, providers=[provider], deleted_with=cluster.resource)
        if theirs is not None:
            inside = ResourceOptions.merge(inside, marked(names.stack, names.owner))
        if settings.installs("cluster-autoscaler"):
            scaler = autoscaler_role("autoscaler", names, opts, cluster=name)
            Autoscaler(
                "cluster-autoscaler", names, inside, kubernetes=version, mirror=mirror, role=scaler, nodes=system
            )
        plugins = DevicePlugins("device-plugins", settings, names, inside).releases
        volume: pulumi.Input[str] = ""
        if storage.bucket is not None:
            nodes, driver = efa.id if theirs else cluster.security_group, addons.get("aws-fsx-csi-driver")
            files = SharedFileSystem("shared", storage, names, opts, place=place, nodes=nodes, efa_nodes=efa.id)
            volume = SharedVolume("shared-volume", storage, names, inside, system=files, driver=driver).name
        # Operators and the pods of an Indexed Job find Services by name, which needs this add-on.
        dns = [addons["coredns"]] if theirs is None else []
        needs_dns = dns if settings.ray.mode == "indexed-job" else []
        args = ray_args(settings, names.named("ray"), volume=volume)
        operators = install_operators(args, inside, depends_on=[system, *dns], stack=names.stack, mirror=mirror)
        workload = Workload("ray", args, inside, operators=operators, depends_on=[gpu, *plugins, *needs_dns])
        self.kubeconfig = pulumi.Output.secret(cluster.kubeconfig)
        self.token, self.serve_token = workload.token, workload.serve_token
        self.teams = team_workloads(
            settings,
            lambda of_team: ray_args(of_team, names.named("ray")),
            inside,
            operators=operators,
            depends_on=[gpu, *plugins],
            kubeconfig=self.kubeconfig,
        )
        self.register_outputs({})
