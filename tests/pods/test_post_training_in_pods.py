"""A driver in the shape of verl and NeMo-RL in real pods: GPUs by fractions, nodes from zero, a lost node, resume.

GPUs are counts without a device, so its groups use gloo. tests/workloads/run/test_post_training.py has the rest.
"""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

from rehearsal.cluster.scaling import CPUS
from tests.pods.deployed_stack import RDMA_RAY, DeployedStack, following, user

SCRIPTS = Path(__file__).parents[1] / "workloads" / "run" / "scripts"
PROCESS = re.compile(r"^rank (\d) on (\S+) is process", re.MULTILINE)
LOST = 9
ENDED_S = 90
"""Timeout in seconds for the command to end after its pod is killed, on a busy machine."""


def test_driver_waits_for_its_nodes_loses_one_and_resumes(gke: DeployedStack, tmp_path: Path) -> None:
    """Two trainer groups of 2 × 2 GPUs, and 4 × 2 GPUs for rollouts, are both nodes. Two actors share a bundle."""
    gke.pod_cluster.shares()
    gke.api.until("the head to be ready", gke.head, 300)
    gke.api.until("the idle workers to go", lambda: not gke.workers() or None, 240)
    nodes = {"min": 0, "max": 2, "gpusPerNode": 8, "cpusPerNode": CPUS}
    file, log = gke.outputs(tmp_path / "outputs.json", nodes=nodes), tmp_path / "log"
    command = [str(RDMA_RAY), "run", "--working-dir", str(SCRIPTS), "--", "python", "rl_driver.py"]
    command += ["--folder", "/bucket/post-training", "--kind", "GPU", "--amount", "2", "--like", "nemo-rl"]
    with following([*command, "--steps", "500", "--pause", "1"], user(file), log) as running:
        gke.api.until("its first step", lambda: "step 1:" in log.read_text() or None, 420)
        text = log.read_text()
        assert re.search(r"needs? \d x \(2 GPU\); .*[01] of 2 nodes are up", text)
        addresses = dict(PROCESS.findall(text))
        assert gke.nodes_at(set(addresses.values())) == gke.gpu_nodes()
        [pod] = [pod for pod in gke.workers() if pod["status"].get("podIP") == addresses["7"]]
        began = time.monotonic()
        gke.kill(pod)
        assert running.wait(ENDED_S) == LOST, log.read_text()[-2000:]
        assert re.search(r"^ended: rank \d is lost$", log.read_text(), re.MULTILINE)
        print(f"the command ended {time.monotonic() - began:.1f} s after its pod was killed")
    last = re.findall(r"^step (\d+):", log.read_text(), re.MULTILINE)[-1]
    done = subprocess.run(
        [*command, "--steps", str(int(last) + 2), "--resume"],
        env=user(file),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^resumed after step \d+$", done.stdout, re.MULTILINE)
