"""The `local` target: a Ray head and worker nodes on this machine, from settings to stack outputs.

Nothing outlives `destroy`. There is no autoscaling.
"""

from __future__ import annotations

from typing import Any

import pulumi
from pulumi import ResourceOptions
from pulumi.dynamic import Resource

from infra.catalog.names import LOCAL_HISTORY
from infra.local.folder import ClusterFolder
from infra.local.node import PROJECT
from infra.local.provider import RayHeadProvider, RayWorkerProvider
from infra.outputs import local_outputs
from infra.settings import LocalSettings


def deploy(settings: LocalSettings) -> dict[str, Any]:
    """Register the resources of a local stack; return its outputs under the names of `infra.outputs.Outputs`."""
    stack = pulumi.get_stack()
    cluster = LocalRayCluster("ray", settings, str(ClusterFolder.of(PROJECT, stack).path))
    return local_outputs(settings, stack, cluster.head, cluster.token, str(PROJECT / LOCAL_HISTORY / stack))


class RayHead(Resource, module="local", name="RayHead"):
    """The head node. `dashboard`, `jobs`: `http://127.0.0.1:PORT`; `client`: `ray://ADDRESS:PORT`; `storage`: a folder
    that all nodes see.
    """

    address: pulumi.Output[str]
    dashboard: pulumi.Output[str]
    jobs: pulumi.Output[str]
    client: pulumi.Output[str]
    token: pulumi.Output[str]
    storage: pulumi.Output[str]

    def __init__(self, name: str, settings: LocalSettings, folder: str, opts: ResourceOptions) -> None:
        token = settings.ray.token
        inputs = {
            "folder": folder,
            "name": "head",
            "rayVersion": settings.ray.version,
            "token": pulumi.Output.secret(token.get_secret_value()) if token else None,
        }
        # Declared here, set by the provider.
        outputs = dict.fromkeys(("address", "dashboard", "jobs", "client", "storage", "pid"))
        super().__init__(RayHeadProvider(), name, {**inputs, **outputs}, opts)


class RayWorker(Resource, module="local", name="RayWorker"):
    """One worker node; `position` counts from 1."""

    def __init__(
        self, name: str, settings: LocalSettings, folder: str, position: int, head: RayHead, opts: ResourceOptions
    ) -> None:
        inputs = {
            "folder": folder,
            "name": f"worker-{position}",
            "position": position,
            "cpus": settings.nodes.cpus,
            "headId": head.id,
            "headAddress": head.address,
            "jobs": head.jobs,
            "pid": None,
        }
        super().__init__(RayWorkerProvider(), name, inputs, opts)


class LocalRayCluster(pulumi.ComponentResource):
    """One head and `nodes.count` workers, each with its own address where the system allows it. `token` is
    secret.

    Args:
        folder: Folder of the nodes' sockets, logs and token (`infra.local.folder`).
    """

    token: pulumi.Output[str]

    def __init__(self, name: str, settings: LocalSettings, folder: str, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:local:LocalRayCluster", name, {}, opts)
        # The provider generates the token; without this option the state would contain it in plain text.
        secret = ResourceOptions(parent=self, additional_secret_outputs=["token"])
        self.head = head = RayHead(f"{name}-head", settings, folder, secret)
        for position in range(1, settings.nodes.count + 1):
            opts = ResourceOptions(parent=self)
            RayWorker(f"{name}-worker-{position}", settings, folder, position, head, opts)
        self.token = pulumi.Output.secret(head.token)
        self.register_outputs({"dashboard": head.dashboard, "jobs": head.jobs, "client": head.client})
