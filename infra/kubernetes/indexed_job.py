"""An Indexed Job that is a Ray cluster while it runs, and what stands around it: namespace, account, token, policy.

Nothing but Kubernetes is needed. It has a fixed size, runs one entry point, and gives its nodes back when that ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes import batch, core, meta, networking

from infra.kubernetes.indexed_job_manifest import JobShape, head_service, indexed_job, script_files
from infra.kubernetes.network_policy import job_ingress
from infra.kubernetes.pod_objects import beside
from infra.kubernetes.queues import Queue, admitted, local_queue, queue_annotations, queue_labels, suspension
from infra.kubernetes.ray_manifest import NAMESPACE
from infra.kubernetes.ray_token import ray_token
from infra.kubernetes.succession import INDEXED_JOB, in_place_of_others


@dataclass(frozen=True, kw_only=True)
class IndexedJobArgs:
    """shape: the Job itself. metrics_namespace: whose pods may read metrics. queue: who admits it, None for nobody.

    needs: what must be there before the Job, and go only after it: the node pools, the objects that its pods name.
    """

    shape: JobShape
    metrics_namespace: str
    needs: Sequence[pulumi.Resource]
    queue: Queue | None = None


class IndexedJob(pulumi.ComponentResource):
    """A Ray cluster of fixed size for one entry point, in a namespace of its own. `token` is secret.

    `up` is done when the API server has the Job: its nodes may take hours, and its entry point days. Another entry
    point, image or size replaces the Job, that is, ends it and runs a new one.
    """

    token: pulumi.Output[str]

    def __init__(self, name: str, args: IndexedJobArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__(INDEXED_JOB, name, {}, in_place_of_others(INDEXED_JOB, opts))
        own = ResourceOptions(parent=self)
        shape = args.shape
        namespace = core.v1.Namespace(name, metadata=meta.v1.ObjectMetaArgs(name=NAMESPACE), opts=own)
        inside = namespace.metadata["name"]
        account = core.v1.ServiceAccount(
            shape.account,
            metadata=meta.v1.ObjectMetaArgs(name=shape.account, namespace=inside),
            automount_service_account_token=False,
            opts=own,
        )
        token = ray_token(f"{name}-token", shape.token_secret, inside, own)
        scripts = core.v1.ConfigMap(
            f"{name}-scripts",
            metadata=meta.v1.ObjectMetaArgs(name=shape.scripts, namespace=inside),
            data=script_files(),
            opts=own,
        )
        service = core.v1.Service(
            f"{name}-head",
            metadata=meta.v1.ObjectMetaArgs(
                name=shape.service,
                namespace=inside,
                # It has no endpoint before the head's node is there, which may take hours.
                annotations={"pulumi.com/skipAwait": "true"},
            ),
            spec=cast("core.v1.ServiceSpecArgsDict", head_service(shape)),
            opts=own,
        )
        guard = networking.v1.NetworkPolicy(
            f"{name}-ingress",
            metadata=meta.v1.ObjectMetaArgs(name=f"{shape.name}-ingress", namespace=inside),
            spec=job_ingress(shape.labels, args.metrics_namespace),
            opts=own,
        )
        objects = beside(shape.pod, inside, own, shape.folder)
        way_in = [local_queue(f"{name}-queue", args.queue, inside, own)] if args.queue else []
        batch.v1.Job(
            name,
            metadata=meta.v1.ObjectMetaArgs(
                name=shape.name,
                namespace=inside,
                # Ready means "has succeeded"; `up` must not stay for the training.
                annotations={"pulumi.com/skipAwait": "true", **queue_annotations(args.queue)},
                labels=queue_labels(args.queue),
            ),
            # The SDK hands Kubernetes' own field names on as they are.
            spec=cast("batch.v1.JobSpecArgsDict", {**suspension(args.queue), **indexed_job(shape)}),
            opts=ResourceOptions.merge(
                ResourceOptions(
                    parent=self,
                    # Its pods name all of these; the policy is there before the first port opens.
                    depends_on=[account, token.secret, scripts, service, guard, *objects, *way_in, *args.needs],
                ),
                admitted(args.queue),
            ),
        )
        self.token = token.value
        self.register_outputs({"namespace": inside})
