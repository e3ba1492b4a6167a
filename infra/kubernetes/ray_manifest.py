"""The spec of a RayCluster: a head without GPUs, and one group of workers that own their nodes.

Pure: plain Kubernetes JSON from settings and a `GpuPod`. It leaves out what the operator adds by itself (probes, ports
for metrics, the dashboard's address), and `replicas` where Ray's own autoscaler chooses them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from infra.fabric import GpuPod, Variable
from infra.kubernetes.shared_folder import SharedFolder, preparation

NAMESPACE = "ray"
HEAD_ACCOUNT = "ray-head"
WORKER_ACCOUNT = "ray-worker"
WORKER_GROUP = "gpu-group"
TOKEN_KEY = "auth_token"
"""The key that KubeRay reads (KubeRay 1.6 docs, token authentication; read 2026-08)."""

HEAD_CPUS = "4"
HEAD_MEMORY = "16Gi"
AUTOSCALER = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
"""Twice what the operator gives it, which is small for real clusters (KubeRay 1.6: 500m, 512Mi; read 2026-08)."""

RECONNECT_S = 600
"""How long a worker looks for its head before it ends itself; Ray's own 60 s is shorter than the move of a head."""

ABANDONED_S = 1800
"""How long an unanswered request for nodes outlives the job that wanted them. Ray never gives it up by itself
(ray #45195; 2.60 has the setting), and GPUs that arrive later would be paid for nobody."""

PORTS = ({"containerPort": 6379, "name": "gcs-server"}, {"containerPort": 8265, "name": "dashboard"})
CLIENT_PORT = {"containerPort": 10001, "name": "client"}
METRICS = ({"containerPort": 44217, "name": "as-metrics"}, {"containerPort": 44227, "name": "dash-metrics"})


@dataclass(frozen=True, kw_only=True)
class RayShape:
    """What a RayCluster is shaped by.

    version: of Ray, which is the image's. fewest, most: workers, one per node. autoscaled: whether Ray's own autoscaler
    chooses between them; without it there are `most` from beginning to end. idle_s: seconds until an idle worker goes.
    wait_s: seconds that a worker's pod may wait for its node, as the way to get machines promises. head_selector: nodes
    without GPUs; head_environment: what the head needs there beside Ray's own. account: the ServiceAccount's name of
    the head; worker_account: of the workers, which talk to no API server. token_secret: the Secret with the token under
    `TOKEN_KEY`. labels: what every pod carries beside the operator's own.
    """

    version: str
    image: str
    fewest: int
    most: int
    autoscaled: bool = True
    idle_s: int
    wait_s: int
    head_selector: Mapping[str, str]
    account: str
    worker_account: str
    token_secret: str
    pod: GpuPod
    folder: SharedFolder | None
    head_environment: Sequence[Variable] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


def ray_cluster(shape: RayShape) -> dict[str, Any]:
    """The spec of the RayCluster."""
    return {
        "rayVersion": shape.version,
        "enableInTreeAutoscaling": shape.autoscaled,
        # Both: the operator's own way, and the environment, which holds whatever the operator's version makes of it.
        # Without the mode, KubeRay makes the Secret and leaves the cluster open.
        "authOptions": {"mode": "token", "secretName": shape.token_secret},
        **({"autoscalerOptions": _autoscaler(shape)} if shape.autoscaled else {}),
        "headGroupSpec": _head(shape),
        "workerGroupSpecs": [_workers(shape)],
    }


def _autoscaler(shape: RayShape) -> dict[str, Any]:
    return {
        "version": "v2",
        "upscalingMode": "Default",
        "idleTimeoutSeconds": shape.idle_s,
        "resources": AUTOSCALER,
        "env": [
            # A pod that waits for its node is deleted after this time, and its place in the queue is lost
            # (kuberay #4226, ray PR #60392).
            _plain("RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S", str(shape.wait_s)),
            _plain("RAY_AUTOSCALER_PENDING_NODE_IDLE_TIMEOUT_S", str(ABANDONED_S)),
            *ray_authentication(shape.token_secret),
        ],
    }


