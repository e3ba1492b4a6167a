"""A driver in the shape of verl and NeMo-RL on real Ray nodes: it trains, waits, resumes, and is stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.clone import wait_until
from tests.workloads.conftest import Cluster, wait_until_free
from workloads.client.api import JobsApi
from workloads.client.placement_groups import ACTORS
from workloads.exits import Exit

SCRIPTS = Path(__file__).with_name("scripts")
LOGS = Path(__file__).parents[1] / "nccl" / "logs"
STARTED_S = 150
"""Until the first step: twelve actors start, of which eight import torch, on a busy machine with two cores."""
ENDED_S = 60
PROCESS = re.compile(r"^rank (\d) on \S+ is process (\d+)$", re.MULTILINE)


def command(folder: Path, *arguments: str, **options: str) -> list[str]:
    given = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    return [
        "run",
        *given,
        "--working-dir",
        str(SCRIPTS),
        "--",
        "python",
        "rl_driver.py",
        "--folder",
        str(folder),
        *arguments,
    ]


def detached(cluster: Cluster, folder: Path, *arguments: str, until: str) -> str:
    """Start a driver, and return its job's ID once its log has a text."""
    done = cluster.rdma_ray("run", "--detach", *command(folder, *arguments)[1:])
    assert done.returncode == 0, done.stderr
    api, job_id = JobsApi.of(cluster.outputs), done.stdout.strip()
    wait_until(lambda: until in api.logs(job_id), lambda: api.logs(job_id), STARTED_S)
    return job_id


def actors(cluster: Cluster) -> list[Any]:
    """Return the actors that exist, without Ray's."""
    rows = JobsApi.of(cluster.outputs).call(ACTORS)["data"]["result"]["result"]
    return [row for row in rows if row["class_name"] in ("Rank", "Reference")]


def test_driver_trains_and_resumes_after_it_lost_an_actor(cluster: Cluster, tmp_path: Path) -> None:
    """The second driver gives its whole environment to ray.init, as NeMo-RL does, with a variable of the job in it."""
    job_id = detached(cluster, tmp_path, "--steps", "500", "--pause", "0.5", until="step 1:")
    api = JobsApi.of(cluster.outputs)
    processes = dict(PROCESS.findall(api.logs(job_id)))
    assert [*processes] == [*map(str, range(8))]
    assert len(actors(cluster)) == 12
    began = time.monotonic()
    os.kill(int(processes["6"]), signal.SIGKILL)
    done = cluster.rdma_ray("logs", job_id)
    print(f"the driver ended {time.monotonic() - began:.1f} s after its actor was killed")
    assert (done.returncode, time.monotonic() - began < ENDED_S) == (9, True), done.stdout
    assert "ended: rank 6 is lost" in done.stdout.splitlines()
    wait_until_free(cluster)

    last = max(int(file.stem.removeprefix("step-")) for file in tmp_path.glob("step-*.pt"))
    again = command(tmp_path, "--steps", str(last + 2), "--resume", "--like", "nemo-rl", env="NCCL_DEBUG=WARN")
    done = cluster.rdma_ray(*again)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert f"resumed after step {last}" in lines
    steps = [f"step {step}: 8 ranks have the weights {weights(step)}" for step in (last + 1, last + 2)]
    assert [line for line in lines if line.startswith("step")] == steps


def weights(step: int) -> int:
    """Return the sum of all weights: they begin as 0 … 96 repeated, and each step adds 10 or 20 to every one."""
    added = sum(10 * (each % 2 + 1) for each in range(1, step + 1))
    return sum(each % 97 for each in range(100_000)) + 100_000 * added


