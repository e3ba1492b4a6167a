"""The eks stack's Indexed Job in real pods: they find each other, form a Ray cluster, run the entry point and end.

Real: API server, Job controller, scheduler, kubelet, containerd, CoreDNS, the scripts of the ConfigMap, Ray. Simulated:
GPUs and EFA devices are counts of the node; a folder of this machine replaces the Lustre file system; the image is
built from this environment (its Ray is 2.60, that of AWS' image 2.58); CPUs and memory are scaled, as the run prints.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.kubernetes.indexed_job_pod import exits
from rehearsal.cluster.scaling import Scale
from tests.pods.as_user import NAMESPACE, following
from tests.pods.deployed_stack import DeployedStack, ready
from tests.pods.jobs import running
from tests.pods.pod_cluster import PodCluster
from tools.kubernetes.api import Json

NODES = "import ray; ray.init(); print('NODES', sum(node['Alive'] for node in ray.nodes()), flush=True)"
FOREVER = f"{NODES}; import time; time.sleep(600)"
PORT = 6378
EARLIER = textwrap.dedent(
    f"""
    import asyncio, os
    from indexed_job_pod.head import Head
    from indexed_job_pod.pod import pod_of
    os.environ |= {{"JOB_COMPLETION_INDEX": "0", "JOB_UID": "an-earlier-one"}}
    async def answers():
        head = Head(pod_of("--nodes=2 --head-host=none --wait-s=600 --entrypoint=true".split()))
        server = await asyncio.start_server(head._admit, "0.0.0.0", {PORT})
        print("LISTENS", flush=True)
        await server.serve_forever()
    asyncio.run(answers())
    """
)
"""The head of another Job, which admits its workers, without Ray."""

Stack = Callable[..., DeployedStack]


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
        scale = Scale(shared=shared)
        made.append(DeployedStack(pod_cluster, "eks", scale, changes=changes))
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
    for node in nodes:
        stack.open(node, False)
    yield
    for node in nodes:
        stack.open(node, True)


def until_said(stack: DeployedStack, index: int, word: str, within_s: float = 300) -> None:
    """Wait until a pod has printed a word."""

    def said() -> bool | None:
        body = pod(stack, index)
        started = body and any("running" in each["state"] for each in body["status"].get("containerStatuses", ()))
        return True if started and word in stack.log(body or {}) else None

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
    with following(stack.kubectl("logs", "-f", head["metadata"]["name"]), os.environ, tmp_path / "head.log") as log:
        stack.api.until("the log so far", lambda: log.said("NODES 2"), 60)
        stack.kill(lost)
        assert log.process.wait(300) == 0
        # The kubelet gives the lost pod two seconds to report; otherwise its silence counts.
        assert re.search(rf"\[pod 0\] pod 1(: this pod was asked| was lost).*exit code {exits.PEER_LOST}", log.text())
    conditions = ended(stack)
    assert "Failed" in conditions
    assert conditions["Failed"]["reason"] == "PodFailurePolicy"
    # Whichever ends first: the lost pod, by signal, or the head because of it.
    failure = re.search(rf"pod {NAMESPACE}/(\S+) failed with exit code (\d+)", conditions["Failed"]["message"])
    assert failure, conditions["Failed"]
    codes = {lost["metadata"]["name"]: (exits.STOPPED, 137), head["metadata"]["name"]: (exits.PEER_LOST,)}
    assert int(failure[2]) in codes[failure[1]]
    assert {each["metadata"]["uid"] for each in stack.pods()} <= {each["metadata"]["uid"] for each in (head, lost)}


def test_file_replaces_dns_and_stale_file_is_ignored(job: Callable[[str, bool], DeployedStack]) -> None:
    """The Service is deleted, so that the head's name does not resolve, and the head's pod starts late. The shared
    folder has a file with this Job's name and an old address, at which an earlier Job's head answers, with the same
    token: the worker asks it, sees the other Job's UID and ignores it. The Job's own head replaces the file, which
    gives the worker the address. Simulated: the earlier head is the stack's own script for it, without Ray; the test
    binds the worker to its node, since the scheduler may give the first one to either pod."""
    stack = job(NODES, True)
    with held(stack, "gpu-0", "gpu-1"):
        stack.apply()
        name = stack.one("Job")["metadata"]["name"]
        body = stack.api.get("batch/v1", "Job", name, NAMESPACE)
        assert body is not None
        stack.api.delete("v1", "Service", stack.one("Service")["metadata"]["name"], NAMESPACE)
        earlier = earlier_head(stack)
        address = f"{earlier['status']['podIP']}:{PORT}"
        file = announced(stack, body["metadata"]["uid"], address)
        worker = stack.api.until("the worker's pod", lambda: pod(stack, 1), 60)
        stack.bind(worker, "gpu-1")
        until_said(stack, 1, f"the file leads to {address}: that is the head of another Job")
    assert "Complete" in ended(stack)
    first, second = pod(stack, 0), pod(stack, 1)
    assert first is not None
    assert "NODES 2" in stack.log(first)
    assert second is not None
    said = stack.log(second)
    # Path of the folder in the pod.
    assert f"/bucket/rdma-ray/{file.name}" in said
    [generation] = re.findall(r"joins generation (\w+)", said)
    assert f"generation {generation} waits" in stack.log(first)
    assert "joined" not in stack.log(earlier)


def earlier_head(stack: DeployedStack) -> Json:
    """Return the pod of an earlier Job's head that still answers, with this stack's token."""
    template = stack.one("Job")["spec"]["template"]["spec"]
    [container] = template["containers"]
    scripts = [mount for mount in container["volumeMounts"] if mount["name"] == "scripts"]
    environment = [each for each in container["env"] if each["name"] in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "POD_IP")]
    main = {
        "name": "main",
        "image": container["image"],
        "command": running(EARLIER),
        "env": [*environment, {"name": "PYTHONPATH", "value": str(Path(scripts[0]["mountPath"]).parent)}],
        "volumeMounts": scripts,
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "containers": [main],
        "volumes": [volume for volume in template["volumes"] if volume["name"] == "scripts"],
    }
    metadata = {"name": "earlier", "namespace": NAMESPACE}
    stack.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def listens() -> Json | None:
        body = stack.api.get("v1", "Pod", "earlier", NAMESPACE)
        return body if body and ready(body) and "LISTENS" in stack.log(body) else None

    return stack.api.until("the earlier head to listen", listens, 120)


def announced(stack: DeployedStack, uid: str, address: str) -> Path:
    """Write the file with the address of this Job's head, as the images' own user."""
    assert stack.scale.shared is not None
    folder = stack.scale.shared / "rdma-ray"
    folder.mkdir(mode=0o1777)
    folder.chmod(0o1777)
    file = folder / f"{uid}.json"
    file.write_text(json.dumps({"job": uid, "generation": "0" * 16, "address": address}))
    os.chown(file, 1000, 100)
    return file
