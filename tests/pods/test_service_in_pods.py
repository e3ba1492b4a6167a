"""The stack file gke-service with real Ray Serve in real pods: its image changes under load; it scales to zero.

Simulated: as in `test_ray_in_pods`; the two images are one under two names. CPUs, memory, and the times after which
idle workers and old clusters end are scaled, as the run prints. Nothing enforces the network policy.
"""

from __future__ import annotations

import base64
import json
import shlex
import subprocess
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.names import NAMESPACE, SERVE_PORT
from infra.catalog.pins import RAY_API, RAY_IMAGE
from infra.kubernetes.service_pod.authorized import CONNECTION_S
from rehearsal.cluster.scaling import Scale
from tests.pods.conftest import NEXT_IMAGE
from tests.pods.deployed_stack import RDMA_RAY, DeployedStack, following, user
from tests.pods.jobs import running
from tests.pods.pod_cluster import PodCluster
from tests.workloads.serving.checkpoint import trained
from tests.workloads.stack_outputs import LOCAL
from tools.kubernetes.api import Json

RATE, AFTER_S, LONGEST_S = 100, 60, 420
"""Requests a second, which two slow cores answer while a second cluster starts on them; seconds of them after the
first answer of the next version; seconds of them at most."""
LOAD = textwrap.dedent(
    """
    import asyncio, collections, json, sys, time
    import aiohttp
    url, token, version, rate, after, longest = *sys.argv[1:4], *map(int, sys.argv[4:])
    body = {"image": [[0] * 8] * 8}
    count, seconds, first, began = collections.Counter(), [], None, time.monotonic()
    async def ask(session):
        global first
        at = time.monotonic()
        try:
            async with session.post(url, json=body) as answer:
                said = await answer.json() if answer.status == 200 else {"image": f"status {answer.status}"}
        except Exception as error:
            said = {"image": f"{type(error).__name__}: {error}"}
        count[said["image"]] += 1
        seconds.append(time.monotonic() - at)
        if first is None and said["image"] == version:
            first = time.monotonic()
    async def main():
        own = {"Authorization": f"Bearer {token}"}
        connections = aiohttp.TCPConnector(limit=64)
        patient = aiohttp.ClientTimeout(60)
        async with aiohttp.ClientSession(headers=own, connector=connections, timeout=patient) as session:
            while True:  # kube-proxy learns of the first endpoint after the service is ready
                try:
                    async with session.post(url, json=body) as answer:
                        assert answer.status == 200, answer.status
                    break
                except aiohttp.ClientConnectorError:
                    assert time.monotonic() - began < 60
                    await asyncio.sleep(0.2)
            tasks, due = set(), time.monotonic()
            while (now := time.monotonic()) - began < longest and (first is None or now - first < after):
                due += 1 / rate
                await asyncio.sleep(max(0, due - now))
                task = asyncio.create_task(ask(session))
                tasks.add(task); task.add_done_callback(tasks.discard)
            lasted = time.monotonic() - began
            await asyncio.gather(*tasks)
        seconds.sort()
        half, most = (seconds[len(seconds) * part // 100] for part in (50, 99))
        print("LOAD " + json.dumps({"by": count, "rate": len(seconds) / lasted, "lasted": lasted,
            "half": half, "of 100, 99": most, "longest": seconds[-1]}))
    asyncio.run(main())
    """
)
"""Sends requests at a rate, whatever the answers, on connections that it keeps, without a second try."""


ANSWERED = textwrap.dedent(
    """
    import json, sys, time, urllib.request
    url, token, longest = *sys.argv[1:3], float(sys.argv[3])
    body, began = json.dumps({"image": [[0] * 8] * 8}).encode(), time.monotonic()
    own = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    while True:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, own), timeout=60) as answer:
                print("ANSWERED", json.load(answer)["step"], flush=True)
                break
        except OSError as problem:
            print(f"after {time.monotonic() - began:.0f} s:", problem, flush=True)
            assert time.monotonic() - began < longest
            time.sleep(2)
    """
)
"""Sends a request until one is answered, and prints why the others failed."""


