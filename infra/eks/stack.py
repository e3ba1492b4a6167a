"""The `eks` target: from settings to an RDMA cluster on AWS with Ray on it, and the outputs contract.

It asks AWS nothing before it makes something: no lookup, so that a first preview needs no answer from a cloud.
"""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as kubernetes
from pulumi import ResourceOptions

from infra.addresses import eks_addresses
from infra.catalog.aws import partition, zone_region
from infra.catalog.machines import eks_machine
from infra.catalog.pins import KUBERAY, KUEUE
from infra.eks.addons import BEFORE_NODES, CNI_ACCOUNT, Addons, AddonsArgs
from infra.eks.autoscaler import Autoscaler, AutoscalerArgs, AutoscalerRights, AutoscalerRightsArgs
from infra.eks.cluster import EksCluster, EksClusterArgs
from infra.eks.device_plugins import DevicePlugins, DevicePluginsArgs
from infra.eks.egress import EgressArgs, Endpoints, Nat, StorageEndpoint
from infra.eks.iam import CNI_POLICIES, NODE_POLICIES, Role, RoleArgs
from infra.eks.images import mirrored
from infra.eks.names import EksNames
from infra.eks.network import ClusterNetwork, NetworkArgs
from infra.eks.node_groups import GpuNodes, GpuNodesArgs, NodesArgs, SystemNodes
from infra.eks.queue import queue_shape
from infra.eks.ray import SYSTEM_NODES, cloud_side, fsx_folder
from infra.eks.security_groups import EfaSecurityGroup, EfaSecurityGroupArgs
from infra.eks.storage import SharedFileSystem, SharedFileSystemArgs, SharedVolume, SharedVolumeArgs
from infra.eks.storage_claim import claim
from infra.kubernetes.operators import OperatorsArgs, operators
from infra.kubernetes.outputs import outputs
from infra.kubernetes.queue_manifest import Admission
from infra.kubernetes.shared_folder import SharedFolder
from infra.kubernetes.workload import WorkloadArgs, workload
from infra.kubernetes.workload_shape import workload_shape
from infra.problems import Problem, SettingsError
from infra.settings import Settings

METRICS_NAMESPACE = "monitoring"
"""Where a Prometheus would run that somebody adds; EKS brings none (the usual name, kube-prometheus-stack docs)."""


def deploy(settings: Settings) -> dict[str, Any]:
    """Register the resources of an AWS stack; returns its outputs under the names of `infra.outputs.Outputs`.

    Raises `SettingsError` for a region that does not fit.
    """
    problems = region_unfit(settings, aws.config.region)
    if problems:
        raise SettingsError(problems, origin=f"The configuration of stack {pulumi.get_stack()}")
    stack = EksStack(pulumi.get_stack(), str(aws.config.region), settings)
    machine = eks_machine(settings.nodes.machine)
    return outputs(settings, machine, stack.names.ray_cluster, stack.kubeconfig, stack.token)


def region_unfit(settings: Settings, region: str | None) -> list[Problem]:
    """The provider's own setting: where everything is made. A zone's id does not spell its region; AWS tells then."""
    source = "pulumi-aws 7.51.1: provider configuration"
    here = zone_region(str(settings.location))
    if not region:
        return [
            Problem(
                settings=("aws:region",),
                values=("(not set)",),
                says="Every resource belongs to a region; none is named.",
                fix=f"pulumi config set aws:region {here or 'THE-REGION-OF-THE-ZONE'}",
                source=source,
            )
        ]
    if here is None or here == region:
        return []
    return [
        Problem(
            settings=("aws:region", "location"),
            values=(region, str(settings.location)),
            says=f"The zone is in {here}, and everything would be made in {region}, where there is no such zone.",
            fix=f"pulumi config set aws:region {here}",
            source=source,
        )
    ]


