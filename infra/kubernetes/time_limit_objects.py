"""CronJob that ends a RayCluster or RayJob whose workers have held nodes for `nodes.maxHours`, wherever the user is.

Nothing of Kubernetes, KubeRay 1.6.2 or Kueue 0.19.2 counts the time on nodes: their deadlines (a RayJob's
activeDeadlineSeconds, Kueue's label max-exec-time-seconds) also count the wait for nodes, which may take a week, and
KubeRay recreates a worker pod that its own deadline ended. The pods of an Indexed Job need no CronJob: they are not
recreated, and their deadline counts from the node (`infra.kubernetes.indexed_job`). This
module imports no Pulumi.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from infra.catalog.names import NODE_TYPE
from infra.catalog.pins import KUEUE_API, RAY_API
from infra.kubernetes.pods import ACCOUNT_FOLDER, UNPRIVILEGED, RayArgs, on_cpu_nodes, role

ACCOUNT_SUFFIX = "-time-limit"
"""End of the name of an account that may end the workload with the rest of the name (`infra.kubernetes.admission`)."""
EVERY_MINUTES = 5
PULL_S = 3600
"""Seconds in which a pod may pull Ray's image, on a node that has none (our choice)."""
USER = 1000
"""User of the rayproject images, whose home with Python others cannot read (ray-project/ray: docker/base-deps; read
2026-11). Python of other images is readable by everyone (unverified, 2026-11)."""
SCRIPT = Path(__file__).with_name("time_limit_pod.py")


def time_limit(args: RayArgs) -> list[dict[str, Any]]:
    """Return the ServiceAccount, the Role, its binding and the CronJob."""
    name = f"{args.name}{ACCOUNT_SUFFIX}"
    metadata = {"name": name}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, "automountServiceAccountToken": False},
        *role(name, rules(args), name, args.settings.namespace),
        {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": cron_job_spec(args, account=name)},
    ]


def cron_job_spec(args: RayArgs, *, account: str) -> dict[str, Any]:
    """Return the spec of the CronJob. Its pods run on the head's nodes, with the head's image and no more rights."""
    container = {
        "name": "time-limit",
        "image": args.settings.ray.image,
        "command": ["python3", "-c", SCRIPT.read_text(encoding="utf-8")],
        "args": _arguments(args),
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": UNPRIVILEGED,
    }
    pod = {
        "restartPolicy": "Never",
        "serviceAccountName": account,
        "automountServiceAccountToken": True,
        **on_cpu_nodes(args),
        "securityContext": {"runAsNonRoot": True, "runAsUser": USER, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    job = {"backoffLimit": 0, "activeDeadlineSeconds": PULL_S, "template": {"spec": pod}}
    return {
        "schedule": f"*/{EVERY_MINUTES} * * * *",
        "concurrencyPolicy": "Forbid",
        "successfulJobsHistoryLimit": 1,
        "failedJobsHistoryLimit": 1,
        "jobTemplate": {"spec": job},
    }


def _arguments(args: RayArgs) -> list[str]:
    """Return the arguments of `time_limit_pod`."""
    patch, owned = _end(args)
    selector = ",".join(f"{key}%3D{value}" for key, value in {**args.labels, NODE_TYPE: "worker"}.items())
    return [
        f"--hours={args.settings.nodes.max_hours}",
        f"--workload=/apis/{RAY_API}/namespaces/{args.settings.namespace}/{_resource(args)}/{args.name}",
        f"--pods=/api/v1/namespaces/{args.settings.namespace}/pods?labelSelector={selector}",
        f"--patch={json.dumps(patch)}",
        *([f"--owned=/apis/{KUEUE_API}/namespaces/{args.settings.namespace}/{owned}"] if owned else []),
        f"--account={ACCOUNT_FOLDER}",
    ]


def _end(args: RayArgs) -> tuple[list[dict[str, Any]], str | None]:
    """Return the JSON patch that ends the workload, and the resource that it is for if it is not the workload."""
    if args.settings.ray.mode == "job":
        # A time that has passed. The RayJob fails, which is final; a suspended one would run again (ray-operator/
        # controllers/ray/rayjob_controller.go, v1.6.2).
        return [{"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 1}], None
    if args.settings.queue == "kueue":
        # Kueue would start a suspended RayCluster again (pkg/controller/jobframework/reconciler.go, 0.19.2).
        return [{"op": "add", "path": "/spec/active", "value": False}], "workloads"
    return [
        {"op": "add", "path": "/spec/suspend", "value": True},
        # Otherwise it would resume with as many workers as it had.
        *(
            {"op": "add", "path": f"/spec/workerGroupSpecs/{group}/replicas", "value": count}
            for group, count in enumerate(args.fewest)
        ),
    ], None


def rules(args: RayArgs) -> list[Any]:
    """Return the rights of its account: to list pods, and to change this workload; a policy allows only ending it."""
    _, owned = _end(args)
    change = {"apiGroups": [RAY_API.partition("/")[0]], "resources": [_resource(args)], "verbs": ["get", "patch"]}
    queue = {"apiGroups": [KUEUE_API.partition("/")[0]], "resources": [owned], "verbs": ["list", "patch"]}
    return [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        {**change, "resourceNames": [args.name]},
        # Kueue names its Workloads with a hash.
        *([queue] if owned else []),
    ]


def _resource(args: RayArgs) -> str:
    return "rayclusters" if args.settings.ray.mode == "cluster" else "rayjobs"
