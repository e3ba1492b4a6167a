"""The Cluster Autoscaler: it sizes the node groups by the pods that wait.

Not Karpenter, and no mixture of both. Karpenter makes nodes without node groups: its way to a Capacity Block or a fixed
interface layout is another set of objects with rules of its own, and its dynamic mode makes every interface an EFA with
an address. The CPU side, where it would be better, is one to three nodes here. So one autoscaler knows both groups.

It finds them by the tags that EKS puts on the Auto Scaling groups of managed node groups, and may change those alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi import ResourceOptions
from pulumi_aws import eks
from pulumi_kubernetes.helm.v3 import Release, RepositoryOptsArgs

from infra.catalog.aws import EMPTY_MINUTES, PROVISION_MINUTES
from infra.catalog.pins import CLUSTER_AUTOSCALER
from infra.eks.iam import Role, RoleArgs
from infra.eks.images import mirrored
from infra.eks.names import EksNames

NAMESPACE = "kube-system"
ACCOUNT = "cluster-autoscaler"


@dataclass(frozen=True, kw_only=True)
class AutoscalerRightsArgs:
    """cluster: its name, as a value that is known once the cluster exists."""

    names: EksNames
    partition: str
    cluster: pulumi.Input[str]


class AutoscalerRights(pulumi.ComponentResource):
    """The autoscaler's role, tied to its ServiceAccount; `needs` are what its pod waits for."""

    def __init__(self, name: str, args: AutoscalerRightsArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:eks:AutoscalerRights", name, {}, opts)
        role = Role(
            name,
            RoleArgs(
                name=args.names.role("autoscaler"),
                service="pods.eks.amazonaws.com",
                partition=args.partition,
                policies=(),
                statements=rights(args.names.cluster),
                tags=args.names.tags(),
            ),
            ResourceOptions(parent=self),
        )
        association = eks.PodIdentityAssociation(
            name,
            cluster_name=args.cluster,
            namespace=NAMESPACE,
            service_account=ACCOUNT,
            role_arn=role.arn,
            tags=args.names.tags(),
            opts=ResourceOptions(parent=self),
        )
        self.needs: list[pulumi.Resource] = [*role.grants, association]
        self.register_outputs({})


def rights(cluster: str) -> list[dict[str, Any]]:
    """See everything that it plans with, change the Auto Scaling groups of this cluster (kubernetes/autoscaler:
    cloudprovider/aws README; from memory, 2026-11)."""
    return [
        {
            "Effect": "Allow",
            "Action": [
                "autoscaling:DescribeAutoScalingGroups",
                "autoscaling:DescribeAutoScalingInstances",
                "autoscaling:DescribeLaunchConfigurations",
                "autoscaling:DescribeScalingActivities",
                "autoscaling:DescribeTags",
                "ec2:DescribeImages",
                "ec2:DescribeInstanceTypes",
                "ec2:DescribeLaunchTemplateVersions",
                "ec2:GetInstanceTypesFromInstanceRequirements",
                "eks:DescribeNodegroup",
            ],
            "Resource": "*",
        },
        {
            "Effect": "Allow",
            "Action": ["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"],
            "Resource": "*",
            "Condition": {"StringEquals": {f"aws:ResourceTag/k8s.io/cluster-autoscaler/{cluster}": "owned"}},
        },
    ]


@dataclass(frozen=True, kw_only=True)
class AutoscalerArgs:
    """mirror: the registry that has its image, None for the image's own.

    needs: its rights, and the nodes that it runs on.
    """

    names: EksNames
    node_selector: dict[str, str]
    mirror: str | None
    needs: Sequence[pulumi.Resource]


class Autoscaler(pulumi.ComponentResource):
    """The autoscaler by its Helm chart, on the CPU nodes."""

    def __init__(self, name: str, args: AutoscalerArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:eks:Autoscaler", name, {}, opts)
        self.release = Release(
            name,
            name=name,
            chart=CLUSTER_AUTOSCALER.name,
            version=CLUSTER_AUTOSCALER.version,
            repository_opts=RepositoryOptsArgs(repo=CLUSTER_AUTOSCALER.repository),
            namespace=NAMESPACE,
            atomic=True,
            timeout=600,
            values={
                "cloudProvider": "aws",
                "awsRegion": args.names.region,
                "autoDiscovery": {"clusterName": args.names.cluster},
                "rbac": {"serviceAccount": {"create": True, "name": ACCOUNT}},
                "image": {"repository": mirrored(CLUSTER_AUTOSCALER.image, args.mirror)},
                "nodeSelector": args.node_selector,
                "extraArgs": {
                    # Ray has waited already before it gave its worker up.
                    "scale-down-unneeded-time": f"{EMPTY_MINUTES}m",
                    "max-node-provision-time": f"{PROVISION_MINUTES}m",
                    # Pods of daemon sets and of the kube-system namespace do not keep a GPU node.
                    "skip-nodes-with-system-pods": False,
                    "skip-nodes-with-local-storage": False,
                },
            },
            # Credentials come with a pod's birth, so the association is there first; and the release waits for its pod.
            opts=ResourceOptions(parent=self, depends_on=list(args.needs)),
        )
        self.register_outputs({"version": CLUSTER_AUTOSCALER.version})
