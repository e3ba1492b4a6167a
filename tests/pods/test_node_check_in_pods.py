"""A bad node keeps its worker out, with `ray.check`: the gke stack's RayCluster with real Ray.

Real: the init container as the stack makes it, with its requests, kubelet, API server, RBAC, KubeRay, Ray's autoscaler,
`rdma-ray`. Simulated: as in `test_ray_in_pods`; what NVML and the kernel show of a node is a file on it.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.names import NODE_CHECK
from infra.kubernetes.api_access import EVENTS_NAMESPACE
from rehearsal.cluster.scaling import Scale
from tests.kubernetes.queries import is_ready
from tests.pods.deployed_stack import RDMA_RAY, DeployedStack, user
from tests.pods.jobs import GANG
from tests.pods.pod_cluster import PodCluster
from tools.kubernetes.api import Json
from workloads.exits import Exit
from workloads.train.timeline import seconds

ON_NODE, IN_POD = "/home/kubernetes/bin/gib/double", "/usr/local/gib/double"
"""Folder of the doubles: in the one of gIB, which the check and the worker mount."""
HEALTHY: Json = {"driver": "580.65.06", "gpus": [[0, 0, 0, 0]] * 8, "ports": ["4: ACTIVE"] * 8}
NAMED_S = 10
# Python runs it at its start. Only the check imports this module of Ray's.
DOUBLE = f"""
import json, sys, types
from pathlib import Path
if any(word == "--container={NODE_CHECK}" for word in sys.orig_argv):
    health = {{}}

    def read():
        health.update(json.loads(Path("{IN_POD}/health.json").read_text()))
        for number, state in enumerate(health["ports"]):
            port = Path(f"/tmp/infiniband/mlx5_{{number}}/ports/1")
            port.mkdir(parents=True, exist_ok=True)
            (port / "state").write_text(state)

    nvml = types.ModuleType("ray._private.thirdparty.pynvml")
    nvml.NVMLError, nvml.NVML_ERROR_NOT_SUPPORTED = type("NVMLError", (Exception,), {{"value": 0}}), 3
    nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED = nvml.NVML_VOLATILE_ECC = 0
    nvml.nvmlInit, nvml.nvmlShutdown = read, lambda: None
    nvml.nvmlSystemGetDriverVersion = lambda: health["driver"]
    nvml.nvmlDeviceGetCount = lambda: len(health["gpus"])
    nvml.nvmlDeviceGetHandleByIndex = lambda index: health["gpus"][index]
    nvml.nvmlDeviceGetRemappedRows = lambda gpu: gpu
    nvml.nvmlDeviceGetTotalEccErrors = lambda *_: 0
    sys.modules[nvml.__name__] = nvml
    sys.argv.append("--infiniband=/tmp/infiniband")
