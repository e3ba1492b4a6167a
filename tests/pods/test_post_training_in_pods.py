"""A driver in the shape of verl and NeMo-RL in real pods: GPUs by fractions, nodes from zero, a lost node, resume.

GPUs are counts without a device, so its groups use gloo, and NCCL's logs are recorded ones, which the resumed run
collects. tests/workloads/run/test_post_training.py has the rest.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from rehearsal.cluster.scaling import CPUS
from tests.pods.deployed_stack import RDMA_RAY, DeployedStack, following, user
from tests.workloads.stack_outputs import GKE
from tools.kubernetes.api import Json
from workloads.evidence.collect import FOLDER

SCRIPTS = Path(__file__).parents[1] / "workloads" / "run" / "scripts"
SOCKETS = Path(__file__).parents[1] / "workloads" / "nccl" / "logs" / "tcp-fallback.log"
PROCESS = re.compile(r"^rank (\d) on (\S+) is process (\d+)$", re.MULTILINE)
LOST = 9
ENDED_S = 90
"""Timeout in seconds for the command to end after its pod is killed, on a busy machine."""


def test_driver_waits_for_its_nodes_loses_one_and_resumes(gke: DeployedStack, tmp_path: Path) -> None:
    """Two trainer groups of 2 × 2 GPUs, and 4 × 2 GPUs for rollouts, are both nodes. Two actors share a bundle.

    The outputs have the fabric gIB, which the logs of the resumed run contradict.
    """
    gke.pod_cluster.shares()
    gke.api.until("the head to be ready", gke.head, 300)
    gke.api.until("the idle workers to go", lambda: not gke.workers() or None, 240)
    nodes = {"min": 0, "max": 2, "gpusPerNode": 8, "cpusPerNode": CPUS}
    file = gke.outputs(tmp_path / "outputs.json", nodes=nodes, fabric=GKE["fabric"])
    log, result, code = tmp_path / "log", tmp_path / "result.json", tmp_path / "code"
    shutil.copytree(SCRIPTS, code)
    shutil.copy(SOCKETS, code)
    driver = ["--working-dir", str(code), "--", "python", "rl_driver.py", "--folder", "/bucket/post-training"]
    driver += ["--kind", "GPU", "--amount", "2", "--like", "nemo-rl"]
    first = [str(RDMA_RAY), "run", *driver, "--steps", "500", "--pause", "1"]
    with following(first, user(file), log) as running:
        gke.api.until("its first step", lambda: "step 1:" in log.read_text() or None, 420)
        text = log.read_text()
        assert re.search(r"needs? \d x \(2 GPU\); .*[01] of 2 nodes are up", text)
        addresses = {rank: address for rank, address, _ in PROCESS.findall(text)}
        assert gke.nodes_at(set(addresses.values())) == gke.gpu_nodes()
        [pod] = [pod for pod in gke.workers() if pod["status"].get("podIP") == addresses["7"]]
        began = time.monotonic()
        gke.kill(pod)
        assert running.wait(ENDED_S) == LOST, log.read_text()[-2000:]
        assert re.search(r"^ended: rank \d is lost$", log.read_text(), re.MULTILINE)
        print(f"the command ended {time.monotonic() - began:.1f} s after its pod was killed")
    last = re.findall(r"^step (\d+):", log.read_text(), re.MULTILINE)[-1]
    again = [str(RDMA_RAY), "run", "--evidence", "--json", str(result), *driver]
    began = time.monotonic()
    done = subprocess.run(
        [*again, "--steps", str(int(last) + 2), "--resume", "--nccl-log", SOCKETS.name],
        env=user(file),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    print(f"the resumed run took {time.monotonic() - began:.1f} s", done.stdout, done.stderr, sep="\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^resumed after step \d+$", done.stdout, re.MULTILINE)
    assert_evidence(gke, json.loads(result.read_text()), done)


def assert_evidence(gke: DeployedStack, result: Any, done: subprocess.CompletedProcess[str]) -> None:
    """The result has the log of each of the eight ranks on both nodes, and none is left in a pod."""
    # At once: idle workers go.
    left = {pod["status"]["podIP"]: logs_in(gke, pod) for pod in [*gke.workers(), gke.head()] if pod}
    assert not any(left.values()), left
    started = [(address, int(process)) for _, address, process in PROCESS.findall(done.stdout)]
    addresses = {address for address, _ in started}
    assert (len(started), addresses < left.keys()) == (8, True)
    assert gke.nodes_at(addresses) == gke.gpu_nodes()
    ranks = result["evidence"]["ranks"]
    assert sorted((node["ip"], ranks[rank]["pid"]) for node in result["nodes"] for rank in node["ranks"]) == sorted(
        started
    )
    assert [rank["log"]["plugin"] for rank in ranks] == ["Socket"] * 8
    # The node that was lost before has nothing of this run.
    assert (result["mode"], result["transport"], result["evidence"]["missing"]) == ("driver", "gib", [])
    assert [finding["kind"] for finding in result["findings"]] == ["socket-transport"]
    assert "NCCL used sockets (NET/Socket): no RDMA" in done.stderr


def logs_in(gke: DeployedStack, pod: Json) -> list[str]:
    """Return the logs of NCCL among Ray's logs in a pod."""
    names = gke.execute(pod, "ls", "/tmp/ray/session_latest/logs").split()
    assert "raylet.out" in names
    return [name for name in names if name.startswith(FOLDER)]
