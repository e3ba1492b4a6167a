"""Kueue's queue for the GPU nodes: flavors, quotas, and on queued capacity what asks for the machines.

Kueue keeps each object with a finalizer as long as another one refers to it. So they go in the reverse order: workload,
LocalQueue, ClusterQueue, flavors and check, and the controller, which takes the finalizers away, after all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes.apiextensions import CustomResource

from infra.kubernetes import queue_manifest as manifest
from infra.kubernetes.queue_manifest import Admission, QueueShape


@dataclass(frozen=True, kw_only=True)
class QueuesArgs:
    """release: Kueue's, whose definitions and webhooks these objects need."""

    shape: QueueShape
    release: pulumi.Resource


@dataclass(frozen=True, kw_only=True)
class Queue:
    """What a workload is admitted by: its marks, and the ClusterQueue that its LocalQueue leads to."""

    admission: Admission
    cluster_queue: pulumi.Resource


class Queues(pulumi.ComponentResource):
    """The ClusterQueue and all that it refers to. The LocalQueue stands with the workload, in its namespace."""

    def __init__(self, name: str, args: QueuesArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:kubernetes:Queues", name, {}, opts)
        shape = args.shape
        after = ResourceOptions(parent=self, depends_on=[args.release])
        places = manifest.topology(shape)
        topology = [_made("topology", places, after)] if places else []
        on_topology = ResourceOptions(parent=self, depends_on=[args.release, *topology])
        needs: list[pulumi.Resource] = [
            _made(f"flavor-{flavor['metadata']['name']}", flavor, on_topology)
            for flavor in manifest.resource_flavors(shape)
        ]
        before: pulumi.Resource = args.release
        for kind, body in zip(("provisioning", "check"), manifest.provisioning(shape), strict=False):
            # The check names the configuration, and the queue the check.
            before = _made(kind, body, ResourceOptions(parent=self, depends_on=[before]))
        if before is not args.release:
            needs.append(before)
        self.cluster_queue = _made(
            "cluster-queue", manifest.cluster_queue(shape), ResourceOptions(parent=self, depends_on=needs)
        )
        self.register_outputs({})


def local_queue(name: str, queue: Queue, namespace: pulumi.Input[str], opts: ResourceOptions) -> CustomResource:
    """The LocalQueue in the workload's namespace; it goes before the ClusterQueue."""
    body = manifest.local_queue()
    return CustomResource(
        name,
        api_version=body["apiVersion"],
        kind=body["kind"],
        metadata={**body["metadata"], "namespace": namespace},
        spec=body["spec"],
        opts=ResourceOptions.merge(opts, ResourceOptions(depends_on=[queue.cluster_queue])),
    )


def queue_labels(queue: Queue | None) -> dict[str, str] | None:
    """The labels of a workload: none without a queue."""
    return queue.admission.labels if queue else None


def queue_annotations(queue: Queue | None) -> dict[str, str]:
    """What a workload's annotations gain by its queue."""
    return queue.admission.annotations if queue else {}


def suspension(queue: Queue | None) -> dict[str, bool]:
    """The part of a workload's spec that keeps it from beginning before Kueue lets it. Kueue's webhook says so as well;
    said here, it also holds while that does not answer."""
    return {"suspend": True} if queue else {}


def admitted(queue: Queue | None) -> ResourceOptions:
    """The options of a workload that Kueue admits, or could.

    What Kueue writes into the templates of pods (labels of the flavor's nodes, the request's annotations) is no change
    to what was applied: the fields are other ones, or have the same value already (`infra.gke.fabric`).
    """
    return ResourceOptions(
        # Kueue's business.
        ignore_changes=["spec.suspend"] if queue else [],
        # Kueue lets no running workload into a queue or out of it (pkg/controller/jobframework/validation.go, 0.19.2).
        replace_on_changes=["metadata.labels"],
        # The name is fixed.
        delete_before_replace=True,
    )


def _made(name: str, body: Mapping[str, Any], opts: ResourceOptions) -> CustomResource:
    return CustomResource(
        f"queue-{name}",
        api_version=body["apiVersion"],
        kind=body["kind"],
        metadata=body["metadata"],
        spec=body["spec"],
        opts=opts,
    )
