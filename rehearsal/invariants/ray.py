"""Invariants of the RayCluster of every stack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infra.kubernetes.pods import ABANDONED_S, HEAD_ACCOUNT, RECONNECT_S, TOKEN_KEY, WORKER_ACCOUNT
from infra.plan import plan
from rehearsal.clouds.kind import value_at
from rehearsal.graph import Node
from rehearsal.invariants.invariant import Invariant, Stack, at, expect
from rehearsal.invariants.kubernetes import RAY_JOB, pod_marks, ray_clusters

GROUP = "spec.workerGroupSpecs.0"


def ray_needs_a_token(stack: Stack) -> Iterator[str]:
    """Ray requires the token: by the operator's option and by the environment of every container."""
    for ray in ray_clusters(stack):
        yield from expect(ray, spec__authOptions__mode="token")
        secret = at(ray, "spec.authOptions.secretName")
        if secret not in [at(node, "metadata.name") for node in stack.of("kubernetes:core/v1:Secret")]:
            yield f"{ray.name}: no Secret {secret}"
        for where, variables in _environments(ray):
            found = {variable["name"]: variable for variable in variables}
            wanted = {"name": secret, "key": TOKEN_KEY}
            if value_at(found, "RAY_AUTH_MODE.value") != "token":
                yield f"{where}: RAY_AUTH_MODE is not token"
            if value_at(found, "RAY_AUTH_TOKEN.valueFrom.secretKeyRef") != wanted:
                yield f"{where}: RAY_AUTH_TOKEN does not come from the Secret"


def autoscaled(stack: Stack) -> bool:
    """Return whether Ray's own autoscaler sets the number of workers: not in a queue, and not in a RayJob."""
    return stack.cloud.queue == "none" and stack.cloud.ray.mode == "cluster"


def ray_resizes_only_what_may_change(stack: Stack) -> Iterator[str]:
    """Ray's autoscaler is on if nothing else sets the number of workers; otherwise there are ray.maxWorkers.

    Kueue admits a cluster as a whole, and a RayJob's deadline would not cover the wait for workers if the head were
    enough.
    """
    most = stack.cloud.ray.max_workers
    for ray in ray_clusters(stack):
        yield from expect(ray, spec__enableInTreeAutoscaling=autoscaled(stack))
        if autoscaled(stack):
            continue
        yield from expect(ray, spec__autoscalerOptions=None)
        for group in at(ray, "spec.workerGroupSpecs") or []:
            sizes = [group.get(key) for key in ("replicas", "minReplicas", "maxReplicas")]
            if sizes != [most] * 3 or "idleTimeoutSeconds" in group:
                yield f"{group['groupName']}: {sizes} workers, idle for {group.get('idleTimeoutSeconds')} s"


def nothing_gives_up_before_the_capacity_does(stack: Stack) -> Iterator[str]:
    """A worker may wait for its node as long as the capacity may take."""
    capacity_wait = stack.capacity_wait_s
    name = "RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S"
    for ray in ray_clusters(stack):
        if autoscaled(stack):
            yield from expect(ray, spec__autoscalerOptions__version="v2")
            variables = {variable["name"]: variable for variable in at(ray, "spec.autoscalerOptions.env") or []}
            if int(value_at(variables, f"{name}.value") or 0) < capacity_wait:
                yield f"{ray.name}: {name} is less than {capacity_wait}"
            if value_at(variables, "RAY_AUTOSCALER_PENDING_NODE_IDLE_TIMEOUT_S.value") != str(ABANDONED_S):
                yield f"{ray.name}: a request for nodes outlives its job"
        head = {one["name"]: one for one in at(ray, "spec.headGroupSpec.template.spec.containers.0.env")}
        if int(value_at(head, "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S.value") or 0) < capacity_wait:
            yield f"{ray.name}: Ray Train gives up before {capacity_wait} s"
        worker = {one["name"]: one for one in at(ray, f"{GROUP}.template.spec.containers.0.env")}
        if int(value_at(worker, "RAY_gcs_rpc_server_reconnect_timeout_s.value") or 0) < RECONNECT_S:
            yield f"{ray.name}: a worker does not wait for its head to be rescheduled"


