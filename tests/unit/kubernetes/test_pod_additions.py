"""Variables, Secrets, volumes and the size of the head, as a stack file adds them to Ray's pods."""

from __future__ import annotations

from typing import Any

import pytest

from infra.kubernetes.queue_objects import cluster_queue
from infra.kubernetes.workload_objects import workload
from infra.nccl_job import Sweep, nccl_job
from infra.plan import ray_args
from infra.settings import CloudSettings, parse
from infra.settings.pods import RESERVED
from tests.unit.stacks import EKS, GKE, changed
from workloads.nccl.job_manifest import manifests

ADDED: dict[str, Any] = {
    "storage.bucket": "ours",
    "ray.env": ["NCCL_DEBUG=WARN", "DATA=a=b"],
    "ray.secrets": ["huggingface", "registry=/secrets/registry"],
    "ray.volumes": ["datasets=/datasets"],
    "ray.pullSecrets": ["private"],
    "ray.priorityClass": "training",
}
MODES: dict[str, dict[str, Any]] = {
    "cluster": {},
    "job": {"ray.entrypoint": "python train.py"},
    "indexed-job": {"ray.entrypoint": "python train.py"},
    "service": {"service.application": "app:app", "service.deployment": "Model"},
}


def pods(stack: dict[str, Any], mode: str, changes: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the specs of the pods of a stack, of the head first."""
    settings = parse(changed(stack, {"ray.mode": mode, **MODES[mode], **changes}))
    assert isinstance(settings, CloudSettings)
    spec = workload(ray_args(settings, "a-ray"))["spec"]
    if mode == "indexed-job":
        return [spec["template"]["spec"]]
    cluster = spec.get("rayClusterSpec") or spec.get("rayClusterConfig") or spec
    return [group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]


@pytest.mark.parametrize("stack", [GKE, EKS], ids=["gke", "eks"])
@pytest.mark.parametrize("mode", MODES)
def test_every_pod_of_ray_gets_them_before_what_the_stack_sets(stack: dict[str, Any], mode: str) -> None:
    for before, after in zip(pods(stack, mode, {"storage.bucket": "ours"}), pods(stack, mode, ADDED), strict=True):
        old, new = before["containers"][0], after["containers"][0]
        assert new["env"] == [
            {"name": "NCCL_DEBUG", "value": "WARN"},
            {"name": "DATA", "value": "a=b"},
            *old["env"],
        ]
        assert new["envFrom"] == [{"secretRef": {"name": "huggingface"}}]
        added = [mount for mount in new["volumeMounts"] if mount not in old["volumeMounts"]]
        sources = {volume["name"]: volume for volume in after["volumes"]}
        assert [(mount["mountPath"], mount.get("readOnly", False)) for mount in added] == [
            ("/secrets/registry", True),
            ("/datasets", False),
        ]
        secret, claim = (sources[mount["name"]] for mount in added)
        assert secret["secret"] == {"secretName": "registry"}
        assert claim["persistentVolumeClaim"] == {"claimName": "datasets"}
        assert after["imagePullSecrets"] == [{"name": "private"}]
        assert after["priorityClassName"] == "training"


@pytest.mark.parametrize("stack", [GKE, EKS], ids=["gke", "eks"])
@pytest.mark.parametrize("mode", MODES)
def test_no_setting_can_replace_a_variable_of_the_stack(stack: dict[str, Any], mode: str) -> None:
    """`RESERVED` has every variable that the pods of a stack set; a new one has to be added there."""
    for pod in pods(stack, mode, {"storage.bucket": "ours"}):
        names = {each["name"] for container in pod["containers"] for each in container["env"]}
        assert {name for name in names if not RESERVED.fullmatch(name)} == set()


def test_larger_head_has_a_larger_quota() -> None:
    settings = parse(changed(GKE, {"queue": "kueue", "ray.headCpus": 5, "ray.headMemoryGib": 20}))
    assert isinstance(settings, CloudSettings)
    args = ray_args(settings, "a-ray")
    head = workload(args)["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"]
    assert head == {"requests": {"cpu": "5", "memory": "20Gi"}, "limits": {"memory": "20Gi"}}
    assert args.queue is not None
    (group,) = cluster_queue(args.queue)["spec"]["resourceGroups"]
    system = {each["name"]: each["nominalQuota"] for each in group["flavors"][0]["resources"]}
    assert (system["cpu"], system["memory"]) == (str(5 * args.queue.heads), f"{20 * args.queue.heads}Gi")


def test_image_of_an_nccl_job_may_be_private() -> None:
    job = nccl_job(parse(changed(EKS, {"ray.pullSecrets": ["private"]})), Sweep())
    (template,) = (each["spec"]["template"] for each in manifests(job) if each["kind"] == "Job")
    assert template["spec"]["imagePullSecrets"] == [{"name": "private"}]


def test_messages_show_no_value_of_a_variable() -> None:
    from tests.unit.stacks import problems_of

    for wrong in (["A=hidden", "A=hidden"], "A=hidden", {"A": "hidden"}, ["HF_TOKEN=hidden"], ["hidden value"]):
        problems = problems_of(changed(GKE, {"ray.env": wrong, "nodes.max": "many"}))
        assert {problem.settings[0] for problem in problems} == {"ray.env", "nodes.max"}
        assert all("=hidden" not in str(problem) and "'hidden'" not in str(problem) for problem in problems)