class EksStack(pulumi.ComponentResource):
    """Everything of a stack, as one tree: network, cluster, node groups, and what runs in the cluster."""

    kubeconfig: pulumi.Output[str]
    token: pulumi.Output[str]

    def __init__(self, name: str, region: str, settings: Settings) -> None:
        # Every child inherits it. On the cluster alone it would not do: the engine deletes the node groups and all that
        # goes before the cluster, and only then says that the cluster is protected (seen with 3.259.0).
        super().__init__("rdma-ray:eks:EksStack", name, {}, ResourceOptions(protect=settings.protect))
        self._own = own = ResourceOptions(parent=self)
        self.names = EksNames(name, region)
        self._settings = settings
        self._machine = eks_machine(settings.nodes.machine)
        self._partition = partition(region)
        self._addresses = eks_addresses(IPv4Network(str(settings.network.base_range)), settings.nodes.max)
        self._zones = (str(settings.location), str(settings.network.second_zone))
        network = self._network = ClusterNetwork(
            "cluster",
            NetworkArgs(names=self.names, addresses=self._addresses, zone=self._zones[0], second_zone=self._zones[1]),
            own,
        )
        ways_out = self._egress(network)
        efa = self._efa = EfaSecurityGroup("efa", EfaSecurityGroupArgs(names=self.names, vpc=network.vpc), own)
        cluster = EksCluster(
            "cluster",
            EksClusterArgs(
                names=self.names,
                partition=self._partition,
                subnets=list(network.private),
                public_endpoint=settings.access.public_endpoint,
                authorized_networks=settings.access.authorized_networks,
                administrators=settings.access.administrators,
                protect=settings.protect,
            ),
            own,
        )
        nodes = self._role("nodes", "ec2.amazonaws.com", NODE_POLICIES)
        before = self._addons_before(cluster)
        needs = [*nodes.grants, *ways_out, *before.addons.values()]
        system = SystemNodes(
            "system",
            self._nodes(cluster, nodes, network.private[0], [*needs, network.associations["private-0"]]),
            own,
        )
        gpu = GpuNodes(
            "gpu",
            GpuNodesArgs(
                nodes=self._nodes(cluster, nodes, network.gpu, [*needs, network.associations["gpu"], *efa.rules]),
                settings=settings,
                machine=self._machine,
                security_groups=[cluster.security_group, efa.id],
            ),
            own,
        )
        after = Addons(
            "after-nodes",
            AddonsArgs(
                names=self.names, cluster=cluster.resource.name, addons=self._addons_after(), needs=[system.group]
            ),
            own,
        )
        self.kubeconfig = cluster.kubeconfig
        self.token = self._inside(cluster, system, gpu, after)
        self.register_outputs({})

    def _egress(self, network: ClusterNetwork) -> list[pulumi.Resource]:
        """The ways out of the VPC, which nodes wait for."""
        args = EgressArgs(
            names=self.names,
            addresses=self._addresses,
            zones=self._zones,
            vpc=network.vpc,
            private=list(network.private),
            routes=network.routes,
        )
        storage = StorageEndpoint("s3", args, self._own)
        if self._settings.access.egress == "endpoints":
            return [storage.endpoint, *Endpoints("endpoints", args, self._own).endpoints]
        return [storage.endpoint, Nat("nat", args, self._own).way]

    def _role(self, purpose: str, service: str, policies: tuple[str, ...]) -> Role:
        args = RoleArgs(
            name=self.names.role(purpose),
            service=service,
            partition=self._partition,
            policies=policies,
            statements=(),
            tags=self.names.tags(),
        )
        return Role(purpose, args, self._own)

    def _nodes(
        self, cluster: EksCluster, role: Role, subnet: pulumi.Output[str], needs: list[pulumi.Resource]
    ) -> NodesArgs:
        return NodesArgs(names=self.names, cluster=cluster.resource.name, role=role.arn, subnet=subnet, needs=needs)

    def _addons_before(self, cluster: EksCluster) -> Addons:
        cni = self._role("cni", "pods.eks.amazonaws.com", CNI_POLICIES)
        args = AddonsArgs(
            names=self.names,
            cluster=cluster.resource.name,
            addons=BEFORE_NODES,
            roles={("vpc-cni", CNI_ACCOUNT): cni},
        )
        return Addons("before-nodes", args, self._own)

    def _addons_after(self) -> list[str]:
        """The driver of FSx gets no role: it mounts what is there and makes nothing."""
        addons = ["coredns", "eks-node-monitoring-agent"]
        return [*addons, "aws-fsx-csi-driver"] if self._settings.storage.bucket else addons

    def _inside(self, cluster: EksCluster, system: SystemNodes, gpu: GpuNodes, after: Addons) -> pulumi.Output[str]:
        """What runs in the cluster; returns Ray's token."""
        settings, mirror = self._settings, self._settings.access.image_mirror
        provider = kubernetes.Provider(
            "kubernetes",
            kubeconfig=cluster.kubeconfig,
            # Only another cluster replaces the provider, and with it everything inside. A new cluster of the same name
            # has the same id and ARN; its endpoint is another.
            cluster_identifier=cluster.resource.endpoint,
            opts=self._own,
        )
        inside = ResourceOptions(
            parent=self,
            providers=[provider],
            # Children inherit it: all of this goes with the cluster, so `destroy` need not reach its API server.
            deleted_with=cluster.resource,
        )
        rights = AutoscalerRights(
            "autoscaler",
            AutoscalerRightsArgs(names=self.names, partition=self._partition, cluster=cluster.resource.name),
            self._own,
        )
        Autoscaler(
            "cluster-autoscaler",
            AutoscalerArgs(
                names=self.names,
                node_selector=SYSTEM_NODES,
                mirror=mirror,
                needs=[*rights.needs, system.group],
            ),
            inside,
        )
        plugins = DevicePlugins(
            "device-plugins",
            DevicePluginsArgs(machine=self._machine, fabric=str(settings.fabric), mirror=mirror),
            inside,
        )
        folder = self._folder(cluster, after, inside)
        # Names of Services are found by coredns, which is an add-on here.
        names = after.addons["coredns"]
        without_operator = settings.ray.mode == "indexed-job"
        controllers = operators(
            OperatorsArgs(
                node_selector=SYSTEM_NODES,
                nodes=[system.group, names],
                ray=not without_operator,
                shape=queue_shape(settings, self._machine) if settings.queue == "kueue" else None,
                admission=Admission(),
                kuberay_image=mirrored(KUBERAY.image, mirror),
                kueue_image=mirrored(KUEUE.image, mirror),
            ),
            inside,
        )
        return workload(
            WorkloadArgs(
                name=self.names.ray_cluster,
                shape=workload_shape(settings, cloud_side(settings, self._machine, self.names, folder)),
                metrics_namespace=METRICS_NAMESPACE,
                queue=controllers.queue,
                # Pods of a Job find their head by a name; the operator has waited for coredns already.
                needs=[gpu.group, *plugins.releases, *([names] if without_operator else []), *controllers.needs],
            ),
            inside,
        )

    def _folder(self, cluster: EksCluster, after: Addons, inside: ResourceOptions) -> SharedFolder | None:
        storage = self._settings.storage
        if storage.bucket is None:
            return None
        size = int(storage.capacity_gib or 0)
        system = SharedFileSystem(
            "shared",
            SharedFileSystemArgs(
                names=self.names,
                bucket=storage.bucket,
                size_gib=size,
                efa=storage.efa,
                vpc=self._network.vpc,
                subnet=self._network.gpu,
                nodes=cluster.security_group,
                efa_nodes=self._efa.id,
            ),
            self._own,
        )
        volume = SharedVolume(
            "shared-volume",
            SharedVolumeArgs(names=self.names, system=system, size_gib=size, driver=after.addons["aws-fsx-csi-driver"]),
            inside,
        )
        return fsx_folder(str(storage.mount_path), claim(volume.name, size))
