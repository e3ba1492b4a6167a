"""What a stack runs Ray as: a RayCluster that stays, a RayJob, or an Indexed Job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi import ResourceOptions

from infra.kubernetes.indexed_job import IndexedJob, IndexedJobArgs
from infra.kubernetes.indexed_job_manifest import JobShape
from infra.kubernetes.queues import Queue
from infra.kubernetes.ray_cluster import RayCluster, RayClusterArgs
from infra.kubernetes.ray_job import RayJob, RayJobArgs
from infra.kubernetes.ray_job_manifest import RayJobShape, WorkloadShape


@dataclass(frozen=True, kw_only=True)
class WorkloadArgs:
    """name: of the RayCluster; the other shapes have theirs. metrics_namespace: whose pods may read metrics. queue: who
    admits it, None for nobody. needs: what must be there before it, and go only after it."""

    name: str
    shape: WorkloadShape
    metrics_namespace: str
    queue: Queue | None
    needs: Sequence[pulumi.Resource]


def workload(args: WorkloadArgs, opts: ResourceOptions) -> pulumi.Output[str]:
    """Make it; returns Ray's token, secret."""
    shape, metrics, queue, needs = args.shape, args.metrics_namespace, args.queue, args.needs
    if isinstance(shape, JobShape):
        job = IndexedJobArgs(shape=shape, metrics_namespace=metrics, queue=queue, needs=needs)
        return IndexedJob("ray", job, opts).token
    if isinstance(shape, RayJobShape):
        ray_job = RayJobArgs(shape=shape, metrics_namespace=metrics, queue=queue, needs=needs)
        return RayJob("ray", ray_job, opts).token
    cluster = RayClusterArgs(name=args.name, shape=shape, metrics_namespace=metrics, queue=queue, needs=needs)
    return RayCluster("ray", cluster, opts).token
