"""Kueue, installed by its Helm chart, and the queue for the GPU nodes.

Kueue protects each object with a finalizer as long as another object refers to it. Resources are therefore deleted in
this order: workload, LocalQueue, ClusterQueue, flavors and check, and last the controller, which removes the
finalizers. The CRDs are templates of the chart: they are deleted with the release, and every queue with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import yaml
from pulumi import ResourceOptions
from pulumi_kubernetes.apiextensions import CustomResource

from infra.catalog.pins import KUEUE, KUEUE_TAG
from infra.kubernetes import queue_objects as objects
from infra.kubernetes.queue_objects import QueueArgs
from infra.kubernetes.resources import custom_resource, helm_release


@dataclass(frozen=True, kw_only=True)
class Queue:
    """The queue that admits a workload.

    Args:
        cluster_queue: ClusterQueue of the workload's LocalQueue.
        max_run_s: Maximum run time of queued nodes, in seconds; None without queued provisioning.
    """

    cluster_queue: pulumi.Resource
    max_run_s: int | None = None


class Kueue(pulumi.ComponentResource):
    """Kueue's controller in its own namespace. Queues depend on `release`."""

    def __init__(
        self,
        name: str,
        args: QueueArgs,
        opts: ResourceOptions | None = None,
        *,
        node_selector: Mapping[str, str],
        image: str,
        depends_on: Sequence[pulumi.Resource],
    ) -> None:
        super().__init__("rdma-ray:kubernetes:Kueue", name, {}, opts)
        self.release = helm_release(
            name,
            KUEUE,
            objects.KUEUE_RELEASE,
            namespace=objects.KUEUE_NAMESPACE,
            values={
                "controllerManager": {
                    "nodeSelector": dict(node_selector),
                    "manager": {
                        "image": {
                            "repository": image,
                            "tag": KUEUE_TAG,
                            # The tag is a release; Always would contact the registry at every restart.
                            "pullPolicy": "IfNotPresent",
                        }
                    },
                },
                "managerConfig": {"controllerManagerConfigYaml": yaml.safe_dump(objects.configuration(args))},
            },
            # The release waits until the controller answers, which needs a node and a path from the control plane.
            opts=ResourceOptions(parent=self, depends_on=depends_on),
        )
        self.register_outputs({"version": KUEUE.version})


class Queues(pulumi.ComponentResource):
    """The ClusterQueue and the objects that it refers to. The LocalQueue is created with the workload.

    Args:
        release: Kueue's release, which installs the CRDs and webhooks of these objects.
    """

    def __init__(
        self, name: str, args: QueueArgs, opts: ResourceOptions | None = None, *, release: pulumi.Resource
    ) -> None:
        super().__init__("rdma-ray:kubernetes:Queues", name, {}, opts)
        levels = objects.topology(args)
        topology = [self._object("topology", levels, [release])] if levels else []
        # The API server rejects a flavor whose topology does not exist.
        needs = [
            self._object(f"flavor-{flavor['metadata']['name']}", flavor, [release, *topology])
            for flavor in objects.resource_flavors(args)
        ]
        for config, check in [objects.provisioning(args)] if args.provisioned else []:
            # The check refers to the configuration, and the ClusterQueue to the check.
            needs.append(self._object("check", check, [self._object("provisioning", config, [release])]))
        self.cluster_queue = self._object("cluster-queue", objects.cluster_queue(args), needs)
        self.register_outputs({})

    def _object(self, name: str, body: Mapping[str, Any], depends_on: Sequence[pulumi.Resource]) -> CustomResource:
        return custom_resource(f"queue-{name}", body, ResourceOptions(parent=self, depends_on=depends_on))
