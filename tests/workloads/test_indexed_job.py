"""The pods of an Indexed Job with real Ray: one address per pod, found by name or by file.

With late pods, restarts, stale addresses and wrong tokens, the Job ends with the result of the entry point, or fails
with a reason and an exit code, and no pod joins the head of another Job or another generation.
"""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.kubernetes.indexed_job_pod import exits
from infra.kubernetes.indexed_job_pod.part import IMPORT_RAY
from infra.local import processes
from tests.clone import wait_until
from tests.workloads.conftest import ROOT
from tests.workloads.indexed_job import Job, Pod
from tests.workloads.train.gpt_reference import RESUMED, assert_reference, losses, request, start, train

COUNT = """
import json, os, sys, time, ray
from pathlib import Path
from ray.util.placement_group import placement_group
ray.init()
nodes = [node for node in ray.nodes() if node["Alive"]]
group = placement_group([{"CPU": 1}] * len(nodes), strategy="STRICT_SPREAD")
ray.get(group.ready(), timeout=150)
result = {"addresses": sorted(node["NodeManagerAddress"] for node in nodes), "rank": os.environ.get("RANK")}
Path(sys.argv[1]).write_text(json.dumps(result))
sys.exit(int(sys.argv[2])) if len(sys.argv) > 2 else time.sleep(600)
"""
"""Counts the nodes, takes a CPU on each, writes the result, and exits with the given code, if any."""

LONG = """
import os, sys, time
from pathlib import Path
Path(sys.argv[1]).write_text(str(os.getpid()))
time.sleep(600)
"""
"""Runs until it is terminated."""

MakeJob = Callable[..., Job]


@pytest.fixture
def root() -> Iterator[Path]:
    # Ray's sockets are below it, and their paths may have 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="ij-"))
    yield folder
    processes.end_marked(f"{folder}/")
    shutil.rmtree(folder)


@pytest.fixture
def make_job(root: Path) -> MakeJob:
    """A Job whose entry point is this Python program; its first argument is `root/result`."""

    def make(uid: str, nodes: int, program: str, *arguments: object, folder: Path | None = None) -> Job:
        file = root / f"{uid}.py"
        file.write_text(program)
        words = " ".join(str(each) for each in ("python", file, root / "result", *arguments))
        return Job(root, uid, nodes, words, folder=folder)

    return make


def ended(pods: list[Pod], *codes: int) -> None:
    """Assert that the pods end with these exit codes and leave no process."""
    assert [pod.code() for pod in pods] == list(codes), "\n".join(pod.output[-1500:] for pod in pods)
    for pod in pods:
        assert not list(processes.marked(pod.mark))


def test_ray_starts_without_the_imports_of_its_other_commands() -> None:
    """A new Ray that moves these commands, and then starts as slowly as before, fails here."""
    said = "print('start' in ray.cli.commands, *(name for name in sys.modules if name.startswith('ray.serve.')))"
    done = subprocess.run([sys.executable, "-c", IMPORT_RAY + said], capture_output=True, text=True, check=True)
    assert done.stdout == "True ray.serve.scripts\n"


def test_pods_find_the_head_by_name_with_one_pod_late_and_end_with_a_drained_head(
    make_job: MakeJob, root: Path
) -> None:
    """The head of a drained node gets SIGTERM: only that pod was asked to end."""
    job = make_job("on-time", 3, COUNT)
    head, first = job.start(0), job.start(1)
    head.wait_for("pod 1 joined: 2 of 3")
    first.wait_for("Ray runtime started")
    assert "the entry point starts" not in head.output
    late, file = job.start(2), root / "result"
    wait_until(lambda: file.exists() and file.read_text().endswith("}"), "the entry point runs")
    result = json.loads(file.read_text())
    assert result == {"addresses": [job.address(index) for index in range(3)], "rank": None}
    head.process.send_signal(signal.SIGTERM)
    ended([head, first, late], exits.STOPPED, exits.PEER_LOST, exits.PEER_LOST)
    for worker in (first, late):
        assert "the head ended: this pod was asked to end" in worker.output