def workers_know_their_image(stack: Stack) -> Iterator[str]:
    """A worker has the name of its image in its environment, for the evidence of a benchmark."""
    for ray in ray_clusters(stack):
        for container in at(ray, f"{GROUP}.template.spec.containers"):
            variables = {variable["name"]: variable.get("value") for variable in container["env"]}
            if variables.get("RDMA_RAY_IMAGE") != container["image"]:
                yield f"{container['name']}: RDMA_RAY_IMAGE is {variables.get('RDMA_RAY_IMAGE')}"


def idle_workers_go(stack: Stack) -> Iterator[str]:
    """An idle worker is removed after ray.idleMinutes, and the autoscaler sets the number of workers."""
    for ray in ray_clusters(stack) if autoscaled(stack) else ():
        idle = 60 * (stack.cloud.ray.idle_minutes or 0)
        yield from expect(ray, spec__autoscalerOptions__idleTimeoutSeconds=idle)
        for group in at(ray, "spec.workerGroupSpecs") or []:
            if "replicas" in group:
                yield f"{group['groupName']}: replicas is set"
            if group.get("idleTimeoutSeconds") != idle:
                yield f"{group['groupName']}: idleTimeoutSeconds is {group.get('idleTimeoutSeconds')}"
            if (group.get("minReplicas"), group.get("maxReplicas")) != (
                stack.cloud.ray.min_workers,
                stack.cloud.ray.max_workers,
            ):
                yield f"{group['groupName']}: {group.get('minReplicas')} to {group.get('maxReplicas')} workers"


def head_takes_no_work(stack: Stack) -> Iterator[str]:
    """The head has no GPU, runs no tasks, and is on the system pool."""
    for ray in ray_clusters(stack):
        head = at(ray, "spec.headGroupSpec") or {}
        if value_at(head, "rayStartParams.num-cpus") != "0":
            yield f"{ray.name}: rayStartParams.num-cpus of the head is not 0"
        spec = value_at(head, "template.spec") or {}
        if not spec.get("nodeSelector"):
            yield f"{ray.name}: the head may run anywhere"
        if "gpu" in str(value_at(spec, "containers.0.resources")):
            yield f"{ray.name}: the head requests a GPU"


def workers_own_their_node(stack: Stack) -> Iterator[str]:
    """The first container of a worker requests every GPU of the node, with requests equal to limits."""
    for ray in ray_clusters(stack):
        for group in at(ray, "spec.workerGroupSpecs") or []:
            resources = value_at(group, "template.spec.containers.0.resources") or {}
            if not value_at(resources, "limits.nvidia") and "nvidia.com/gpu" not in (resources.get("limits") or {}):
                yield f"{group['groupName']}: no GPU is requested"
            if resources.get("requests") != resources.get("limits"):
                yield f"{group['groupName']}: requests and limits differ"


def version_is_the_images(stack: Stack) -> Iterator[str]:
    """The RayCluster has the Ray version of the stack file."""
    for ray in ray_clusters(stack):
        yield from expect(ray, spec__rayVersion=stack.cloud.ray.version)


def workers_hold_no_api_token(stack: Stack) -> Iterator[str]:
    """Workers have no token of the Kubernetes API: a job could otherwise use it."""
    for ray in ray_clusters(stack):
        for group in at(ray, "spec.workerGroupSpecs") or []:
            if value_at(group, "template.spec.automountServiceAccountToken") is not False:
                yield f"{group['groupName']}: automountServiceAccountToken is not false"


def workers_carry_what_the_fabric_needs(stack: Stack) -> Iterator[str]:
    """A worker has everything in its cloud's GpuPod: node selectors, devices, libraries, environment, setup."""
    pod = plan(stack.settings).pod
    if pod is None:
        return
    for ray in ray_clusters(stack):
        spec = at(ray, f"{GROUP}.template.spec")
        container = spec["containers"][0]
        for key, wanted in pod.pod().items():
            found = spec.get(key)
            if found != wanted and not (isinstance(wanted, list) and all(one in (found or []) for one in wanted)):
                yield f"{ray.name}: {key} is {found}"
        for key, wanted in pod.container().items():
            found = container.get(key)
            if found != wanted and not (isinstance(wanted, list) and all(one in (found or []) for one in wanted)):
                yield f"{ray.name}: {key} is {found}"
        if container.get("command") != ([pod.setup] if pod.setup else None):
            yield f"{ray.name}: command is {container.get('command')}"
        annotations = at(ray, f"{GROUP}.template.metadata.annotations")
        if any(annotations.get(key) != value for key, value in pod.annotations.items()):
            yield f"{ray.name}: annotations are {annotations}"


