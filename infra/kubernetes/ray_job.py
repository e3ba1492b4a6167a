"""The RayJob: a Ray cluster of fixed size for one entry point, in a namespace of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes import meta
from pulumi_kubernetes.apiextensions import CustomResource

from infra.catalog.pins import RAY_API
from infra.kubernetes.queues import Queue, admitted, queue_annotations, queue_labels, suspension
from infra.kubernetes.ray_job_manifest import RayJobShape, job_labels, ray_job
from infra.kubernetes.ray_surroundings import SurroundingsArgs, surroundings
from infra.kubernetes.succession import RAY_JOB, in_place_of_others


@dataclass(frozen=True, kw_only=True)
class RayJobArgs:
    """shape: the RayJob itself. metrics_namespace: whose pods may read metrics. queue: who admits it, None for nobody.

    needs: what must be there before the RayJob, and go only after it: the operator, the node pools, the objects that
    its pods name.
    """

    shape: RayJobShape
    metrics_namespace: str
    needs: Sequence[pulumi.Resource]
    queue: Queue | None = None


class RayJob(pulumi.ComponentResource):
    """A RayJob whose cluster needs a token, in a namespace of its own. `token` is secret.

    `up` is done when the API server has it: its nodes may take hours, and its entry point days. The operator takes no
    change of one that runs, so any change replaces it, that is, ends it and runs a new one.
    """

    token: pulumi.Output[str]

    def __init__(self, name: str, args: RayJobArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__(RAY_JOB, name, {}, in_place_of_others(RAY_JOB, opts))
        shape = args.shape
        around = surroundings(
            name,
            SurroundingsArgs(
                called=shape.name,
                shape=shape.ray,
                labels=job_labels(shape.name),
                metrics_namespace=args.metrics_namespace,
                queue=args.queue,
            ),
            ResourceOptions(parent=self),
        )
        CustomResource(
            name,
            api_version=RAY_API,
            kind="RayJob",
            metadata=meta.v1.ObjectMetaArgs(
                name=shape.name,
                namespace=around.namespace,
                # Ready means "has run"; `up` must not stay for the training.
                annotations={"pulumi.com/skipAwait": "true", **queue_annotations(args.queue)},
                labels=queue_labels(args.queue),
            ),
            spec={**suspension(args.queue), **ray_job(shape)},
            opts=ResourceOptions.merge(
                ResourceOptions(
                    parent=self,
                    depends_on=[*around.needs, *args.needs],
                    # KubeRay reads the spec once (ray-operator/controllers/ray/rayjob_controller.go, v1.6.2).
                    replace_on_changes=["spec"],
                ),
                admitted(args.queue),
            ),
        )
        self.token = around.token
        self.register_outputs({"namespace": around.namespace})