"""
FAULTS: dict[str, Json] = {
    "7 of 8 GPUs": {"gpus": [[0, 0, 0, 0]] * 7},
    "GPU 1: a remapped row of its memory waits for a reset": {
        "gpus": [[0, 0, 0, 0], [0, 1, 1, 0], *[[0, 0, 0, 0]] * 6]
    },
    "mlx5_7 is DOWN": {"ports": ["4: ACTIVE"] * 7 + ["1: DOWN"]},
    "driver 570.133.20, and 580.65.06 on 1 of 1 other nodes": {"driver": "570.133.20"},
}


@pytest.fixture
def gke(pod_cluster: PodCluster) -> Iterator[DeployedStack]:
    """The stack with the check, on two healthy nodes."""
    if pod_cluster.cluster is None:
        pytest.skip("not run: the doubles are files of our own nodes")
    changes: dict[str, Any] = {"ray": {"check": "quick", "env": [f"PYTHONPATH={IN_POD}"]}}
    stack = DeployedStack(pod_cluster, "gke", Scale(seconds={"idleTimeoutSeconds": 600}), changes)
    for node in ("gpu-0", "gpu-1"):
        show(stack, node, HEALTHY)
        on_node(stack, node, f"cat > {ON_NODE}/sitecustomize.py <<'END'\n{DOUBLE}\nEND")
    stack.apply()
    try:
        yield stack
    finally:
        print(stack.describe())
        stack.delete()
        for node in ("gpu-0", "gpu-1"):
            on_node(stack, node, f"rm -r {ON_NODE}")
        for body in stack.objects:
            if body["metadata"].get("namespace") == EVENTS_NAMESPACE:
                stack.api.delete(body["apiVersion"], body["kind"], body["metadata"]["name"], EVENTS_NAMESPACE)


def on_node(stack: DeployedStack, node: str, line: str) -> None:
    assert stack.pod_cluster.cluster is not None
    stack.pod_cluster.cluster.nodes[node].run(["sh", "-ec", line], spaces=("mount",))


def show(stack: DeployedStack, node: str, health: Json) -> None:
    """Let a node show this health."""
    on_node(stack, node, f"mkdir -p {ON_NODE}; printf %s '{json.dumps(health)}' > {ON_NODE}/health.json")


def test_bad_node_never_joins_is_named_and_joins_when_it_is_healthy(gke: DeployedStack, tmp_path: Path) -> None:
    """Each fault is in `status`, in `doctor` and in an event of the node within ten seconds of the check; the gang
    waits, and starts once the node is healthy."""
    bad, good = gke.pod_cluster.nodes["gpu-0"], gke.pod_cluster.nodes["gpu-1"]
    outputs = gke.outputs(tmp_path / "outputs.json")
    gke.api.until("the head to be ready", gke.head, 300)
    gke.open(False, "gpu-0")
    with gke.forwarded() as port:
        gke.submit(port, "waits", GANG, {})
        gke.api.until("a worker on the healthy node", lambda: on(gke, good, is_ready), 240)
        check = next(each for each in on(gke, good)["status"]["initContainerStatuses"] if each["name"] == NODE_CHECK)
        ended = check["state"]["terminated"]
        assert ended["message"] == "driver 580.65.06"
        print(f"a healthy node: {seconds(ended['finishedAt']) - seconds(ended['startedAt']):.0f} s")
        for number, (message, fault) in enumerate(FAULTS.items()):
            show(gke, "gpu-0", HEALTHY | fault)
            if number:
                gke.kill(on(gke, bad))
            else:
                gke.open(True, "gpu-0")
            started = gke.api.until(f"the check for {message}", partial(begun, gke, bad), 120)
            told = gke.api.until(f"an event of the node: {message}", partial(event, gke, message), NAMED_S + 20)
            status = gke.rdma_ray(outputs, "status")
            print(f"{message}: named {time.time() - started:.0f} s after the start of its check")
            assert told["involvedObject"]["name"] == bad
            assert f"node {bad} is kept out: {message}" in status
            assert time.time() - started < NAMED_S
            assert len([line for line in status.splitlines() if " worker " in line]) == 1, status
        done = subprocess.run([RDMA_RAY, "doctor"], env=user(outputs), capture_output=True, text=True, timeout=300)
        assert (done.returncode, "ray.check keeps it out" in done.stdout) == (Exit.BELOW, True), done.stdout
        show(gke, "gpu-0", HEALTHY)
        gke.until_succeeded(port, "waits")
    assert {pod["spec"]["nodeName"] for pod in gke.workers()} == {bad, good}


def on(stack: DeployedStack, node: str, such: Any = lambda _: True) -> Any:
    """Return the worker's pod on a node; None if there is none such."""
    return next((pod for pod in stack.workers() if pod["spec"].get("nodeName") == node and such(pod)), None)


def begun(stack: DeployedStack, node: str) -> float | None:
    """Return when the check on a node began; None if it does not run."""
    for each in ((on(stack, node) or {}).get("status") or {}).get("initContainerStatuses") or ():
        if each["name"] == NODE_CHECK and "running" in each["state"]:
            return seconds(each["state"]["running"]["startedAt"])
    return None


def event(stack: DeployedStack, message: str) -> Json | None:
    """Return the event of a node with this message; None if there is none."""
    events = stack.api.list("v1", "Event", EVENTS_NAMESPACE)
    return next((each for each in events if each.get("message") == message), None)
