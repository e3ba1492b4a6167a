"""Spec of an Indexed Job whose pods form a Ray cluster and run one entry point, without any operator.

Pod 0 is the head and also a worker, since it has the GPUs of its node. The pods run the package `indexed_job_pod`. This
module imports no Pulumi.
"""

from __future__ import annotations

from typing import Any

from infra.catalog.names import CLIENT_PORT, DASHBOARD_PORT, GCS_PORT, GPU, JOB_INDEX, METRICS_PORT
from infra.kubernetes.monitoring_objects import with_exporter
from infra.kubernetes.pods import (
    EVERY_LINE,
    INDEXED_JOB_POD,
    SCRIPTS,
    RayArgs,
    headless_service_spec,
    indexed_job_spec,
    one_pod_per_node,
    ray_authentication,
    ray_template,
    scripts_mount,
    scripts_volume,
    variable,
)
from infra.outputs import JOB_STACK, job_stack

ON_EVERY_POD = "torchrun"
"""An entry point that starts with this word runs on every pod, with the variables that torchrun reads."""

GRACE_S = 90
"""Seconds that a pod has to stop its entry point, notify the others, and stop Ray: at most 20 s each."""


def head_service(args: RayArgs) -> str:
    """Return the name of the head's Service, formed as KubeRay forms it."""
    return f"{args.name}-head-svc"


def head_service_spec(args: RayArgs) -> dict[str, Any]:
    """Return the spec of the headless Service that gives pod 0 its host name.

    It selects pod 0 only, so `kubectl port-forward` reaches no other pod.
    """
    pod_0 = {**args.labels, JOB_INDEX: "0"}
    ports = {"dashboard": DASHBOARD_PORT, "client": CLIENT_PORT, "gcs-server": GCS_PORT}
    return headless_service_spec(pod_0, **ports)


def job_spec(args: RayArgs) -> dict[str, Any]:
    """Return the spec of the Job.

    The deadline is the pods', which counts from the node; the Job's would include the wait for it. The Job has no
    `ttlSecondsAfterFinished`: a Job that removes itself looks like drift, and the next `up` after a refresh would train
    again. It has no `backoffLimitPerIndex`: a retried index would meet a cluster that has ended.
    """
    container, pod = args.pod.container(), args.pod.pod()
    node = {
        "name": "ray-node",
        "image": args.settings.ray.image,
        **container,
        "command": ["/bin/bash", "-c", _command(args), "ray-node", *_arguments(args)],
        "env": [
            *container["env"],
            *ray_authentication(args.token_secret),
            _field("POD_IP", "status.podIP"),
            # Names the file on shared storage that holds the head's address: unique to this Job forever.
            _field("JOB_UID", "metadata.labels['batch.kubernetes.io/controller-uid']"),
            EVERY_LINE,
            variable("PYTHONUNBUFFERED", "1"),
            variable(JOB_STACK, job_stack(args.settings, args.name)),
            *(variable(extra.name, extra.value) for extra in args.worker_environment),
        ],
        "ports": [
            {"containerPort": DASHBOARD_PORT, "name": "dashboard"},
            {"containerPort": METRICS_PORT, "name": "metrics"},
        ],
        "volumeMounts": [*container["volumeMounts"], scripts_mount(f"{SCRIPTS}/{INDEXED_JOB_POD}")],
    }
    spec = {
        **pod,
        # In every pod, since the pods of a Job are alike; the command may run several times.
        **(args.folder.preparation(args.settings.ray.image) if args.folder else {}),
        "restartPolicy": "Never",
        # Of each pod, from its start on a node (kubernetes: pkg/kubelet/active_deadline.go, v1.36.1). Without a retry,
        # the first pod that reaches it ends the Job.
        **({"activeDeadlineSeconds": 3600 * hours} if (hours := args.settings.nodes.max_hours) else {}),
        # With the pod's host name, `<job>-<index>`, it makes `<job>-0.<service>` resolve.
        "subdomain": head_service(args),
        "serviceAccountName": args.worker_account,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": min(GRACE_S, args.notice_s),
        "affinity": one_pod_per_node(args.labels),
        "volumes": [*pod["volumes"], scripts_volume(args.scripts)],
    }
    template = ray_template(
        node,
        spec,
        ray=args.settings.ray,
        folder=args.folder,
        annotations=args.pod.annotations,
        labels=args.labels,
    )
    template = with_exporter(args, template)
    return {**indexed_job_spec("ray-node", args.settings.ray.max_workers), "template": template}


def _command(args: RayArgs) -> str:
    """Return one line of bash, which the fabric's setup may need; `exec` passes the pod's signals to Python."""
    python = f'PYTHONPATH="{SCRIPTS}${{PYTHONPATH:+:$PYTHONPATH}}" exec python3 -m {INDEXED_JOB_POD} "$@"'
    return f"{args.pod.setup} && {python}" if args.pod.setup else python


def _arguments(args: RayArgs) -> list[str]:
    limits = args.pod.resources["limits"]
    return [
        f"--nodes={args.settings.ray.max_workers}",
        f"--head-host={args.name}-0.{head_service(args)}",
        f"--wait-s={args.settings.node_wait_s}",
        *([f"--folder={args.folder.mount_path}"] if args.folder else []),
        *(["--everywhere"] if args.entrypoint.split()[0] == ON_EVERY_POD else []),
        f"--ray=--num-cpus={limits['cpu']}",
        f"--ray=--num-gpus={limits.get(GPU, 0)}",
        f"--ray=--metrics-export-port={METRICS_PORT}",
        # As KubeRay starts it; the NetworkPolicy and the token control access.
        "--ray-head=--dashboard-host=0.0.0.0",
        # In arguments the kubelet replaces $(NAME), and $$ by $ (Kubernetes API: Container.args).
        f"--entrypoint={args.entrypoint.replace('$', '$$')}",
    ]


def _field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
