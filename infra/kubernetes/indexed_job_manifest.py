"""The spec of an Indexed Job whose pods form a Ray cluster by themselves, run an entry point and end; no operator.

Pure: plain Kubernetes JSON from settings and a `GpuPod`. Pod 0 is the head and works too, since it has its node's GPUs.
What runs in the pods is the package `indexed_job_pod` beside this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.fabric import GpuPod
from infra.kubernetes.facts import METRICS_PORTS
from infra.kubernetes.ray_manifest import kept, ray_authentication
from infra.kubernetes.shared_folder import SharedFolder, preparation

PACKAGE = "indexed_job_pod"
SCRIPTS = "/etc/rdma-ray"
JOB_LABEL = "rdma-ray/job"
EVERYWHERE = "torchrun"
"""An entry point that begins with this word runs on every pod, with what torchrun reads from its environment."""

GRACE_S = 90
"""A pod that is asked to end stops its entry point, lets the others know, and stops Ray: 20 s each, at most."""

JOBS = "Kubernetes docs, concepts/workloads/controllers/job (read 2026-11); KEP-3998, success policy, stable in 1.33"


@dataclass(frozen=True, kw_only=True)
class JobShape:
    """What an Indexed Job is shaped by.

    name: of the Job. nodes: pods, one per node. entrypoint: a line for a shell. wait_s: seconds that pods may be apart,
    as the way to get machines promises. account: the ServiceAccount's name; its token is not mounted. token_secret: the
    Secret with Ray's token under `ray_manifest.TOKEN_KEY`. scripts: the ConfigMap with `script_files`.
    """

    name: str
    image: str
    nodes: int
    entrypoint: str
    wait_s: int
    account: str
    token_secret: str
    scripts: str
    pod: GpuPod
    folder: SharedFolder | None

    @property
    def service(self) -> str:
        """The Service of the head, called as KubeRay calls its own."""
        return f"{self.name}-head-svc"

    @property
    def head_host(self) -> str:
        """The stable host name of pod 0, within the Job's namespace."""
        return f"{self.name}-0.{self.service}"

    @property
    def labels(self) -> dict[str, str]:
        """What every pod of the Job carries, and no other pod."""
        return {JOB_LABEL: self.name}


def script_files() -> dict[str, str]:
    """The files that run in the pods, by their names; they are a Python package in one folder."""
    folder = Path(__file__).parent / PACKAGE
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))}


def head_service(shape: JobShape) -> dict[str, Any]:
    """The spec of the headless Service that gives pod 0 its host name.

    It selects pod 0 alone, so `kubectl port-forward` through it cannot meet another pod. The index is a label of every
    pod of an Indexed Job since Kubernetes 1.28.
    """
    return {
        "clusterIP": "None",
        "selector": {**shape.labels, "batch.kubernetes.io/job-completion-index": "0"},
        # The others look for the head before it is ready: it is ready when they have come.
        "publishNotReadyAddresses": True,
        "ports": [
            {"name": "dashboard", "port": 8265},
            {"name": "client", "port": 10001},
            {"name": "gcs-server", "port": 6379},
        ],
    }


def indexed_job(shape: JobShape) -> dict[str, Any]:
    """The spec of the Job.

    It has no `activeDeadlineSeconds`: how long training may run is the user's to say. It has no
    `ttlSecondsAfterFinished`: a Job that removes itself looks like drift, and the next `up` after a refresh would train
    once more. It has no `backoffLimitPerIndex`: one index that is tried again would meet a cluster that is over.
    """
    return {
        "completionMode": "Indexed",
        "completions": shape.nodes,
        "parallelism": shape.nodes,
        # A pod alone cannot be tried again (see `indexed_job_pod`), and the Job knows no retry of all its pods.
        "backoffLimit": 0,
        # The head's word counts: without it, one worker that hangs while it ends would keep the Job, and its nodes.
        "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
        # With a backoffLimit of 0 the Job would fail as well, but only these rules write into its status which pod
        # failed with which exit code, or that a node was taken away.
        "podFailurePolicy": {
            "rules": [
                {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": "ray-node", "operator": "NotIn", "values": [0]},
                },
            ]
        },
        # The only value that a podFailurePolicy allows: no second pod of an index before the first has ended.
        "podReplacementPolicy": "Failed",
        "template": _template(shape),
    }


