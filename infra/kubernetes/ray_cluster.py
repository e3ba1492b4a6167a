"""Specs of RayCluster and RayJob, and of the clusters of a RayService: Ray under KubeRay. Imports no Pulumi.

A cluster is a head without GPUs, a group of workers that own their nodes, and perhaps one of workers without GPUs and
one on nodes with other GPUs. The specs omit what the operator adds (probes, ports for metrics, the address of the
dashboard).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from infra.catalog.fabrics import Variable
from infra.catalog.names import (
    AUTOSCALER_METRICS_PORT,
    CLIENT_PORT,
    CPU_GROUP,
    DASHBOARD_METRICS_PORT,
    DASHBOARD_PORT,
    GCS_PORT,
    NODE_GROUP,
    OTHER_GROUP,
    WORKER_GROUP,
)
from infra.kubernetes.api_access import API_MOUNT, API_VOLUME, PLACE, check_node, read_place
from infra.kubernetes.monitoring_objects import with_exporter
from infra.kubernetes.pods import (
    ABANDONED_S,
    EVERY_LINE,
    RECONNECT_S,
    RayArgs,
    cpu_worker_resources,
    head_resources,
    on_cpu_nodes,
    ray_authentication,
    ray_template,
    variable,
)
from infra.kubernetes.queue_args import AUTOSCALER
from infra.kubernetes.queue_objects import ELASTIC_ANNOTATION
from infra.kubernetes.ray_service import IDLE_NODE_S, PYTHON_PATH, ready_when_serving, serving, serving_volumes
from infra.kubernetes.start_once import check_of_head, entry_point
from infra.outputs import JOB_STACK, job_stack

if TYPE_CHECKING:
    from infra.fabric import GpuPod

STOP_S = 30
"""Seconds to stop Ray's processes, the last of those that a worker has after its SIGTERM."""

KEEP_S = 300
"""Seconds that an ended RayJob's cluster and its log are kept without a queue. Its nodes cost money meanwhile; results
belong in the shared folder (our choice, 2026-11)."""

KEEP_IN_QUEUE_S = 0
"""The same in a queue. Kueue frees the quota when the RayJob is Complete or Failed (pkg/controller/jobs/rayjob,
Finished, 0.19.2), even if its pods still hold nodes, which would block the next workload. Kueue's webhook requires
shutdownAfterJobFinishes, with which KubeRay accepts no rule that ends the workers before the head
(ray-operator/controllers/ray/utils/validation.go, 1.6.2). The log is lost except for the status message, which has the
exit of a failed entry point and the end of its output (Ray 2.60: dashboard/modules/job/job_supervisor.py)."""


def checkpoint_s(args: RayArgs) -> int:
    """Return the seconds that the work on a worker has after the notice of its end, for a checkpoint.

    An idle worker ends at once. `ray start`, process 1 of the container, gets SIGTERM and marks its node as draining
    with this deadline, of which Ray Train informs the work (Ray docs, train/user-guides/fault-tolerance, read 2026-11).
    """
    return args.notice_s - STOP_S


def ray_job_spec(args: RayArgs) -> dict[str, Any]:
    """Return the spec of a RayJob.

    It has no `activeDeadlineSeconds`, which would include the wait for nodes (`infra.kubernetes.time_limit_objects`
    adds one to end it).
    """
    return {
        "entrypoint": entry_point(args),
        # The operator submits the entry point, with the token. The default, a submitter pod, would need its own node,
        # token and admission.
        "submissionMode": "HTTPMode",
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": KEEP_S if args.settings.queue == "none" else KEEP_IN_QUEUE_S,
        # Limit until every worker runs (from admission, in a queue). Then the RayJob fails instead of waiting forever.
        "preRunningDeadlineSeconds": args.settings.node_wait_s,
        # A retry would create another cluster and wait for nodes again. A new RayJob resumes from checkpoints.
        "backoffLimit": 0,
        "rayClusterSpec": ray_cluster_spec(args),
    }


def ray_cluster_spec(args: RayArgs) -> dict[str, Any]:
    """Return the spec of a RayCluster, or of the clusters of a RayJob or RayService."""
    # In a queue, `suspend` is Kueue's.
    limited = args.autoscaled and not args.queued and args.settings.nodes.max_hours
    return {
        "rayVersion": args.settings.ray.version,
        # `infra.kubernetes.time_limit_objects` suspends it; the next `up` with a refresh sees that and resumes it.
        **({"suspend": False} if limited else {}),
        "enableInTreeAutoscaling": args.autoscaled,
        # Each container's environment requires the token too, independent of the operator's version. Without the mode,
        # KubeRay creates the Secret and leaves the cluster open.
        "authOptions": {"mode": "token", "secretName": args.token_secret},
        **({"autoscalerOptions": _autoscaler(args)} if args.autoscaled else {}),
        "headGroupSpec": _head(args),
        "workerGroupSpecs": [
            _workers(args),
            *([_cpu_workers(args)] if args.settings.ray.cpu_workers else []),
            *([_other_workers(args, args.other_pod)] if args.other_pod is not None else []),
        ],
    }


