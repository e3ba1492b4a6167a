"""Tiny ConvNeXt on a real cluster: a killed worker, a killed driver and a damaged checkpoint."""

from __future__ import annotations

import json
from typing import Any

import psutil

from tests.clone import wait_until
from tests.workloads.conftest import Cluster, wait_until_free
from workloads.exits import Exit
from workloads.train.checkpoints import RunFolder, label_of

SETTINGS = ("look_every=5", "probe=0", "compile=off", "check_gradients=true")
LENGTH = ("--global-batch", "16", "--checkpoint-every", "5", *(part for text in SETTINGS for part in ("--set", text)))


def test_a_run_continues_after_a_killed_worker_a_killed_driver_and_a_damaged_checkpoint(cluster: Cluster) -> None:
    """test_surviving.py compares every bit with an uninterrupted run."""
    arguments = ["--name", "cn-killed", "--workers", "2", "--steps", "30", *LENGTH, "--inject-fault", "kill:1:8"]
    process = cluster.start("train", "convnext", *arguments)
    # Ray Train starts the workers again, from step 5; then the driver dies, too.
    wait_until(lambda: checkpoints(cluster, "cn-killed")[-1:] >= [10] or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    for driver in drivers("cn-killed"):
        driver.kill()
    said, complained = process.communicate(timeout=400)
    assert process.returncode != 0, said + complained
    assert "continuing from the last checkpoint" in complained

    wait_until_free(cluster)  # which may still write a checkpoint
    *_, good, newest = checkpoints(cluster, "cn-killed")
    shard = cluster.storage / "train" / "cn-killed" / label_of(newest) / "__1_0.distcp"
    shard.write_bytes(shard.read_bytes()[:-1])
    rest = train(cluster, "--resume", "cn-killed", "--workers", "2", "--steps", "30")
    assert rest["resumed_at"] == good
    assert [*rest["skipped"]][-1] == label_of(newest)
    assert (rest["world"], rest["step"], rest["stopped"]) == (2, 30, None)
    assert rest["gradients_equal"] > 0
    # The pool of images is soon known by heart.
    assert rest["curve"]["loss"][-1][1] < rest["curve"]["loss"][0][1]
    assert [step for step, _ in rest["curve"]["loss"]] == list(range(5, 31, 5))
    assert checkpoints(cluster, "cn-killed") == [25, 30]
    survival = rest["survival"]
    assert (survival["attempts"], survival["jobs"], survival["preemptions"]) == (3, 2, 0)
    # The worker; and if Ray Train's controller outlives its driver for a moment, the workers that end with that.
    assert survival["failures"] in (1, 2)
    # Those after the checkpoint: of the worker (step 8 of 5), those of the damaged one, and of the driver: its next
    # checkpoint may be half written while training goes on to the one after it.
    assert survival["lost_steps"] <= 3 + 5 + 10
    assert survival["mttr_s"] > 0


def train(cluster: Cluster, *arguments: str) -> dict[str, Any]:
    done = cluster.rdma_ray("train", "convnext", *arguments, *LENGTH, "--json", "convnext.json")
    assert done.returncode == Exit.OK, done.stdout + done.stderr
    found: dict[str, Any] = json.loads((cluster.folder / "convnext.json").read_text())
    return found


def checkpoints(cluster: Cluster, name: str) -> list[int]:
    """Return the steps of a run's complete checkpoints."""
    found = RunFolder(str(cluster.storage / "train"), name).checkpoints()
    return [int(label.removeprefix("step-")) for label in found]


def drivers(name: str) -> list[psutil.Process]:
    """Return the processes of this run's job, found by its request."""
    lines = ((process, process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))
    found = [process for process, line in lines if "workloads.train.driver" in line and f'"name":"{name}"' in line[-1]]
    assert found
    return found
