"""The outputs contract of a stack whose Ray runs on Kubernetes: the same for every cloud."""

from __future__ import annotations

from typing import Any

import pulumi

from infra.catalog.baselines import floors
from infra.catalog.machines import Machine
from infra.kubernetes.queue_facts import LOCAL_QUEUE
from infra.kubernetes.ray_manifest import NAMESPACE
from infra.settings import CloudSettings as Settings

FORWARDED = "127.0.0.1"
"""The head has no public address: `kubectl port-forward` brings it to the user's machine (docs/gke.md, docs/eks.md)."""


def outputs(
    settings: Settings,
    machine: Machine,
    ray_cluster: str,
    kubeconfig: pulumi.Input[str],
    token: pulumi.Input[str],
) -> dict[str, Any]:
    """The outputs under the names of `infra.outputs.Outputs`; `token` is secret already, `kubeconfig` becomes it."""
    return {
        "target": settings.target,
        "location": settings.location,
        "machine": machine.name,
        "nodes": {
            "min": settings.nodes.min,
            "max": settings.nodes.max,
            "gpusPerNode": machine.gpus,
            "cpusPerNode": machine.pod_cpus,
        },
        "fabric": {
            "transport": machine.transport,
            "nics": machine.nics,
            "gbpsPerNic": machine.gbps_per_nic,
            "floors": [floor.model_dump(by_alias=True) for floor in floors(machine.name)],
        },
        "kubeconfig": pulumi.Output.secret(kubeconfig),
        "namespace": NAMESPACE,
        "ray": {
            "cluster": ray_cluster,
            "mode": settings.ray.mode,
            "version": settings.ray.version,
            "dashboard": f"http://{FORWARDED}:8265",
            "jobs": f"http://{FORWARDED}:8265",
            "client": f"ray://{FORWARDED}:10001",
            "token": token,
        },
        "storage": {"path": settings.storage.mount_path} if settings.storage.bucket else None,
        "queue": LOCAL_QUEUE if settings.queue == "kueue" else None,
    }
