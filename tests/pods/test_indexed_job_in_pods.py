"""The eks stack's Indexed Job in real pods: they find each other, form a Ray cluster, run the entry point and end.

Real: API server, Job controller, scheduler, kubelet, containerd, CoreDNS, the scripts of the ConfigMap, Ray. Stand-ins:
GPUs and EFA devices are numbers of the node; a folder of this machine is the Lustre file system; the image is made of
this environment (its Ray is 2.60, that of AWS' image 2.58); CPUs and memory are scaled, as the run prints.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.pods.jobs import running
from tests.pods.scene import Scene
from tests.pods.stack_on import NAMESPACE, StackOn
from tools.kubernetes.api import Json
from tools.kubernetes.scaling import Scale

NODES = "import ray; ray.init(); print('NODES', sum(node['Alive'] for node in ray.nodes()), flush=True)"
FOREVER = f"{NODES}; import time; time.sleep(600)"
PEER_LOST = 73
Stack = Callable[..., StackOn]


@pytest.fixture
def job(scene: Scene, tmp_path: Path) -> Iterator[Callable[[str, bool], StackOn]]:
    """Makes the stack with an entry point and, if asked, the shared folder; not applied. It is gone after the test."""
    made: list[StackOn] = []
    shared = tmp_path / "shared"
    shared.mkdir()

    def make(code: str, storage: bool) -> StackOn:
        ray = {"mode": "indexed-job", "entrypoint": shlex.join(running(code))}
        changes = {"ray": ray, "nodes": {"max": 2}} | ({"storage": {"bucket": "mine"}} if storage else {})
        scale = Scale(shared=shared)
        made.append(StackOn(scene, "eks", scale, changes=changes))
        return made[0]

    yield make
    for stack in made:
        print(stack.describe())
        for each in stack.pods():
            with contextlib.suppress(subprocess.CalledProcessError):
                print(stack.log(each))
        stack.delete()
        for node in ("gpu-0", "gpu-1"):
            stack.open(node, True)


def ended(stack: StackOn, within_s: float = 240) -> Json:
    """The Job once it has a verdict: its conditions, by type."""
    name = stack.one("Job")["metadata"]["name"]

    def verdict() -> Json | None:
        body = stack.api.get("batch/v1", "Job", name, NAMESPACE)
        conditions = {
            each["type"]: each for each in (body or {})["status"].get("conditions", ()) if each["status"] == "True"
        }
        return conditions if {"Complete", "Failed"} & conditions.keys() else None

    return stack.api.until(f"Job {name} to end", verdict, within_s)


def pod(stack: StackOn, index: int) -> Json | None:
    """The pod with this index."""
    found = stack.pods(f"batch.kubernetes.io/job-completion-index={index}")
    return found[0] if found else None


@contextmanager
def held(stack: StackOn, *nodes: str) -> Iterator[None]:
    """Nodes that take no pod for a while."""
    for node in nodes:
        stack.open(node, False)
    yield
    for node in nodes:
        stack.open(node, True)


def until_said(stack: StackOn, index: int, word: str, within_s: float = 180) -> None:
    """Wait until a pod has printed a word."""

    def said() -> bool | None:
        body = pod(stack, index)
        started = body and any("running" in each["state"] for each in body["status"].get("containerStatuses", ()))
        return True if started and word in stack.log(body or {}) else None

    stack.api.until(f"pod {index} to print {word}", said, within_s)


def test_pods_find_the_head_by_its_name_though_one_is_late(job: Callable[[str, bool], StackOn]) -> None:
    """One GPU node opens only when the first pod has been looking for a while: both meet by the head's stable host
    name, as CoreDNS and the headless Service give it, and the entry point sees two nodes."""
    stack = job(NODES, False)
    with held(stack, "gpu-1"):
        stack.apply()
        running_pod = stack.api.until(
            "one of the pods to run",
            lambda: next((each for each in stack.pods() if each["status"]["phase"] == "Running"), None),
            120,
        )
        index = int(running_pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])
        until_said(stack, index, "[pod ")
    assert "Complete" in ended(stack)
    first = pod(stack, 0)
    assert first is not None
    assert "NODES 2" in stack.log(first)


def test_a_restarted_pod_ends_the_job_with_its_reason(job: Callable[[str, bool], StackOn]) -> None:
    """A worker's pod is killed while the entry point runs: the Job fails, says which pod, and does not try again."""
    stack = job(FOREVER, False)
    stack.apply()
    until_said(stack, 0, "NODES 2")
    lost = pod(stack, 1)
    assert lost is not None
    stack.kill(lost)
    conditions = ended(stack)
    assert "Failed" in conditions
    assert conditions["Failed"]["reason"] == "PodFailurePolicy"
    head = pod(stack, 0)
    if head is not None and (said := head["status"].get("containerStatuses")) and "terminated" in said[0]["state"]:
        assert said[0]["state"]["terminated"]["exitCode"] == PEER_LOST


def test_without_the_name_the_file_leads_and_a_stale_one_does_not(job: Callable[[str, bool], StackOn]) -> None:
    """The Service is gone, so that the head's name leads nowhere; the shared folder has a file under this Job's name
    with another Job's address, which nobody follows; the head puts its own in its place, and that leads the worker."""
    stack = job(NODES, True)
    with held(stack, "gpu-0", "gpu-1"):
        stack.apply()
        name = stack.one("Job")["metadata"]["name"]
        body = stack.api.get("batch/v1", "Job", name, NAMESPACE)
        assert body is not None
        stack.api.delete("v1", "Service", stack.one("Service")["metadata"]["name"], NAMESPACE)
        assert stack.scale.shared is not None
        folder = stack.scale.shared / "rdma-ray"
        folder.mkdir(mode=0o1777)
        folder.chmod(0o1777)
        file = folder / f"{body['metadata']['uid']}.json"
        file.write_text(json.dumps({"job": "another", "address": "192.0.2.1:6378"}))
        # A pod that ran before wrote it, as the images' own user.
        os.chown(file, 1000, 100)
    assert "Complete" in ended(stack)
    first, second = pod(stack, 0), pod(stack, 1)
    assert first is not None
    assert "NODES 2" in stack.log(first)
    assert second is not None
    said = stack.log(second)
    # In the pod the folder is where the stack mounts it.
    assert f"/bucket/rdma-ray/{file.name}" in said
    assert "joins generation" in said
    assert "192.0.2.1" not in said
