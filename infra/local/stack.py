"""The `local` target: from settings to a local Ray cluster and the outputs contract."""

from __future__ import annotations

from typing import Any

import pulumi

from infra.local.cluster import LocalRayCluster, LocalRayClusterArgs
from infra.local.folder import ClusterFolder
from infra.local.node import PROJECT
from infra.settings import LocalSettings as Settings


def deploy(settings: Settings) -> dict[str, Any]:
    """Register the resources of a local stack; returns its outputs under the names of `infra.outputs.Outputs`."""
    workers, cpus = settings.nodes.count, settings.nodes.cpus
    if workers is None or cpus is None:
        raise ValueError("nodes.count and nodes.cpus: every local stack has both, by default 2")
    stack = pulumi.get_stack()
    folder = ClusterFolder.of(PROJECT, stack)
    token = settings.ray.token
    cluster = LocalRayCluster(
        "ray",
        LocalRayClusterArgs(
            folder=str(folder.path),
            ray_version=settings.ray.version,
            workers=workers,
            cpus=cpus,
            token=pulumi.Output.secret(token.get_secret_value()) if token else None,
        ),
    )
    return {
        "target": "local",
        "location": None,
        "machine": None,
        "nodes": {"min": workers, "max": workers, "gpusPerNode": 0, "cpusPerNode": cpus},
        "fabric": {"transport": "socket", "nics": None, "gbpsPerNic": None, "floors": []},
        "kubeconfig": None,
        "namespace": None,
        "ray": {
            "cluster": stack,
            "mode": settings.ray.mode,
            "version": settings.ray.version,
            "dashboard": cluster.dashboard,
            "jobs": cluster.jobs,
            "client": cluster.client,
            "token": cluster.token,
        },
        "storage": {"path": cluster.storage},
        "queue": None,
    }