def test_waiting_driver_names_the_holder_that_stop_can_end(cluster: Cluster, tmp_path: Path) -> None:
    """A job is over, and its detached actor holds what one rollout needs. The next job waits until `stop` ends it."""
    leaver = cluster.rdma_ray(*command(tmp_path / "first", "--leave", "judge", request_id="leaver"))
    assert leaver.returncode == 0, leaver.stderr
    found = cluster.rdma_ray("doctor")
    assert "job leaver: it is over, and its detached actors and placement groups hold 0.25 CPU" in found.stdout

    with cluster.start(*command(tmp_path / "second", "--steps", "1", request_id="waiter")) as waiter:
        try:
            assert waiter.stderr is not None
            line = next((line for line in waiter.stderr if "waiting" in line), "")
            text = "placement group rollouts needs 4 x (0.5 CPU); held: "
            assert text in line
            assert "0.25 CPU by detached actor judge of job leaver" in line
            assert "2 CPU by this job" in line
            done = cluster.rdma_ray("stop", "leaver")
            assert "left on the cluster: actor judge (Reference): 0.25 CPU" in done.stderr
            done = cluster.rdma_ray("stop", "leaver", "--detached", "--json", "-")
            document = json.loads(done.stdout)
            assert (document["stopped"], document["ended"]) == (False, True), done.stderr
            assert document["left"] == [
                {"kind": "actor", "name": "judge", "class": "Reference", "cpus": 0.25, "gpus": 0}
            ]
            assert waiter.wait(STARTED_S) == 0
        finally:
            cluster.rdma_ray("stop", "waiter")
            cluster.rdma_ray("stop", "leaver", "--detached")
    assert cluster.rdma_ray("doctor").stdout == ""


def test_driver_that_can_never_be_placed_is_named_and_stopped(cluster: Cluster, tmp_path: Path) -> None:
    """Three CPUs on one node, of which each has two: for Ray it is only pending."""
    with cluster.start(*command(tmp_path, "--amount", "1", "--per-node", "3", request_id="never")) as never:
        try:
            assert never.stderr is not None
            line = next((line for line in never.stderr if "waiting" in line), "")
            reason = "it can never fit: no node has room for all bundles that its strategy puts on one node"
            assert f"placement groups trainers-0 and 1 more each need 3 x (1 CPU); {reason}" in line
            found = cluster.rdma_ray("doctor").stdout
            assert "placement group trainers-0 of job never" in found
            assert reason in found
            began = time.monotonic()
            assert cluster.rdma_ray("stop", "never").returncode == 0
            assert never.wait(ENDED_S) == Exit.STOPPED
            assert time.monotonic() - began < ENDED_S
        finally:
            cluster.rdma_ray("stop", "never")


def test_result_has_the_evidence_of_every_rank(cluster: Cluster, tmp_path: Path) -> None:
    """Each of the eight ranks writes a recorded log of NCCL."""
    file, log = tmp_path / "result.json", LOGS / "gib-two-nodes.log"
    run, *words = command(tmp_path, "--steps", "1", "--nccl-log", str(log), "--like", "nemo-rl", json=str(file))
    done = cluster.rdma_ray(run, "--evidence", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    ranks = json.loads(file.read_text())["evidence"]["ranks"]
    assert [rank["log"]["plugin"] for rank in ranks] == ["gIB"] * 8


def test_stop_ends_the_driver_and_its_actors(cluster: Cluster, tmp_path: Path) -> None:
    job_id = detached(cluster, tmp_path, "--steps", "500", "--pause", "0.5", until="step 1:")
    done = cluster.rdma_ray("stop", job_id, "--json", "-")
    assert json.loads(done.stdout)["left"] == []
    wait_until(lambda: not actors(cluster), lambda: str(actors(cluster)), ENDED_S)
    assert JobsApi.of(cluster.outputs).job(job_id).status == "STOPPED"


def test_worker_group_of_verl_forms_its_group_on_two_nodes(cluster: Cluster) -> None:
    """verl as installed by the command in docs/post-training.md: it needs an older numpy than Ray's tests have."""
    if not (folder := os.environ.get("RDMA_RAY_TEST_VERL")):
        pytest.skip("not run: RDMA_RAY_TEST_VERL does not name a folder with verl (docs/post-training.md)")
    done = cluster.rdma_ray("run", "--working-dir", str(SCRIPTS), "--", "python", "verl_ranks.py", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    ranks = [(0, 4, "127.0.0.3"), (1, 4, "127.0.0.3"), (2, 4, "127.0.0.4"), (3, 4, "127.0.0.4")]
    assert [line for line in done.stdout.splitlines() if line.startswith("ranks")] == [f"ranks {ranks}"] * 2