def _template(shape: JobShape) -> dict[str, Any]:
    pod, container = shape.pod.pod(), shape.pod.container()
    folder = shape.folder
    node = {
        "name": "ray-node",
        "image": shape.image,
        **container,
        "command": ["/bin/bash", "-c", _start(shape), "ray-node", *_arguments(shape)],
        "env": [
            *container["env"],
            *ray_authentication(shape.token_secret),
            _field("POD_IP", "status.podIP"),
            # The address that the file on shared storage is found by is one Job's alone, for ever.
            _field("JOB_UID", "metadata.labels['batch.kubernetes.io/controller-uid']"),
            {"name": "PYTHONUNBUFFERED", "value": "1"},
        ],
        "ports": [{"containerPort": 8265, "name": "dashboard"}, {"containerPort": METRICS_PORTS[0], "name": "metrics"}],
        "volumeMounts": [
            *container["volumeMounts"],
            {"name": "scripts", "mountPath": f"{SCRIPTS}/{PACKAGE}", "readOnly": True},
            {"name": "ray-logs", "mountPath": "/tmp/ray"},
            *([{"name": "shared", "mountPath": folder.mount_path}] if folder else []),
        ],
    }
    return {
        "metadata": {
            "labels": shape.labels,
            "annotations": {**kept(), **shape.pod.annotations, **(folder.annotations if folder else {})},
        },
        "spec": {
            **pod,
            # In every pod alike, since a Job's pods are; it does no harm a second time.
            **(preparation(folder, shape.image) if folder else {}),
            "restartPolicy": "Never",
            # With the pod's own host name, `<job>-<index>`, it makes `<job>-0.<service>` resolve.
            "subdomain": shape.service,
            "serviceAccountName": shape.account,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": GRACE_S,
            "affinity": {
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"labelSelector": {"matchLabels": shape.labels}, "topologyKey": "kubernetes.io/hostname"}
                    ]
                }
            },
            "volumes": [
                *pod["volumes"],
                {"name": "scripts", "configMap": {"name": shape.scripts}},
                {"name": "ray-logs", "emptyDir": {}},
                *([{"name": "shared", **folder.volume}] if folder else []),
            ],
            # The first container gets the devices.
            "containers": [node],
        },
    }


def _start(shape: JobShape) -> str:
    """One line of bash, which the fabric's set-up may want; `exec` leaves the pod's signals to Python."""
    python = f'PYTHONPATH="{SCRIPTS}${{PYTHONPATH:+:$PYTHONPATH}}" exec python3 -m {PACKAGE} "$@"'
    return f"{shape.pod.setup} && {python}" if shape.pod.setup else python


def _arguments(shape: JobShape) -> list[str]:
    limits = shape.pod.resources["limits"]
    ray = [
        f"--num-cpus={limits['cpu']}",
        f"--num-gpus={limits['nvidia.com/gpu']}",
        f"--metrics-export-port={METRICS_PORTS[0]}",
    ]
    return [
        f"--nodes={shape.nodes}",
        f"--head-host={shape.head_host}",
        f"--wait-s={shape.wait_s}",
        *([f"--folder={shape.folder.mount_path}"] if shape.folder else []),
        *(["--everywhere"] if shape.entrypoint.split()[0] == EVERYWHERE else []),
        *(f"--ray={argument}" for argument in ray),
        # As KubeRay starts it: the network policy and the token say who gets in.
        "--ray-head=--dashboard-host=0.0.0.0",
        f"--entrypoint={shape.entrypoint}",
    ]


def _field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
