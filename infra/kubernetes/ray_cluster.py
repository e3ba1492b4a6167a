"""The RayCluster: Ray that stays and takes jobs, in a namespace of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes import meta
from pulumi_kubernetes.apiextensions import CustomResource

from infra.kubernetes.queues import Queue, admitted, queue_annotations, queue_labels, suspension
from infra.kubernetes.ray_manifest import RayShape, ray_cluster
from infra.kubernetes.ray_surroundings import SurroundingsArgs, surroundings
from infra.kubernetes.succession import RAY_CLUSTER, in_place_of_others

AUTOSCALED = ["spec.workerGroupSpecs[0].replicas", "spec.workerGroupSpecs[0].scaleStrategy"]
"""Where Ray's own autoscaler writes."""


@dataclass(frozen=True, kw_only=True)
class RayClusterArgs:
    """shape: the cluster itself. metrics_namespace: whose pods may read metrics. queue: who admits it, None for nobody.

    needs: what must be there before the cluster, and go only after it: the operator, the node pools, the objects that
    its pods name.
    """

    name: str
    shape: RayShape
    metrics_namespace: str
    needs: Sequence[pulumi.Resource]
    queue: Queue | None = None


class RayCluster(pulumi.ComponentResource):
    """A RayCluster that needs a token, in a namespace of its own. `up` is done when the API server has it.

    `token` is secret. With a queue the cluster has a fixed size, begins when all its nodes are to be had, and holds
    them until the stack goes.
    """

    token: pulumi.Output[str]

    def __init__(self, name: str, args: RayClusterArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__(RAY_CLUSTER, name, {}, in_place_of_others(RAY_CLUSTER, opts))
        around = surroundings(
            name,
            SurroundingsArgs(
                called=args.name,
                shape=args.shape,
                labels={"ray.io/cluster": args.name},
                metrics_namespace=args.metrics_namespace,
                queue=args.queue,
            ),
            ResourceOptions(parent=self),
        )
        CustomResource(
            name,
            api_version="ray.io/v1",
            kind="RayCluster",
            metadata=meta.v1.ObjectMetaArgs(
                name=args.name,
                namespace=around.namespace,
                # Ready means "all pods are there", and a GPU may take hours; `rdma-ray` waits where somebody asks.
                annotations={"pulumi.com/skipAwait": "true", **queue_annotations(args.queue)},
                labels=queue_labels(args.queue),
            ),
            spec={**suspension(args.queue), **ray_cluster(args.shape)},
            opts=ResourceOptions.merge(
                ResourceOptions(
                    parent=self,
                    depends_on=[*around.needs, *args.needs],
                    # The autoscaler's business.
                    ignore_changes=AUTOSCALED if args.shape.autoscaled else [],
                ),
                admitted(args.queue),
            ),
        )
        self.token = around.token
        self.register_outputs({"namespace": around.namespace})
