"""Tiny ConvNeXt on a real cluster: killed worker, killed driver, half of the workers."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.workloads.conftest import Cluster
from workloads.exits import Exit
from workloads.train.checkpoints import Folder

SETTINGS = ("look_every=5", "probe=0", "compile=off", "check_gradients=true")
LENGTH = ("--global-batch", "16", "--checkpoint-every", "10", *(part for text in SETTINGS for part in ("--set", text)))


@pytest.fixture(scope="module")
def whole(cluster: Cluster) -> dict[str, Any]:
    """Run without interruption, on four workers of two nodes."""
    return train(cluster, "--name", "cn-whole", "--workers", "4", "--steps", "60")


def test_a_whole_run_reports_its_loss_and_equal_gradients(whole: dict[str, Any], cluster: Cluster) -> None:
    assert (whole["world"], whole["step"], whole["stopped"], whole["resumed_at"]) == (4, 60, None, None)
    assert whole["gradients_equal"] == 12
    assert whole["survival"]["attempts"] == 1
    assert 0 < whole["goodput"]["share"] < 1
    assert sum(whole["goodput"]["parts_s"].values()) == pytest.approx(whole["goodput"]["wall_s"], rel=0.01)
    assert checkpoints(cluster, "cn-whole") == [50, 60]


def test_a_killed_worker_and_a_killed_driver_change_no_bit(whole: dict[str, Any], cluster: Cluster) -> None:
    arguments = ["--name", "cn-killed", "--workers", "4", "--steps", "60", *LENGTH, "--inject-fault", "kill:1:17"]
    process = subprocess.Popen(
        [str(cluster.command), "train", "convnext", *arguments],
        env=cluster.environment(),
        cwd=cluster.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # Ray Train starts the workers again, from step 10; then the driver dies, too.
    eventually(lambda: checkpoints(cluster, "cn-killed")[-1:] >= [20], process)
    killed_at = checkpoints(cluster, "cn-killed")[-1]
    for driver in drivers("cn-killed"):
        driver.kill()
    said, complained = process.communicate(timeout=400)
    assert process.returncode != 0, said + complained
    assert "continuing from the last checkpoint" in complained

    rest = train(cluster, "--resume", "cn-killed", "--workers", "4", "--steps", "60")
    assert killed_at <= rest["resumed_at"] < 60
    assert rest["resumed_at"] % 10 == 0
    assert rest["curve"]["loss"] == whole["curve"]["loss"]
    assert rest["loss"] == whole["loss"]
    survival = rest["survival"]
    assert (survival["attempts"], survival["jobs"], survival["failures"], survival["preemptions"]) == (3, 2, 1, 0)
    # One checkpoint's worth for the worker (17 of 10), and what the driver's end cost.
    assert survival["lost_steps"] <= 7 + 10
    assert survival["mttr_s"] > 0


def test_two_workers_resume_where_four_stopped(whole: dict[str, Any], cluster: Cluster) -> None:
    rest = train(cluster, "--resume", "cn-whole", "--workers", "2", "--steps", "70")
    assert (rest["world"], rest["resumed_at"], rest["step"]) == (2, 60, 70)
    assert rest["curve"]["loss"][: len(whole["curve"]["loss"])] == whole["curve"]["loss"]
    # The same data in the same order, but each rank draws its own blocks to skip: no jump, not the same bits.
    assert rest["loss"] < whole["curve"]["loss"][0][1] * 1.05


def train(cluster: Cluster, *arguments: str) -> dict[str, Any]:
    done = cluster.rdma_ray("train", "convnext", *arguments, *LENGTH, "--json", "convnext.json", timeout=400)
    assert done.returncode == Exit.OK, done.stdout + done.stderr
    found: dict[str, Any] = json.loads((cluster.folder / "convnext.json").read_text())
    return found


def checkpoints(cluster: Cluster, name: str) -> list[int]:
    """Return the steps of a run's complete checkpoints."""
    found = Folder(str(cluster.storage / "train"), name).checkpoints()
    return [int(label.removeprefix("step-")) for label in found]


def drivers(name: str) -> list[psutil.Process]:
    """Return the processes of this run's job, found by its request."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if "workloads.train.driver" in line and f'"name":"{name}"' in line[-1]:
            found.append(process)
    assert found
    return found


def eventually(ready: Callable[[], bool], process: subprocess.Popen[str], timeout_s: float = 300) -> None:
    deadline = time.monotonic() + timeout_s
    while not ready():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, Path.cwd()
        time.sleep(0.05)
