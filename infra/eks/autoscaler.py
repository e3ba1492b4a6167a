"""Cluster Autoscaler: it sizes the node groups by the pods that are pending.

Karpenter is not used, not even for the CPU nodes. It creates nodes without node groups: Capacity Blocks and fixed
interface layouts need other objects with other rules, and its dynamic mode makes every interface an EFA with an
address. For the one to three CPU nodes it is not worth a second autoscaler.

The autoscaler finds the node groups by the tags that EKS sets on their Auto Scaling groups, and may change only those.
In a cluster of the user's, which has other groups, it also needs the stack's tag (`node_groups`).
"""

from __future__ import annotations

from typing import Any

import pulumi
from pulumi import ResourceOptions

from infra.catalog.aws import EMPTY_MINUTES, PROVISION_MINUTES
from infra.catalog.pins import CLUSTER_AUTOSCALER, EKS_RELEASES
from infra.eks.addons import CHART_NAMESPACE, chart_release
from infra.eks.iam import PodRole
from infra.eks.names import SYSTEM_NODES, EksNames
from infra.naming import STACK

ACCOUNT = "cluster-autoscaler"


def autoscaler_role(name: str, names: EksNames, opts: ResourceOptions, *, cluster: pulumi.Input[str]) -> PodRole:
    """Register the autoscaler's role."""
    return PodRole(
        "AutoscalerRights",
        name,
        names,
        opts,
        cluster=cluster,
        namespace=CHART_NAMESPACE,
        accounts={name: ACCOUNT},
        statements=permissions(names),
    )


def _tags(names: EksNames) -> dict[str, str]:
    """Return the tags of the Auto Scaling groups that the autoscaler sizes."""
    own = {STACK: names.stack} if names.existing is not None else {}
    return {f"k8s.io/cluster-autoscaler/{names.cluster}": "owned", **own}


def permissions(names: EksNames) -> list[dict[str, Any]]:
    """Return the autoscaler's IAM statements: read access for planning, and changes of the stack's groups only.

    Source: kubernetes/autoscaler: cloudprovider/aws README; unverified, 2026-11.
    """
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
            "Condition": {"StringEquals": {f"aws:ResourceTag/{tag}": value for tag, value in _tags(names).items()}},
        },
    ]


class Autoscaler(pulumi.ComponentResource):
    """Helm release of the autoscaler, on the CPU nodes."""

    def __init__(
        self,
        name: str,
        names: EksNames,
        opts: ResourceOptions,
        *,
        kubernetes: str,
        mirror: str | None,
        role: PodRole,
        nodes: pulumi.Resource,
    ) -> None:
        super().__init__("rdma-ray:eks:Autoscaler", name, {}, opts)
        values = {
            "cloudProvider": "aws",
            "awsRegion": names.region,
            "autoDiscovery": {
                "clusterName": names.cluster,
                # The autoscaler takes a group that has all of these tags (kubernetes/autoscaler: cloudprovider/aws
                # README; unverified, 2026-11). By default: those of the cluster.
                **({"tags": [*_tags(names)]} if names.existing is not None else {}),
            },
            "rbac": {"serviceAccount": {"create": True, "name": ACCOUNT}},
            "nodeSelector": SYSTEM_NODES,
            "extraArgs": {
                "scale-down-unneeded-time": f"{EMPTY_MINUTES}m",
                "max-node-provision-time": f"{PROVISION_MINUTES}m",
                # Pods of daemon sets and of kube-system do not keep an otherwise empty GPU node.
                "skip-nodes-with-system-pods": False,
                "skip-nodes-with-local-storage": False,
            },
        }
        # A pod gets its credentials when it is created, so the association must exist first. The release waits until
        # its pod runs, which needs a node.
        opts = ResourceOptions(parent=self, depends_on=[*role.grants, nodes])
        chart = CLUSTER_AUTOSCALER._replace(tag=EKS_RELEASES[kubernetes]["autoscaler"])
        chart_release(chart, values, names, opts, mirror=mirror)
        self.register_outputs({"version": CLUSTER_AUTOSCALER.version})