def _head(shape: RayShape) -> dict[str, Any]:
    container = {
        "name": "ray-head",
        "image": shape.image,
        "ports": [*PORTS, CLIENT_PORT, *METRICS],
        "env": [
            *ray_authentication(shape.token_secret),
            *(_plain(variable.name, variable.value) for variable in shape.head_environment),
            # Ray Train gives up on a gang after 60 s and starts over; drivers run here and inherit this.
            _plain("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", str(shape.wait_s)),
        ],
        "resources": {
            "requests": {"cpu": HEAD_CPUS, "memory": HEAD_MEMORY},
            "limits": {"memory": HEAD_MEMORY},
        },
        "volumeMounts": [{"name": "ray-logs", "mountPath": "/tmp/ray"}, *_mounts(shape.folder)],
    }
    return {
        "serviceType": "ClusterIP",
        # No task and no actor lands on the head: it has no GPU, and its loss ends every job.
        "rayStartParams": {"num-cpus": "0"},
        "template": {
            "metadata": {**_labels(shape), "annotations": {**kept(), **_annotations(shape.folder)}},
            "spec": {
                "serviceAccountName": shape.account,
                "nodeSelector": dict(shape.head_selector),
                **(preparation(shape.folder, shape.image) if shape.folder else {}),
                "containers": [container],
                "volumes": [{"name": "ray-logs", "emptyDir": {}}, *_volumes(shape.folder)],
            },
        },
    }


def _workers(shape: RayShape) -> dict[str, Any]:
    pod, container = shape.pod.pod(), shape.pod.container()
    worker = {
        "name": "ray-worker",
        "image": shape.image,
        **container,
        "env": [
            *container["env"],
            *ray_authentication(shape.token_secret),
            _plain("RAY_gcs_rpc_server_reconnect_timeout_s", str(RECONNECT_S)),
            # Nothing else tells a container its image; a benchmark's evidence names it.
            _plain("RDMA_RAY_IMAGE", shape.image),
        ],
        "volumeMounts": [
            *container["volumeMounts"],
            {"name": "ray-logs", "mountPath": "/tmp/ray"},
            *_mounts(shape.folder),
        ],
    }
    if shape.pod.setup is not None:
        # The operator puts it in front of the `ray start` that it generates.
        worker["command"] = [shape.pod.setup]
    # An idle time is the autoscaler's: without it, the operator refuses one.
    fixed = {"replicas": shape.most, "minReplicas": shape.most, "maxReplicas": shape.most}
    ranging = {"minReplicas": shape.fewest, "maxReplicas": shape.most, "idleTimeoutSeconds": shape.idle_s}
    return {
        "groupName": WORKER_GROUP,
        **(ranging if shape.autoscaled else fixed),
        "rayStartParams": {},
        "template": {
            "metadata": {
                **_labels(shape),
                "annotations": {**kept(), **shape.pod.annotations, **_annotations(shape.folder)},
            },
            "spec": {
                **pod,
                "serviceAccountName": shape.worker_account,
                "automountServiceAccountToken": False,
                "volumes": [*pod["volumes"], {"name": "ray-logs", "emptyDir": {}}, *_volumes(shape.folder)],
                # The first container gets the devices.
                "containers": [worker],
            },
        },
    }


def kept() -> dict[str, str]:
    """A node autoscaler must not move these pods to save a node: Ray's own autoscaler decides when a worker goes."""
    return {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}


def ray_authentication(token_secret: str) -> list[dict[str, Any]]:
    """The environment by which Ray asks for a token, and presents its own."""
    reference = {"secretKeyRef": {"name": token_secret, "key": TOKEN_KEY}}
    return [_plain("RAY_AUTH_MODE", "token"), {"name": "RAY_AUTH_TOKEN", "valueFrom": reference}]


def _plain(name: str, value: str) -> dict[str, Any]:
    return {"name": name, "value": value}


def _labels(shape: RayShape) -> dict[str, Any]:
    return {"labels": dict(shape.labels)} if shape.labels else {}


def _annotations(folder: SharedFolder | None) -> dict[str, str]:
    return dict(folder.annotations) if folder else {}


def _volumes(folder: SharedFolder | None) -> list[dict[str, Any]]:
    return [{"name": "shared", **folder.volume}] if folder else []


def _mounts(folder: SharedFolder | None) -> list[dict[str, Any]]:
    return [{"name": "shared", "mountPath": folder.mount_path}] if folder else []