def _autoscaler(args: RayArgs) -> dict[str, Any]:
    needs = {"cpu": str(AUTOSCALER[0]), "memory": f"{AUTOSCALER[1]}Gi"}
    return {
        "version": "v2",
        "upscalingMode": "Default",
        "idleTimeoutSeconds": _idle_s(args),
        "resources": {"requests": needs, "limits": needs},
        "volumeMounts": [API_MOUNT],
        "env": [
            # After this time Ray deletes a pod without a node, and loses its place in the cloud's queue (kuberay #4226,
            # ray PR #60392).
            variable("RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S", str(args.settings.node_wait_s)),
            variable("RAY_AUTOSCALER_PENDING_NODE_IDLE_TIMEOUT_S", str(ABANDONED_S)),
            *ray_authentication(args.token_secret),
        ],
    }


def _head(args: RayArgs) -> dict[str, Any]:
    ports = {
        "gcs-server": GCS_PORT,
        "dashboard": DASHBOARD_PORT,
        "client": CLIENT_PORT,
        "as-metrics": AUTOSCALER_METRICS_PORT,
        "dash-metrics": DASHBOARD_METRICS_PORT,
    }
    service, job = (args.settings.ray.mode == mode for mode in ("service", "job"))
    requests = head_resources(args.settings.ray)
    container = {
        "name": "ray-head",
        "image": args.settings.ray.image,
        "ports": [{"containerPort": port, "name": name} for name, port in ports.items()],
        "env": [
            *ray_authentication(args.token_secret),
            EVERY_LINE,
            *(variable(extra.name, extra.value) for extra in args.head_environment),
            # Ray Train gives up on a gang after 60 s and starts over. Drivers run on the head and inherit this.
            variable("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", str(args.settings.node_wait_s)),
            *([variable(JOB_STACK, job_stack(args.settings, args.name))] if job else []),
        ],
        "resources": {"requests": requests, "limits": {"memory": requests["memory"]}},
        **({"command": [PYTHON_PATH]} if service else {}),
    }
    volumes = [
        # For Ray's autoscaler, or for the check that the entry point starts once.
        *([API_VOLUME] if args.autoscaled or job else []),
        *(serving_volumes(args) if service else []),
    ]
    preparation = args.folder.preparation(args.settings.ray.image) if args.folder else {}
    if job:
        preparation["initContainers"] = [*preparation.get("initContainers", ()), check_of_head(args)]
    spec = {
        "serviceAccountName": args.head_account,
        "automountServiceAccountToken": False,
        **({"volumes": volumes} if volumes else {}),
        **_gates(args),
        **on_cpu_nodes(args),
        **preparation,
    }
    return {
        "serviceType": "ClusterIP",
        # No task, actor or replica runs on the head: it has no GPU, and its loss ends every job.
        "rayStartParams": {"num-cpus": "0"},
        "template": ray_template(
            serving(container) if service else container,
            spec,
            ray=args.settings.ray,
            folder=args.folder and args.folder.of_head,
            annotations={},
            labels=_labels(args),
        ),
    }


def _workers(args: RayArgs) -> dict[str, Any]:
    """Return the group of workers that own a GPU node."""
    ray, pod = args.settings.ray, args.pod
    size, container = (ray.min_workers, ray.max_workers), {"name": "ray-worker", **pod.container()}
    spec = pod.pod()
    first = [*([read_place(args)] if args.topology else []), *([check_node(args)] if ray.check != "off" else [])]
    if first:
        spec |= {"volumes": [*spec.get("volumes", ()), API_VOLUME], "initContainers": first}
    group = _group(args, WORKER_GROUP, size, container, spec, args.worker_environment, pod)
    group["template"] = with_exporter(args, group["template"])
    return group | ({"rayStartParams": {"labels-file": PLACE}} if args.topology else {})


