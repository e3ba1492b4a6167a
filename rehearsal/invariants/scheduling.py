"""Pods and the nodes that they run on: selectors, taints, fit, numbers, and how long each side waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import yaml

from infra.catalog.capacity import EKS_CAPACITIES, GKE_CAPACITIES, EksCapacity, GkeCapacity
from infra.catalog.machines import CATALOG
from rehearsal.clouds.kubernetes.quantities import amount
from rehearsal.engine.kind import value_at
from rehearsal.invariants.invariant import Stack, at, differs
from rehearsal.invariants.placement import (
    Pods,
    pods_of,
    pools,
    ray_spec,
    ray_workloads,
    selected,
    variable,
    worker_pods,
    worker_pools,
    workloads,
)


def selectors_match_nodes(stack: Stack) -> Iterator[str]:
    """Pods select nodes of the stack: workers only pools of workers, daemons all of these, and all others only the CPU
    nodes; a ComputeClass lists every pool of workers."""
    for pods in [] if stack.on_users_cluster else _every_pods(stack):
        found = selected(stack, pods)
        if pods.daemon and not {pool.name for pool in worker_pools(stack)} <= {pool.name for pool in found}:
            yield f"{pods} run only on {[pool.name for pool in found]}"
        elif not pods.daemon and (not found or any(pool.workers != pods.workers for pool in found)):
            yield f"{pods} select {[pool.name for pool in found]}"
    for node in stack.of("ComputeClass"):
        listed = [pool for priority in at(node, "spec.priorities") for pool in priority["nodepools"]]
        yield from differs(f"{node.name} lists", sorted(listed), sorted(pool.name for pool in worker_pools(stack)))


def taints_keep_others_away(stack: Stack) -> Iterator[str]:
    """Pools of workers alone have taints; workers and daemons tolerate all of them, and other pods none."""
    for pool in pools(stack):
        if pool.workers != bool(pool.taints):
            yield f"{pool.name} has the taints {dict(pool.taints)}"
        for pods in _every_pods(stack):
            # NVIDIA's chart tolerates its own taint by default.
            default = pods.daemon and pods.owner.type.endswith(":Release") and "tolerations" not in pods.spec
            if (pods.workers or pods.daemon) and pool in selected(stack, pods) and not default:
                yield from differs(f"{pods} on {pool.name}", pods.tolerated(pool.taints), set(pool.taints))
            elif not pods.workers and not pods.daemon:
                yield from differs(f"{pods} on {pool.name}", pods.tolerated(pool.taints), set())


def gpu_pods_take_their_node_whole(stack: Stack) -> Iterator[str]:
    """A pod with GPUs requests all GPUs of its node, no more CPUs and memory than the machine has, no less than its
    limits, and shared memory within that."""
    for pods in worker_pods(stack):
        resources = pods.containers[0]["resources"]
        yield from differs(f"{pods}: requests", resources.get("requests"), resources.get("limits"))
        shared = sum(amount(value_at(volume, "emptyDir.sizeLimit") or 0) for volume in pods.volumes)
        for pool in selected(stack, pods):
            machine = CATALOG[pool.machine]
            yield from differs(f"{pods}: GPUs", pods.gpus, pool.gpus)
            cpus, memory = machine.vcpus or 0, (machine.memory_mib or 0) * 2**20
            if not shared < pods.asks["memory"] <= memory or not 0 < pods.asks["cpu"] <= cpus:
                yield f"{pods} request {dict(pods.asks)} on {pool.machine}, {shared} shared"


def nodes_are_what_was_asked_for(stack: Stack) -> Iterator[str]:
    """Each capacity of the stack file has a pool of its machine and its largest number, and Ray has ray.maxWorkers pods
    with GPUs, no more than nodes."""
    if stack.on_users_cluster:
        return
    nodes, workers = stack.cloud.nodes, stack.cloud.ray.max_workers
    found = [(pool.machine, pool.gpus, pool.most) for pool in worker_pools(stack)]
    yield from differs(
        "pools", found, [(nodes.machine, CATALOG[nodes.machine].gpus, nodes.max)] * len(nodes.capacities)
    )
    for pods in worker_pods(stack):
        if not pods.count == workers <= min((pool.most for pool in selected(stack, pods)), default=0):
            yield f"{pods}: {pods.count} pods for ray.maxWorkers {workers}"


def nothing_gives_up_before_the_capacity_does(stack: Stack) -> Iterator[str]:
    """Waits for nodes last as long as the slowest capacity may take: Ray, jobs, Kueue's requests for queued
    nodes, and, for others, its eviction of pods that are not ready; a user says for how long that may be."""
    every: Mapping[str, EksCapacity | GkeCapacity] = {**EKS_CAPACITIES}
    every = every if stack.cluster.target == "eks" else GKE_CAPACITIES
    ways = [] if stack.on_users_cluster else [every[name] for name in stack.cloud.nodes.capacities]
    longest = 3600 * max(way.wait_hours for way in ways) if ways else stack.cluster.node_wait_s
    waits = dict(_waits(stack))
    for release in stack.charts("kueue"):
        later = [3600 * way.wait_hours for way in ways if not getattr(way, "queued", False)]
        kueue = yaml.safe_load(at(release, "values.managerConfig.controllerManagerConfigYaml"))
        ready = int(value_at(kueue, "waitForPodsReady.timeout").removesuffix("s"))
        # Images are pulled after the wait.
        waits[release.name] = longest if ready > max(later, default=0) else ready
    yield from (
        f"{name} gives up after {seconds} s of {longest}" for name, seconds in waits.items() if seconds < longest
    )


def _every_pods(stack: Stack) -> list[Pods]:
    """Return the pods of everything that runs pods."""
    owners = [*workloads(stack), *stack.of("DaemonSet", "Release")]
    return [pods for owner in owners for pods in pods_of(owner)]


def _waits(stack: Stack) -> Iterator[tuple[str, float]]:
    """Yield what waits for nodes, with its seconds."""
    for node in stack.of("RayJob"):
        yield node.name, at(node, "spec.preRunningDeadlineSeconds") or 0
    for node in stack.of("Job"):
        words = at(node, "spec.template.spec.containers.0.command")
        yield node.name, int(next(word for word in words if word.startswith("--wait-s=")).removeprefix("--wait-s="))
    for node in ray_workloads(stack):
        spec, own = ray_spec(node), "RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S"
        head = value_at(spec, "headGroupSpec.template.spec.containers.0")
        yield "Ray Train", int(variable(head, "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S") or 0)
        if spec.get("enableInTreeAutoscaling"):
            yield "Ray's autoscaler", int(variable(spec["autoscalerOptions"], own) or 0)
    for node in stack.of("ProvisioningRequestConfig"):
        retry = at(node, "spec.retryStrategy")
        base, most = retry["backoffBaseSeconds"], retry["backoffMaxSeconds"]
        # The first retries are faster than the later ones; the request itself takes time, too.
        yield node.name, sum(min(base * 2 ** min(n, 30), most) for n in range(retry["backoffLimitCount"])) / 0.9
