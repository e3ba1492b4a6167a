"""Further groups of Ray workers: without GPUs on every target, and with other GPUs on a cluster of the user's."""

from __future__ import annotations

from typing import Any

import pytest

from infra.catalog.names import CPU_GROUP, GPU, NODE_GROUP, OTHER_GROUP, WORKER_GROUP
from infra.kubernetes.queue_objects import cluster_queue
from infra.kubernetes.time_limit_objects import time_limit
from infra.kubernetes.workload_objects import workload
from infra.outputs import Outputs, cluster_outputs, job_stack
from infra.plan import ray_args
from infra.settings import ClusterSettings, parse
from tests.unit.stacks import EKS, GKE, KUBERNETES, changed
from workloads.gang import placement

STACKS = {
    "gke": GKE,
    "eks": EKS,
    "kubernetes": changed(KUBERNETES, {"nodes.headSelector": ["pool=cpu"], "nodes.headTolerations": ["team=ml"]}),
}
MODES: dict[str, dict[str, Any]] = {
    "cluster": {},
    "job": {"ray.entrypoint": "python train.py"},
    "service": {"service.application": "app:app", "service.deployment": "Model"},
}
TWO = {"ray.cpuWorkers": 2, "ray.cpuWorkerCpus": 3, "ray.cpuWorkerMemoryGib": 8}


def settings_of(stack: str, changes: dict[str, Any]) -> ClusterSettings:
    settings = parse(changed(STACKS[stack], TWO | changes))
    assert isinstance(settings, ClusterSettings)
    return settings


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("mode", MODES)
def test_second_group_is_on_the_nodes_of_the_head_and_has_no_devices(stack: str, mode: str) -> None:
    settings = settings_of(stack, {"ray.mode": mode, **MODES[mode], "ray.env": ["A=b"]})
    spec = workload(ray_args(settings, "a-ray"))["spec"]
    cluster = spec.get("rayClusterSpec") or spec.get("rayClusterConfig") or spec
    gpus, cpus = cluster["workerGroupSpecs"]
    head, pod = (part["template"]["spec"] for part in (cluster["headGroupSpec"], cpus))
    assert (cpus["groupName"], cpus["maxReplicas"]) == ("cpu-group", 2)
    assert cpus["minReplicas"] == (2 if mode == "job" else 0)
    for place in ("nodeSelector", "tolerations"):
        assert pod.get(place) == head.get(place)
    [container] = pod["containers"]
    # Each kind of pod is tried in a user's cluster, by the name of its container.
    assert container["name"] != gpus["template"]["spec"]["containers"][0]["name"]
    amounts = {"cpu": "3", "memory": "8Gi"}
    assert container["resources"] == {"requests": amounts, "limits": amounts}
    own = {"A", "RAY_AUTH_TOKEN", "RAY_DEDUP_LOGS", "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "RDMA_RAY_IMAGE"}
    assert own <= {each["name"] for each in container["env"]}
    worker = gpus["template"]["spec"]
    for field in ("serviceAccountName", "terminationGracePeriodSeconds"):
        assert pod[field] == worker[field]
    assert container.get("readinessProbe") == worker["containers"][0].get("readinessProbe")
    assert "hostPath" not in str(pod)


OTHERS = {
    "nodes.selector": ["pool=h100"],
    "otherNodes.max": 3,
    "otherNodes.gpus": 2,
    "otherNodes.selector": ["pool=l4"],
    "otherNodes.tolerations": ["team=ml"],
}


@pytest.mark.parametrize("mode", ["cluster", "job"])
def test_other_nodes_are_a_group_without_the_fabric(mode: str) -> None:
    settings = settings_of("kubernetes", {"fabric": "rdma", "ray.mode": mode, **MODES[mode], **OTHERS})
    args = ray_args(settings, "a-ray")
    spec = workload(args)["spec"]
    groups = (spec.get("rayClusterSpec") or spec)["workerGroupSpecs"]
    assert len(groups) == len(args.fewest)
    gpus, cpus, others = (group["template"]["spec"] for group in groups)
    assert groups[2]["minReplicas"] == (3 if mode == "job" else 0)
    assert groups[2]["maxReplicas"] == 3
    assert others["nodeSelector"] == {"pool": "l4"}
    assert {each["key"] for each in others["tolerations"]} == {GPU, "team"}
    [container] = others["containers"]
    assert container["resources"]["limits"] == {"cpu": "4", "memory": "16Gi", GPU: "2"}
    assert ["rdma/ib" in str(spec) for spec in (gpus, cpus, others)] == [True, False, False]
    assert len({group["containers"][0]["name"] for group in (gpus, cpus, others)}) == 3


def test_autoscaler_knows_the_groups_that_tasks_name() -> None:
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

    spec = workload(ray_args(settings_of("kubernetes", OTHERS), "a-ray"))["spec"]
    seen = _derive_autoscaling_config_from_ray_cr({"metadata": {"name": "a-ray", "namespace": "ray"}, "spec": spec})
    groups = {name: kind["labels"] for name, kind in seen["available_node_types"].items() if name != "headgroup"}
    assert groups == {name: {NODE_GROUP: name} for name in (WORKER_GROUP, CPU_GROUP, OTHER_GROUP)}
    # A program in a pod imports nothing of infra.
    assert (placement.OTHER_GROUP, placement.GROUP) == (OTHER_GROUP, NODE_GROUP)


def test_outputs_have_the_groups_whose_workers_are_no_nodes_of_the_stack() -> None:
    settings = settings_of("kubernetes", OTHERS)
    nodes = Outputs.model_validate(cluster_outputs(settings, "a-ray", None, "token", context="c")).nodes
    assert {(group.group, group.max, group.gpus, group.cpus) for group in nodes.others} == {
        (CPU_GROUP, 2, 0, 3),
        (OTHER_GROUP, 3, 2, 4),
    }
    # The template of a job's pods lacks them: a change would replace the job.
    assert "others" not in job_stack(settings, "a-ray")


@pytest.mark.parametrize("stack", ["gke", "eks"])
def test_quota_of_the_cpu_nodes_includes_them_and_fewer_heads(stack: str) -> None:
    queue = ray_args(settings_of(stack, {"queue": "kueue", "cluster.systemNodes": 4}), "a-ray").queue
    assert queue is not None
    # Of four nodes with room for one head each, two have a CPU worker.
    assert queue.heads == 2
    [group] = cluster_queue(queue)["spec"]["resourceGroups"]
    amounts = {each["name"]: each["nominalQuota"] for each in group["flavors"][0]["resources"]}
    assert (amounts["cpu"], amounts["memory"]) == (str(2 * 4 + 2 * 3), f"{2 * 16 + 2 * 8}Gi")


def test_time_limit_ends_both_groups() -> None:
    *_, cron_job = time_limit(ray_args(settings_of("gke", {"nodes.maxHours": 3}), "a-ray"))
    [container] = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    [patch] = [each for each in container["args"] if each.startswith("--patch=")]
    assert '"path": "/spec/workerGroupSpecs/1/replicas", "value": 0' in patch