def _cpu_workers(args: RayArgs) -> dict[str, Any]:
    """Return the group of workers without GPUs, on nodes like the head's."""
    requests, size = cpu_worker_resources(args.settings.ray), (0, args.settings.ray.cpu_workers)
    container = {"name": "ray-worker-cpu", "env": [], "resources": {"requests": requests, "limits": requests}}
    return _group(args, CPU_GROUP, size, container, on_cpu_nodes(args), args.head_environment)


def _other_workers(args: RayArgs, pod: GpuPod) -> dict[str, Any]:
    """Return the group of workers on nodes with other GPUs."""
    container = {"name": "ray-worker-other", **pod.container()}
    return _group(args, OTHER_GROUP, (0, args.other_max), container, pod.pod(), args.worker_environment, pod)


def _group(
    args: RayArgs,
    name: str,
    size: tuple[int, int],
    container: dict[str, Any],
    spec: dict[str, Any],
    environment: Sequence[Variable],
    pod: GpuPod | None = None,
) -> dict[str, Any]:
    """Return a group of workers; `container` and `spec` have what is special to its pods, and `pod` its devices."""
    (fewest, most), image, service = size, args.settings.ray.image, args.settings.ray.mode == "service"
    setup = [f"{pod.setup} || exit 1"] if pod is not None and pod.setup is not None else []
    commands = [*setup, *([PYTHON_PATH] if service else [])]
    worker = {
        **container,
        "image": image,
        "env": [
            *container["env"],
            *ray_authentication(args.token_secret),
            EVERY_LINE,
            variable("RAY_gcs_rpc_server_reconnect_timeout_s", str(RECONNECT_S)),
            variable("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", str(checkpoint_s(args))),
            *(variable(extra.name, extra.value) for extra in environment),
            # A benchmark records its image as evidence, which a container cannot find out otherwise.
            variable("RDMA_RAY_IMAGE", image),
        ],
        # The operator joins it with the `ray start` that it generates by `&&` and `;` (ray-operator/controllers/ray/
        # common/pod.go, 1.6.2), so after a failure that does not exit, Ray would run without the fabric's settings.
        **({"command": ["; ".join(commands)]} if commands else {}),
        **({"readinessProbe": ready_when_serving()} if service else {}),
    }
    spec = {
        **spec,
        **_gates(args),
        "serviceAccountName": args.worker_account,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": args.notice_s,
        **({"volumes": [*spec.get("volumes", ()), *serving_volumes(args)]} if service else {}),
    }
    # KubeRay ignores a change of these numbers in a RayService (1.6.2: controllers/ray/utils/util.go,
    # GenerateHashWithoutReplicasAndWorkersToDelete). As an annotation, it starts another cluster, like other changes.
    counted = {"rdma-ray/workers": f"{fewest}-{most}"} if service else {}
    return {
        "groupName": name,
        # Ray sets this label on a node that has started; the autoscaler has to know it before (Ray 2.60:
        # autoscaler/_private/kuberay/autoscaling_config.py), or no node is added for a task that names the group.
        "labels": {NODE_GROUP: name},
        **_size(args, fewest, most),
        "rayStartParams": {},
        "template": ray_template(
            serving(worker) if service else worker,
            spec,
            ray=args.settings.ray,
            folder=args.folder,
            annotations={**(pod.annotations if pod is not None else {}), **counted},
            labels=_labels(args),
        ),
    }


def _size(args: RayArgs, fewest: int, most: int) -> dict[str, Any]:
    """Return the size of a group: with an autoscaler from `fewest` to `most`, which the operator then sets."""
    if not args.autoscaled:
        # The operator rejects an idle timeout without an autoscaler.
        return {"replicas": most, "minReplicas": most, "maxReplicas": most}
    size = {"minReplicas": fewest, "maxReplicas": most, "idleTimeoutSeconds": _idle_s(args)}
    # Without a number, Kueue would reserve quota for one worker (pkg/controller/jobs/raycluster/common.go, 0.19.2).
    return size | ({"replicas": fewest} if args.elastic else {})


def _gates(args: RayArgs) -> dict[str, Any]:
    """Return the gate that Kueue's webhook adds to the pods of an elastic cluster; set here, it is no difference."""
    return {"schedulingGates": [{"name": ELASTIC_ANNOTATION}]} if args.elastic else {}


def _idle_s(args: RayArgs) -> int:
    return IDLE_NODE_S if args.settings.ray.mode == "service" else 60 * args.settings.ray.idle_minutes


def _labels(args: RayArgs) -> dict[str, str]:
    """Return the labels of the pods: of a RayCluster, the operator's own identify them."""
    return {} if args.settings.ray.mode == "cluster" else args.labels