def pods_are_not_evicted_to_save_nodes(stack: Stack) -> Iterator[str]:
    """No node autoscaler evicts the head or a worker, and no upgrade evicts the head."""
    for ray in ray_clusters(stack):
        for where in ("spec.headGroupSpec", GROUP):
            annotations = at(ray, f"{where}.template.metadata.annotations")
            if annotations.get("cluster-autoscaler.kubernetes.io/safe-to-evict") != "false":
                yield f"{ray.name}: {where} may be evicted"
        budgets = stack.of("kubernetes:policy/v1:PodDisruptionBudget")
        if len(budgets) != 1:
            yield f"there are {len(budgets)} disruption budgets"
        for budget in budgets:
            wanted = {**pod_marks(ray), "ray.io/node-type": "head"}
            yield from expect(budget, spec__minAvailable=1, spec__selector__matchLabels=wanted)


def pods_are_complete(stack: Stack) -> Iterator[str]:
    """Head and workers have service accounts, limits, ports, logs and every volume that they mount."""
    for ray in ray_clusters(stack):
        for where, account in (("spec.headGroupSpec", HEAD_ACCOUNT), (GROUP, WORKER_ACCOUNT)):
            spec = at(ray, f"{where}.template.spec")
            container = spec["containers"][0]
            if spec.get("serviceAccountName") != account:
                yield f"{ray.name}: {where} runs as {spec.get('serviceAccountName')}"
            if container["resources"]["limits"]["memory"] != container["resources"]["requests"]["memory"]:
                yield f"{ray.name}: the memory limit of {where} is not its request"
            if not container["resources"]["requests"]["cpu"]:
                yield f"{ray.name}: {where} requests no CPU"
            mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
            volumes = {volume["name"]: set(volume) - {"name"} for volume in spec["volumes"]}
            if not mounts.keys() <= volumes.keys() or not all(volumes.values()):
                yield f"{ray.name}: {where} mounts {sorted(mounts)} of {volumes}"
            if mounts.get("ray-logs") != "/tmp/ray":
                yield f"{ray.name}: the logs of {where} have no volume"
            labels = at(ray, f"{where}.template.metadata.labels") or {}
            if ray.type == RAY_JOB and not pod_marks(ray).items() <= labels.items():
                yield f"{ray.name}: the pods of {where} lack the labels {pod_marks(ray)}"
        ports = {
            port["name"]: port["containerPort"]
            for port in at(ray, "spec.headGroupSpec.template.spec.containers.0.ports")
        }
        wanted = {"gcs-server": 6379, "dashboard": 8265, "client": 10001, "as-metrics": 44217, "dash-metrics": 44227}
        if ports != wanted:
            yield f"{ray.name}: the head's ports are {ports}"
        yield from expect(ray, spec__headGroupSpec__serviceType="ClusterIP")
        if (at(ray, "metadata.annotations") or {}).get("pulumi.com/skipAwait") != "true":
            yield f"{ray.name}: `up` would wait for every worker"
        if not autoscaled(stack):
            continue
        if (at(ray, "metadata.annotations") or {}).get("pulumi.com/patchForce") != "true":
            yield f"{ray.name}: after the autoscaler's first write, `up` could no longer change it"
        yield from expect(ray, spec__autoscalerOptions__upscalingMode="Default")
        resources = at(ray, "spec.autoscalerOptions.resources")
        if resources["limits"] != resources["requests"] or set(resources["limits"]) != {"cpu", "memory"}:
            yield f"{ray.name}: the autoscaler's resources are {resources}"


def _environments(ray: Node) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    if at(ray, "spec.enableInTreeAutoscaling"):
        yield "autoscaler", at(ray, "spec.autoscalerOptions.env") or []
    yield "head", at(ray, "spec.headGroupSpec.template.spec.containers.0.env") or []
    for group in at(ray, "spec.workerGroupSpecs") or []:
        yield group["groupName"], value_at(group, "template.spec.containers.0.env") or []


INVARIANTS: tuple[Invariant, ...] = (
    ray_needs_a_token,
    ray_resizes_only_what_may_change,
    nothing_gives_up_before_the_capacity_does,
    workers_know_their_image,
    idle_workers_go,
    head_takes_no_work,
    workers_own_their_node,
    workers_carry_what_the_fabric_needs,
    version_is_the_images,
    workers_hold_no_api_token,
    pods_are_not_evicted_to_save_nodes,
    pods_are_complete,
)