def test_pod_finds_the_head_by_file_despite_a_stale_name(make_job: MakeJob, root: Path) -> None:
    """The head of an earlier Job still runs with the same token; the new Job's worker finds it twice and rejects it."""
    shared = root / "shared"
    shared.mkdir()
    earlier = make_job("earlier", 2, COUNT, 0, folder=shared)
    wrong = earlier.start(0)
    wrong.wait_for("waits for 1 pods")
    job = make_job("today", 2, COUNT, 3, folder=shared)
    job.ports[1] = earlier.ports[1]
    stale = json.loads((shared / "rdma-ray" / "earlier.json").read_text())
    assert stale["address"] == f"{earlier.address(0)}:{earlier.ports[1]}"
    (shared / "rdma-ray" / "today.json").write_text(json.dumps(stale | {"job": "today"}))
    worker = job.start(1, head_host=earlier.address(0))
    wait_until(lambda: "another Job" in worker.output, "the worker meets the wrong head")
    head = job.start(0)
    ended([head, worker], 3, 3)
    assert json.loads((root / "result").read_text())["addresses"] == [job.address(0), job.address(1)]
    assert worker.generation == head.generation != wrong.generation
    assert not (shared / "rdma-ray" / "today.json").exists()
    assert "joined" not in wrong.output
    wrong.process.send_signal(signal.SIGTERM)
    ended([wrong], exits.STOPPED)
    assert not list((shared / "rdma-ray").iterdir())


def test_restarted_worker_ends_its_generation(make_job: MakeJob, root: Path) -> None:
    job = make_job("worker-lost", 2, LONG)
    head, worker = job.start(0), job.start(1)
    wait_until((root / "result").exists, "the entry point runs")
    worker.kill()
    again = job.start(1, wait_s=5)
    ended([head], exits.PEER_LOST)
    assert "pod 1 was lost" in head.output or "pod 1 restarted" in head.output
    # It found the head while that ended, or no head.
    assert again.code() in (exits.PEER_LOST, exits.HEAD_NOT_FOUND)
    assert "joins generation" not in again.output


def test_restarted_head_is_another_generation(make_job: MakeJob, root: Path) -> None:
    job = make_job("head-lost", 2, LONG, folder=root)
    head, worker = job.start(0), job.start(1)
    wait_until((root / "result").exists, "the entry point runs")
    head.kill()
    ended([worker], exits.PEER_LOST)
    assert "the head of generation" in worker.output
    # New pods of the same UID and addresses, despite the file that the dead head left.
    assert (root / "rdma-ray" / "head-lost.json").exists()
    job.entrypoint = make_job("count", 2, COUNT, 0).entrypoint
    late_worker, new_head = job.start(1), job.start(0)
    ended([new_head, late_worker], 0, 0)
    assert new_head.generation == late_worker.generation != head.generation


@pytest.mark.parametrize("stale", [None, '{"job": "earlier", "address": "127.0.0.9:1"}', "half a fi"])
def test_pod_without_a_head_prints_where_it_looked(make_job: MakeJob, root: Path, stale: str | None) -> None:
    job = make_job("alone", 2, COUNT, 0, folder=root if stale else None)
    if stale is not None:
        (root / "rdma-ray").mkdir()
        (root / "rdma-ray" / "alone.json").write_text(stale)
    pod = job.start(1, wait_s=2)
    ended([pod], exits.HEAD_NOT_FOUND)
    assert f"the name leads to {job.address(0)}:{job.ports[1]}: " in pod.output
    reason = {None: "no head of Job alone", "half a fi": "cannot be read"}.get(
        stale, "is stale: it belongs to Job earlier"
    )
    assert reason in pod.output


def test_language_model_on_every_pod_has_the_losses_of_other_launches(make_job: MakeJob, root: Path) -> None:
    """Two pods start a run by torchrun, which one process continues."""
    (root / "scripts").mkdir()
    (root / "scripts" / "workloads").symlink_to(ROOT / "workloads")  # as the image has it on its PYTHONPATH
    expected = losses(train(request(root, "whole", 2), 2))
    job, file = make_job("gpt", 2, ""), root / "gpt.json"
    command = ["torchrun", "--nproc-per-node=1", "-m", "workloads.train", "gpt", *start(root, "job")]
    job.entrypoint = shlex.join([*command, "--json", str(file)])
    ended([job.start(index, everywhere=True) for index in (0, 1)], 0, 0)
    assert_reference(json.loads(file.read_text()), expected, world=2)
    for (step, loss), (_, right) in zip(losses(train(request(root, "job", 1), 1)), expected, strict=True):
        assert loss == pytest.approx(right, rel=RESUMED), step
