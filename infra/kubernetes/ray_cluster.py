"""The RayCluster: Ray that stays and takes jobs, in a namespace of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes import meta
from pulumi_kubernetes.apiextensions import CustomResource

from infra.catalog.pins import RAY_API
from infra.kubernetes.queues import Queue, admitted, queue_annotations, queue_labels, suspension
from infra.kubernetes.ray_manifest import RayShape, ray_cluster
from infra.kubernetes.ray_surroundings import SurroundingsArgs, surroundings
from infra.kubernetes.succession import RAY_CLUSTER, in_place_of_others

AUTOSCALED = ["spec.workerGroupSpecs[0].replicas", "spec.workerGroupSpecs[0].scaleStrategy"]
"""Where Ray's own autoscaler writes."""

BESIDE_THE_AUTOSCALER = {"pulumi.com/patchForce": "true"}
"""The worker groups are one list to the API server (no merge key in the CRD of KubeRay 1.6.2). Once the autoscaler has
written into it, the list is the autoscaler's, and an `up` that changes the cluster is a conflict unless it is forced.
That sets `replicas` back, and ends nobody: with an autoscaler the operator ends only those workers that it names."""


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

    `token` is secret. With a queue the cluster has a fixed size, begins when there is room for all of it, and holds its
    nodes until it is deleted; any change replaces it.
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
            api_version=RAY_API,
            kind="RayCluster",
            metadata=meta.v1.ObjectMetaArgs(
                name=args.name,
                namespace=around.namespace,
                # Ready means "all pods are there", and a GPU may take hours; `rdma-ray` waits where somebody asks.
                annotations={
                    "pulumi.com/skipAwait": "true",
                    **(BESIDE_THE_AUTOSCALER if args.shape.autoscaled else {}),
                    **queue_annotations(args.queue),
                },
                labels=queue_labels(args.queue),
            ),
            spec={**suspension(args.queue), **ray_cluster(args.shape)},
            opts=ResourceOptions.merge(
                ResourceOptions(
                    parent=self,
                    depends_on=[*around.needs, *args.needs],
                    # The autoscaler's business.
                    ignore_changes=AUTOSCALED if args.shape.autoscaled else [],
                    # Another size or template is another admission, so Kueue would end the cluster and begin it anew.
                    # This way a preview says so; and the list of worker groups, into which Kueue writes marks of its
                    # own, is Kueue's from then on (no merge key in the CRD of KubeRay 1.6.2).
                    replace_on_changes=["spec"] if args.queue else [],
                ),
                admitted(args.queue),
            ),
        )
        self.token = around.token
        self.register_outputs({"namespace": around.namespace})
