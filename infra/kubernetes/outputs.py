"""Stack outputs and kubeconfig of a stack whose Ray runs on Kubernetes, for every cloud."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pulumi

from infra.catalog.baselines import floors
from infra.catalog.machines import Machine
from infra.catalog.pins import EXEC_CREDENTIAL_API
from infra.kubernetes.pods import CLIENT_PORT, DASHBOARD_PORT, NAMESPACE
from infra.kubernetes.queue_objects import LOCAL_QUEUE
from infra.settings import CloudSettings

FORWARDED = "127.0.0.1"
"""The head has no public address: `kubectl port-forward` forwards its ports to the user's machine (docs/gke.md,
docs/eks.md)."""


def outputs(
    settings: CloudSettings,
    machine: Machine,
    ray_cluster: str,
    kubeconfig: pulumi.Input[str],
    token: pulumi.Input[str],
) -> dict[str, Any]:
    """Return the stack outputs under the names of `infra.outputs.Outputs`.

    Args:
        ray_cluster: Name of the RayCluster, RayJob or Job.
        kubeconfig: Kubeconfig as JSON, which the output marks as secret.
        token: Ray's token, a secret output.
    """
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
            "dashboard": f"http://{FORWARDED}:{DASHBOARD_PORT}",
            "jobs": f"http://{FORWARDED}:{DASHBOARD_PORT}",
            "client": f"ray://{FORWARDED}:{CLIENT_PORT}",
            "token": token,
        },
        "storage": {"path": settings.storage.mount_path} if settings.storage.bucket else None,
        "queue": LOCAL_QUEUE if settings.queue == "kueue" else None,
    }


def kubeconfig(cluster: str, server: str, ca: str | None, command: Mapping[str, Any]) -> str:
    """Return a kubeconfig as JSON, which is YAML, without a secret.

    Args:
        cluster: Name of the cluster, context and user.
        server: URL of the API server.
        ca: The cluster's certificate authority, base64; None for a certificate that every system trusts.
        command: The cloud's command that prints a token, in the fields of client-go's exec credentials. The client
            runs it for each token, so no token is in a file or in the state.
    """
    authority = {} if ca is None else {"certificate-authority-data": ca}
    exec_credential = {"apiVersion": EXEC_CREDENTIAL_API, **command, "interactiveMode": "IfAvailable"}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": cluster,
            "clusters": [{"name": cluster, "cluster": {"server": server, **authority}}],
            "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": cluster}}],
            "users": [{"name": cluster, "user": {"exec": exec_credential}}],
        }
    )
