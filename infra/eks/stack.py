"""The `eks` target: registers a stack on AWS and returns its outputs.

No resource needs a call to AWS before it is created, so a first preview works without data from the account.
"""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as kubernetes
from pulumi import ResourceOptions

from infra.catalog.aws import zone_region
from infra.catalog.machines import EksMachine, eks_machine
from infra.catalog.pins import KUBERAY, KUEUE
from infra.eks.addons import BEFORE_NODES, Addons, mirrored
from infra.eks.autoscaler import Autoscaler, AutoscalerRights
from infra.eks.cluster import EksCluster
from infra.eks.device_plugins import DevicePlugins
from infra.eks.egress import egress
from infra.eks.iam import CNI_POLICIES, NODE_POLICIES, POD_IDENTITY, Role
from infra.eks.names import SYSTEM_NODES, EksNames
from infra.eks.network import ClusterNetwork
from infra.eks.node_groups import GpuNodes, NodeArgs, SystemNodes
from infra.eks.queue import queue_args
from infra.eks.ray import fsx_folder, ray_args
from infra.eks.security_groups import EfaSecurityGroup
from infra.eks.storage import SharedFileSystem, SharedVolume
from infra.eks.storage_claim import claim
from infra.kubernetes.indexed_job import ray_workload
from infra.kubernetes.operators import OperatorsArgs, install_operators
from infra.kubernetes.outputs import outputs
from infra.kubernetes.pods import SharedFolder
from infra.settings import EksSettings, Problem, SettingsError


def deploy(settings: EksSettings) -> dict[str, Any]:
    """Register the resources of a stack and return its outputs, under the names of `infra.outputs.Outputs`.

    Raises `SettingsError` if the configured region is not the zone's.
    """
    problems = region_problems(settings, aws.config.region)
    if problems:
        raise SettingsError(problems, origin=f"The configuration of stack {pulumi.get_stack()}")
    names, machine = EksNames(pulumi.get_stack(), str(aws.config.region)), eks_machine(settings.nodes.machine)
    stack = EksStack(settings, machine, names)
    return outputs(settings, machine, names.named("ray"), stack.kubeconfig, stack.token)


def region_problems(settings: EksSettings, region: str | None) -> list[Problem]:
    """Return the problems of the provider's region; none if the zone is an id, which does not contain its region."""
    here = zone_region(settings.location)
    if region and here in (None, region):
        return []
    missing = "Every resource belongs to a region, and the stack file names none."
    other = f"The zone is in {here}, but resources would be created in {region}, which has no such zone."
    return [
        Problem(
            settings=("aws:region", "location") if region else ("aws:region",),
            values=(region, settings.location) if region else ("(not set)",),
            says=other if region else missing,
            fix=f"pulumi config set aws:region {here or 'THE-REGION-OF-THE-ZONE'}",
            source="pulumi-aws 7.51.1: provider configuration",
        )
    ]


