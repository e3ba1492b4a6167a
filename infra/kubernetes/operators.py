"""The operators that a stack's workload needs: KubeRay, unless it runs an Indexed Job, and Kueue with its queue.

The Kubernetes providers of both clouds leave enableSecretMutable and enableConfigMapMutable off (beta in
pulumi-kubernetes 4.34.2). Two objects change by content, Ray's token and the scripts of an Indexed Job, and running
pods have already read both. New content therefore replaces the object in a preview, and `rdma-ray:protect` rejects the
replacement until someone has reviewed it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi import ResourceOptions

from infra.catalog.pins import KUBERAY, KUEUE
from infra.kubernetes.pods import KUBERAY_NAMESPACE
from infra.kubernetes.queue_objects import QueueArgs
from infra.kubernetes.queues import Kueue, Queue, Queues
from infra.kubernetes.resources import helm_release


@dataclass(frozen=True, kw_only=True)
class OperatorsArgs:
    """Arguments of the operators.

    Args:
        node_selector: Nodes that the operators run on.
        depends_on: Resources that the operators need to become ready: nodes, and DNS.
        webhook_access: Resources that the control plane needs to call Kueue's webhook.
        kuberay: Whether the workload needs KubeRay.
        queue: The queue to create with Kueue; None for neither.
        kuberay_image: Repository of KubeRay's image; another one for clusters that reach only a mirror.
        kueue_image: Repository of Kueue's image.
    """

    node_selector: Mapping[str, str]
    depends_on: Sequence[pulumi.Resource]
    webhook_access: Sequence[pulumi.Resource] = ()
    kuberay: bool
    queue: QueueArgs | None
    kuberay_image: str = KUBERAY.image
    kueue_image: str = KUEUE.image


@dataclass(frozen=True, kw_only=True)
class Operators:
    """The installed operators.

    Args:
        releases: Releases that the workload depends on.
        queue: The queue that admits the workload; None without a queue.
    """

    releases: Sequence[pulumi.Resource]
    queue: Queue | None


def install_operators(args: OperatorsArgs, opts: ResourceOptions) -> Operators:
    """Install the operators and create the queue."""
    releases = [KubeRay("kuberay", args, opts).release] if args.kuberay else []
    if args.queue is None:
        return Operators(releases=releases, queue=None)
    kueue = Kueue(
        "kueue",
        args.queue,
        opts,
        node_selector=args.node_selector,
        image=args.kueue_image,
        # KubeRay first: Kueue's webhook for Ray's kinds answers only after their CRDs are installed, and until then the
        # API server rejects every object of these kinds.
        depends_on=[*args.depends_on, *args.webhook_access, *releases],
    )
    queues = Queues("queue", args.queue, opts, release=kueue.release)
    return Operators(releases=releases, queue=Queue(cluster_queue=queues.cluster_queue, max_run_s=args.queue.max_run_s))


class KubeRay(pulumi.ComponentResource):
    """The KubeRay operator in its own namespace. A RayCluster or RayJob depends on `release`.

    The first release of the chart installs the CRDs; Helm does not upgrade them. GKE's Ray add-on must not run in the
    same cluster.
    """

    def __init__(self, name: str, args: OperatorsArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:kubernetes:KubeRay", name, {}, opts)
        self.release = helm_release(
            name,
            KUBERAY,
            "kuberay-operator",
            namespace=KUBERAY_NAMESPACE,
            values={
                "nodeSelector": dict(args.node_selector),
                "image": {"repository": args.kuberay_image},
                # The chart's default is 0.1 CPU and 512 MiB, the memory for 500 pods (its values, 002c26b0).
                "resources": {
                    "requests": {"cpu": "100m", "memory": "512Mi"},
                    "limits": {"cpu": "500m", "memory": "1Gi"},
                },
            },
            # The release waits until the operator runs, which needs a node.
            opts=ResourceOptions(parent=self, depends_on=args.depends_on),
        )
        self.register_outputs({"version": KUBERAY.version})
