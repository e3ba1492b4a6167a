"""The controllers that a stack's workload needs: KubeRay, unless it runs an Indexed Job, and Kueue with its queue.

The Kubernetes providers of both clouds leave enableSecretMutable and enableConfigMapMutable off (beta in
pulumi-kubernetes 4.34.2). Two objects change by content, Ray's token and the scripts of an Indexed Job, and running
pods have already read both. A new content therefore replaces the object in a preview, and `rdma-ray:protect` refuses
the replacement until somebody has reviewed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi import ResourceOptions

from infra.catalog.pins import KUBERAY, KUEUE
from infra.kubernetes.kuberay import KubeRay, KubeRayArgs
from infra.kubernetes.kueue import Kueue, KueueArgs
from infra.kubernetes.queue_manifest import Admission, QueueShape
from infra.kubernetes.queues import Queue, Queues, QueuesArgs


@dataclass(frozen=True, kw_only=True)
class OperatorsArgs:
    """node_selector: where controllers run; nodes: what has to be there first for that. ways_in: what lets the control
    plane call Kueue. ray: whether KubeRay is wanted. shape: of the queue, None for none; admission: how it is entered.
    kuberay_image, kueue_image: where the images lie for this cluster.
    """

    node_selector: dict[str, str]
    nodes: Sequence[pulumi.Resource]
    ways_in: Sequence[pulumi.Resource] = ()
    ray: bool
    shape: QueueShape | None
    admission: Admission
    kuberay_image: str = KUBERAY.image
    kueue_image: str = KUEUE.image


@dataclass(frozen=True, kw_only=True)
class Operators:
    """needs: what a workload waits for, beside the LocalQueue; queue: what admits it, None for nobody."""

    needs: list[pulumi.Resource]
    queue: Queue | None


def operators(args: OperatorsArgs, opts: ResourceOptions) -> Operators:
    """Make them."""
    needs: list[pulumi.Resource] = []
    if args.ray:
        kuberay = KubeRayArgs(node_selector=args.node_selector, nodes=args.nodes, image_repository=args.kuberay_image)
        needs.append(KubeRay("kuberay", kuberay, opts).release)
    if args.shape is None:
        return Operators(needs=needs, queue=None)
    kueue = Kueue(
        "kueue",
        KueueArgs(
            shape=args.shape,
            node_selector=args.node_selector,
            needs=[*args.nodes, *args.ways_in, *needs],
            image_repository=args.kueue_image,
        ),
        opts,
    )
    queues = Queues("queue", QueuesArgs(shape=args.shape, release=kueue.release), opts)
    queue = Queue(admission=args.admission, cluster_queue=queues.cluster_queue)
    return Operators(needs=needs, queue=queue)