class EksStack(pulumi.ComponentResource):
    """Root component of a stack: network, cluster, node groups, and the resources in the cluster."""

    kubeconfig: pulumi.Output[str]
    token: pulumi.Output[str]

    def __init__(self, settings: EksSettings, machine: EksMachine, names: EksNames) -> None:
        # Children inherit the protection. On the cluster alone it would be too late: the engine deletes the node groups
        # before it finds that the cluster is protected (seen with 3.259.0).
        super().__init__("rdma-ray:eks:EksStack", names.stack, {}, ResourceOptions(protect=settings.protect))
        own = ResourceOptions(parent=self)
        network = self._network = ClusterNetwork("cluster", settings, names, own)
        routes = egress(settings.access, names, own, network=network)
        efa = self._efa = EfaSecurityGroup("efa", names, own, vpc=network.vpc)
        cluster = self._cluster = EksCluster("cluster", settings, names, own, network=network)
        role = Role("nodes", names, own, service="ec2.amazonaws.com", policies=NODE_POLICIES)
        cni = Role("cni", names, own, service=POD_IDENTITY, policies=CNI_POLICIES)
        name = cluster.resource.name
        before = Addons("before-nodes", BEFORE_NODES, names, own, cluster=name, roles={"vpc-cni": cni}).addons

        def node_args(subnet: pulumi.Output[str], *depends_on: pulumi.Resource) -> NodeArgs:
            needs = [*role.grants, *routes, *before.values(), *depends_on]
            return NodeArgs(cluster=name, role=role.arn, subnet=subnet, depends_on=needs)

        system_args = node_args(network.private[0], network.associations["private-0"])
        system = SystemNodes("system", system_args, names, own)
        gpu_args = node_args(network.gpu, network.associations["gpu"], *efa.rules)
        groups = [cluster.security_group, efa.id]
        gpu = GpuNodes("gpu", settings, gpu_args, names, own, security_groups=groups)
        # The FSx driver has no role: it mounts a file system that the stack creates.
        after = ["coredns", "eks-node-monitoring-agent", *(["aws-fsx-csi-driver"] if settings.storage.bucket else [])]
        addons = Addons("after-nodes", after, names, own, cluster=name, depends_on=[system.group]).addons
        self.kubeconfig = cluster.kubeconfig
        self.token = self._workload(settings, machine, names, system.group, gpu.group, addons)
        self.register_outputs({})

    def _workload(
        self,
        settings: EksSettings,
        machine: EksMachine,
        names: EksNames,
        system: pulumi.Resource,
        gpu: pulumi.Resource,
        addons: dict[str, pulumi.Resource],
    ) -> pulumi.Output[str]:
        """Register the resources in the cluster; returns Ray's token."""
        own, cluster, mirror = ResourceOptions(parent=self), self._cluster, settings.access.image_mirror
        provider = kubernetes.Provider(
            "kubernetes",
            kubeconfig=cluster.kubeconfig,
            # Only a new cluster replaces the provider, and with it every resource in the cluster. A new cluster of the
            # same name has the same id and ARN but another endpoint.
            cluster_identifier=cluster.resource.endpoint,
            opts=own,
        )
        # Children inherit deleted_with: they are deleted with the cluster, so `destroy` need not reach its API server.
        inside = ResourceOptions(parent=self, providers=[provider], deleted_with=cluster.resource)
        rights = AutoscalerRights("autoscaler", names, own, cluster=cluster.resource.name)
        Autoscaler("cluster-autoscaler", names, inside, mirror=mirror, rights=rights, nodes=system)
        plugins = DevicePlugins("device-plugins", settings, inside)
        folder = self._folder(settings, names, addons, inside) if settings.storage.bucket else None
        # Operators find Services by name, which needs this add-on.
        dns = addons["coredns"]
        without_operator = settings.ray.mode == "indexed-job"
        operators = install_operators(
            OperatorsArgs(
                node_selector=SYSTEM_NODES,
                depends_on=[system, dns],
                kuberay=not without_operator,
                queue=queue_args(settings, machine) if settings.queue == "kueue" else None,
                kuberay_image=mirrored(KUBERAY.image, mirror),
                kueue_image=mirrored(KUEUE.image, mirror),
            ),
            inside,
        )
        args = ray_args(
            settings,
            machine,
            names,
            folder=folder,
            queue=operators.queue,
            # Pods of a Job find their head by name; with an operator, the operator already depends on DNS.
            depends_on=[gpu, *plugins.releases, *([dns] if without_operator else []), *operators.releases],
        )
        return ray_workload(args, inside).token

    def _folder(
        self, settings: EksSettings, names: EksNames, addons: dict[str, pulumi.Resource], inside: ResourceOptions
    ) -> SharedFolder:
        storage = settings.storage
        system = SharedFileSystem(
            "shared",
            storage,
            names,
            ResourceOptions(parent=self),
            network=self._network,
            nodes=self._cluster.security_group,
            efa_nodes=self._efa.id,
        )
        driver = addons["aws-fsx-csi-driver"]
        volume = SharedVolume("shared-volume", storage, names, inside, system=system, driver=driver)
        return fsx_folder(storage.mount_path, claim(volume.name, storage.capacity_gib))
