"""The eks stack's Indexed Job in real pods: they find each other, form a Ray cluster, run the entry point and end.

Real: API server, Job controller, scheduler, kubelet, containerd, CoreDNS, the scripts of the ConfigMap, Ray. Simulated:
GPUs and EFA devices are counts of the node; a folder of this machine replaces the Lustre file system; the image is
built from this environment (its Ray is 2.60, that of AWS' image 2.58); CPUs and memory are scaled, as the run prints.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.catalog.names import NAMESPACE
from infra.kubernetes.indexed_job_pod import exits
from rehearsal.cluster.scaling import Scale
from tests.pods.deployed_stack import DeployedStack, following
from tests.pods.jobs import running
from tests.pods.pod_cluster import PodCluster
from tools.kubernetes.api import Json

NODES = "import ray; ray.init(); print('NODES', sum(node['Alive'] for node in ray.nodes()), flush=True)"
FOREVER = f"{NODES}; import time; time.sleep(600)"


@pytest.fixture
def job(pod_cluster: PodCluster, tmp_path: Path) -> Iterator[Callable[[str, bool], DeployedStack]]:
    """Return a factory of the stack with an entry point and, optionally, the shared folder; not applied. Deleted after
    the test."""
    made: list[DeployedStack] = []
    shared = tmp_path / "shared"
    shared.mkdir()

    def make(code: str, storage: bool) -> DeployedStack:
        if storage:
            pod_cluster.shares()
        ray = {"mode": "indexed-job", "entrypoint": shlex.join(running(code))}
        changes = {"ray": ray, "nodes": {"max": 2}} | ({"storage": {"bucket": "mine"}} if storage else {})
        made.append(DeployedStack(pod_cluster, "eks", Scale(shared=shared), changes))
        return made[0]

    yield make
    for stack in made:
        print(stack.describe())
        for each in stack.pods():
            with contextlib.suppress(subprocess.CalledProcessError):
                print(stack.log(each))
        stack.delete()
        stack.open(True, "gpu-0", "gpu-1")


def ended(stack: DeployedStack, within_s: float = 600) -> Json:
    """Return the conditions of the ended Job, by type."""
    name = stack.one("Job")["metadata"]["name"]

    def verdict() -> Json | None:
        body = stack.api.get("batch/v1", "Job", name, NAMESPACE)
        conditions = {
            each["type"]: each for each in (body or {})["status"].get("conditions", ()) if each["status"] == "True"
        }
        return conditions if {"Complete", "Failed"} & conditions.keys() else None

    return stack.api.until(f"Job {name} to end", verdict, within_s)


def pod(stack: DeployedStack, index: int) -> Json | None:
    """Return the pod with this index."""
    found = stack.pods(f"batch.kubernetes.io/job-completion-index={index}")
    return found[0] if found else None


@contextmanager
def held(stack: DeployedStack, *nodes: str) -> Iterator[None]:
    """Cordon nodes for the duration of the block."""
    stack.open(False, *nodes)
    yield
    stack.open(True, *nodes)


def until_said(stack: DeployedStack, index: int, word: str, within_s: float = 300) -> None:
    """Wait until a pod has printed a word."""

    def said() -> bool:
        body = pod(stack, index)
        return body is not None and stack.has_said(body, word)

    stack.api.until(f"pod {index} to print {word}", said, within_s)


def test_late_pod_joins_by_name_and_lost_pod_fails_job(
    job: Callable[[str, bool], DeployedStack], tmp_path: Path
) -> None:
    """One GPU node becomes schedulable only after the first pod has waited: both find each other by the head's stable
    host name, through CoreDNS and the headless Service, and the entry point sees two nodes. Then the worker's pod is
    deleted without a grace period: the head ends with the exit code for a lost worker, the Job fails and names the pod,
    and nothing is retried."""
    stack = job(FOREVER, False)
    with held(stack, "gpu-1"):
        stack.apply()
        early = stack.api.until(
            "one of the pods to run",
            lambda: next((each for each in stack.pods() if each["status"]["phase"] == "Running"), None),
            240,
        )
        until_said(stack, int(early["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]), "[pod ")
    until_said(stack, 0, "NODES 2")
    head, lost = pod(stack, 0), pod(stack, 1)
    assert head is not None
    assert lost is not None
    # The failed Job deletes its head, so only a followed log shows its end.
    log = tmp_path / "head.log"
    with following(stack.kubectl("logs", "-f", head["metadata"]["name"]), os.environ, log) as follower:
        stack.api.until("the log so far", lambda: "NODES 2" in log.read_text(), 60)
        stack.kill(lost)
        assert follower.wait(300) == 0
        # The kubelet gives the lost pod two seconds to report; otherwise its silence counts.
        end = rf"\[pod 0\] pod 1(: this pod was asked| was lost).*exit code {exits.PEER_LOST}"
        assert re.search(end, log.read_text())
    conditions = ended(stack)
    assert "Failed" in conditions
    assert conditions["Failed"]["reason"] == "PodFailurePolicy"
    # Whichever ends first: the lost pod, by signal, or the head because of it.
    failure = re.search(rf"pod {NAMESPACE}/(\S+) failed with exit code (\d+)", conditions["Failed"]["message"])
    assert failure, conditions["Failed"]
    codes = {lost["metadata"]["name"]: (exits.STOPPED, 137), head["metadata"]["name"]: (exits.PEER_LOST,)}
    assert int(failure[2]) in codes[failure[1]]
    assert {each["metadata"]["uid"] for each in stack.pods()} <= {each["metadata"]["uid"] for each in (head, lost)}


def test_lost_head_fails_job(job: Callable[[str, bool], DeployedStack]) -> None:
    """The first pod is deleted without a grace period while the entry point runs there: the worker ends with the exit
    code for a lost pod, the Job fails, and no pod follows."""
    stack = job(FOREVER, False)
    stack.apply()
    until_said(stack, 0, "NODES 2")
    pods = {each["metadata"]["uid"]: each["metadata"]["name"] for each in stack.pods()}
    lost = pod(stack, 0)
    assert lost is not None
    stack.kill(lost)
    conditions = ended(stack)
    assert "Failed" in conditions
    assert conditions["Failed"]["reason"] == "PodFailurePolicy"
    failure = re.search(rf"pod {NAMESPACE}/(\S+) failed with exit code (\d+)", conditions["Failed"]["message"])
    assert failure, conditions["Failed"]
    own = (exits.STOPPED, 137) if failure[1] == lost["metadata"]["name"] else (exits.PEER_LOST,)
    assert (failure[1] in pods.values(), int(failure[2]) in own) == (True, True), failure[0]
    assert {each["metadata"]["uid"] for each in stack.pods()} <= pods.keys()


def test_file_replaces_dns(job: Callable[[str, bool], DeployedStack]) -> None:
    """The Service is deleted before a pod runs, so that the head's name does not resolve: the worker gets the head's
    address from the file that the head writes into the shared folder."""
    stack = job(NODES, True)
    with held(stack, "gpu-0", "gpu-1"):
        stack.apply()
        stack.api.delete("v1", "Service", stack.one("Service")["metadata"]["name"], NAMESPACE)
    assert "Complete" in ended(stack)
    head, worker = pod(stack, 0), pod(stack, 1)
    assert head is not None
    assert worker is not None
    assert "NODES 2" in stack.log(head)
    [generation] = re.findall(r"joins generation (\w+)", stack.log(worker))
    assert f"generation {generation} waits" in stack.log(head)