@pytest.fixture(scope="module")
def shared(pod_cluster: PodCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this machine in place of the bucket, with a checkpoint as `rdma-ray train digits` writes it."""
    pod_cluster.shares()
    folder = tmp_path_factory.mktemp("shared")
    trained(folder, steps=0)
    return folder


def stack_with(image: str, pod_cluster: PodCluster, shared: Path) -> DeployedStack:
    """The stack, with one replica at most, on nodes that have this image."""
    scale = Scale(
        shared=shared, seconds={"idleTimeoutSeconds": 15, "rayClusterDeletionDelaySeconds": CONNECTION_S + 10}
    )
    changes = {
        "ray": {"image": image, "idleMinutes": 1},
        "nodes": {"max": 2},
        "service": {"maxReplicas": 1, "ongoingRequests": 32},
    }
    stack = DeployedStack(pod_cluster, "gke-service", scale, changes)
    # For the heads of two clusters, whose containers request half a CPU each, on one node of two CPUs.
    stack.workload["spec"]["rayClusterConfig"]["autoscalerOptions"]["resources"]["requests"]["cpu"] = "100m"
    return stack


@pytest.fixture(scope="module")
def service(pod_cluster: PodCluster, shared: Path) -> Iterator[DeployedStack]:
    """The service, which answers."""
    stack = stack_with(RAY_IMAGE, pod_cluster, shared)
    stack.apply()
    try:
        pod_cluster.api.until("the service to be ready", lambda: ready(stack) or None, 400)
        yield stack
    finally:
        print(stack.describe())
        print(json.dumps(found(stack).get("status"), indent=1))
        stack.delete()


def found(stack: DeployedStack) -> Json:
    return stack.api.get(RAY_API, "RayService", stack.name, NAMESPACE) or {}


def ready(stack: DeployedStack) -> bool:
    conditions = found(stack).get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def serve_token(stack: DeployedStack) -> str:
    return stack.token_in(f"{stack.name}-serve-token")


def address(stack: DeployedStack) -> str:
    return f"http://{stack.name}-serve-svc.{NAMESPACE}.svc.cluster.local:{SERVE_PORT}/"


def outputs(stack: DeployedStack, file: Path) -> Path:
    ray: dict[str, Any] = LOCAL["ray"] | {"cluster": stack.name, "mode": "service", "token": stack.token}
    ray["serveToken"] = serve_token(stack)
    ray |= {name: f"http://127.0.0.1:{port}" for name, port in (("jobs", 8265), ("dashboard", 8265), ("serve", 8000))}
    return stack.outputs(file, ray=ray)


def test_image_changes_without_a_failed_request(
    service: DeployedStack, pod_cluster: PodCluster, shared: Path, tmp_path: Path
) -> None:
    """While requests arrive, and until the old cluster is gone. Commands find the new head."""
    following_version = stack_with(NEXT_IMAGE, pod_cluster, shared)
    before = {pod["metadata"]["name"] for pod in service.pods("ray.io/is-ray-node=yes")}
    numbers = map(str, (RATE, AFTER_S, LONGEST_S))
    with ThreadPoolExecutor(1) as pool:
        command = [*running(LOAD), address(service), serve_token(service), NEXT_IMAGE, *numbers]
        load = pool.submit(service.run, command, LONGEST_S + 120)
        # As the annotation pulumi.com/patchForce has it: the operator owns the list of worker groups by now.
        service.api.apply(following_version.one("RayService"), force=True)
        [line] = [line for line in load.result().splitlines() if line.startswith("LOAD ")]
    print(line)
    said = json.loads(line.removeprefix("LOAD "))
    assert said["by"].keys() == {RAY_IMAGE, NEXT_IMAGE}, said
    assert said["lasted"] > AFTER_S

    def gone() -> bool | None:
        return None if before & {pod["metadata"]["name"] for pod in service.pods("ray.io/is-ray-node=yes")} else True

    service.api.until("the pods of the old cluster to go", gone, 180)
    file = outputs(service, tmp_path / "outputs.json")
    assert "worker" in service.rdma_ray(file, "status")


def test_requests_need_the_token_and_wake_a_service_without_nodes(service: DeployedStack, tmp_path: Path) -> None:
    """When no request has come for a while, no worker is left. `rdma-ray serve` prints a request for curl with the
    token; the next request waits for a replica and its node. Without the token, or with another one: 401. Ray's token
    is another one, and the service's is no token for Ray, which runs code. A new token reaches the running proxies."""
    service.api.until("the idle workers to go", lambda: not service.workers() or None, 300)
    log = tmp_path / "serve.log"
    with following([str(RDMA_RAY), "serve"], user(outputs(service, tmp_path / "outputs.json")), log) as command:
        service.api.until("the address", lambda: "Ctrl-C" in log.read_text(), 60)
        url, line, *_ = log.read_text().splitlines()
        own = serve_token(service)
        assert [each for each in (own, service.token) if each in log.read_text()] == []
        image = json.dumps({"image": [[0] * 8] * 8})
        curl = ["curl", "-sS", "--max-time", "240", "-w", "\n%{http_code}", "--json", image]
        for wrong in ([], *(bearer(each) for each in (f"{own}x", "", service.token))):
            assert answer([*curl, *wrong, url])[1] == "401"
        with service.forwarded() as port:
            jobs = f"http://127.0.0.1:{port}/api/jobs/"
            for token, status in ((own, "403"), (service.token, "200")):
                assert answer(["curl", "-sS", "-w", "\n%{http_code}", *bearer(token), jobs])[1] == status
        assert not service.workers()
        body, code = answer([*curl, *shlex.split(line)[1:]])
        assert (code, json.loads(body)["step"]) == ("200", 0)
        assert len(service.workers()) == 1
        pods = service.identities()
        change = {"stringData": {"auth_token": "another-token"}}
        service.api.patch("v1", "Secret", f"{service.name}-serve-token", NAMESPACE, change)

        def answers(token: str) -> bool | None:
            told = answer(["curl", "-sS", "-w", "\n%{http_code}", *bearer(token), f"{url}/-/routes"])[1]
            return True if told == "200" else None

        began = time.monotonic()
        service.api.until("the proxy to know the new token", lambda: answers("another-token"), 240)
        print(f"a new token is known after {time.monotonic() - began:.0f} s")
        assert not answers(own)
        assert service.identities() == pods
        assert command.poll() is None


def bearer(token: str) -> list[str]:
    return ["-H", f"Authorization: Bearer {token}"]


def answer(curl: list[str]) -> tuple[str, str]:
    """Return body and status of the answer."""
    body, _, code = subprocess.run(curl, capture_output=True, text=True, check=True).stdout.rpartition("\n")
    return body, code


def test_lost_head_is_replaced_and_the_service_answers_again(service: DeployedStack) -> None:
    """The head's pod is deleted without a grace period. KubeRay starts another one and gives it the application."""
    secret = service.api.get("v1", "Secret", f"{service.name}-serve-token", NAMESPACE) or {}
    asked = [*running(ANSWERED), address(service), base64.b64decode(secret["data"]["auth_token"]).decode()]
    answered = service.run([*asked, "240"])
    lost = service.api.until("the head to be ready", service.head, 120)
    service.kill(lost)
    began = time.monotonic()
    service.until_another_head(lost, 300)
    again = service.run([*asked, "400"], 420)
    print(f"answers again {time.monotonic() - began:.0f} s after the loss of the head")
    assert answered.splitlines()[-1] == again.splitlines()[-1] == "ANSWERED 0"
