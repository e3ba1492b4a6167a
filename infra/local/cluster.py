"""The local Ray cluster as one component: a head and its worker nodes.

It makes nothing that outlives `destroy`, and it offers no autoscaling: nothing adds nodes to a machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi.dynamic import Resource

from infra.local.provider import RayHeadProvider, RayWorkerProvider

HEAD = "head"


@dataclass(frozen=True, kw_only=True)
class LocalRayClusterArgs:
    """What a local cluster is made from.

    folder: where the nodes keep sockets, logs and the token (`infra.local.folder`).
    ray_version: the Ray that the environment must have, as in "2.60.0".
    workers: the number of worker nodes, at least 1.
    cpus: the logical CPUs that each worker node offers; the head offers none.
    token: Ray's token; None has a random one made.
    """

    folder: pulumi.Input[str]
    ray_version: pulumi.Input[str]
    workers: int
    cpus: pulumi.Input[int]
    token: pulumi.Input[str] | None = None


class RayHead(Resource, module="local", name="RayHead"):
    """The head node."""

    address: pulumi.Output[str]
    dashboard: pulumi.Output[str]
    jobs: pulumi.Output[str]
    client: pulumi.Output[str]
    token: pulumi.Output[str]
    storage: pulumi.Output[str]

    def __init__(self, name: str, args: LocalRayClusterArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(
            RayHeadProvider(),
            name,
            {
                "folder": args.folder,
                "name": HEAD,
                "rayVersion": args.ray_version,
                "token": args.token,
                # Declared here, filled in by the provider.
                "address": None,
                "dashboard": None,
                "jobs": None,
                "client": None,
                "storage": None,
                "pid": None,
            },
            opts,
        )


class RayWorker(Resource, module="local", name="RayWorker"):
    """One worker node; `position` counts from 1."""

    def __init__(
        self, name: str, position: int, head: RayHead, args: LocalRayClusterArgs, opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__(
            RayWorkerProvider(),
            name,
            {
                "folder": args.folder,
                "name": f"worker-{position}",
                "position": position,
                "cpus": args.cpus,
                "headId": head.id,
                "headAddress": head.address,
                "jobs": head.jobs,
                "pid": None,
            },
            opts,
        )


class LocalRayCluster(pulumi.ComponentResource):
    """One head and `workers` worker nodes on this machine, each with an address of its own where the system has them.

    dashboard, jobs: `http://127.0.0.1:PORT`; client: `ray://ADDRESS:PORT`; storage: a folder that all nodes see.
    """

    dashboard: pulumi.Output[str]
    jobs: pulumi.Output[str]
    client: pulumi.Output[str]
    token: pulumi.Output[str]
    storage: pulumi.Output[str]

    def __init__(self, name: str, args: LocalRayClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:local:LocalRayCluster", name, {}, opts)
        head = RayHead(
            f"{name}-{HEAD}",
            args,
            # The provider makes the token; without this option it would stand in the state as it is.
            pulumi.ResourceOptions(parent=self, additional_secret_outputs=["token"]),
        )
        for position in range(1, args.workers + 1):
            RayWorker(f"{name}-worker-{position}", position, head, args, pulumi.ResourceOptions(parent=self))
        self.dashboard = head.dashboard
        self.jobs = head.jobs
        self.client = head.client
        self.token = pulumi.Output.secret(head.token)
        self.storage = head.storage
        self.register_outputs({"dashboard": self.dashboard, "jobs": self.jobs, "client": self.client})
