"""A real Slurm for the tier, with users of its own, and what a job of theirs could leave behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from infra.outputs import Outputs
from tests.planted import as_user, plant, unplant
from tools.kubernetes.containers import Missing
from tools.slurm.cluster import Slurm, in_tmp, ready_to_run
from workloads.slurm.node import PLACE

ROOT = Path(__file__).resolve().parents[2]
RDMA_RAY = [sys.executable, "-m", "workloads.cli"]
# Ray is several clusters on this machine's CPUs.
SMALL = ("--cpus-per-node", "2", "--memory", "1G", "--time", "45")
READY_S, GONE_S = 480.0, 120.0
ATTACK = """
import resource, socket, sys, time
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4096), most))
found, held = set(), []
while True:
    for port in range(20_000, 32_000):
        try:
            with socket.create_connection((sys.argv[1], port), timeout=0.2) as connection:
                if connection.recv(64).startswith(b'{"kind": "hello"') and port not in found:
                    found.add(port)
                    print(port, flush=True)
        except OSError:
            pass
        if found and port % 10 == 0:
            for each in found:
                try:
                    held.append(socket.create_connection((sys.argv[1], each), timeout=0.2))
                    held[-1].send(b"n1 x \\xff")
                except OSError:
                    pass
            del held[:-2000]
    time.sleep(0.5)
"""
"""Looks for the ports of first nodes, and holds 2,000 connections there, which greet and never come to an end."""


@dataclass
class Run:
    """A job of `rdma-ray slurm run`."""

    slurm: Slurm
    user: str
    id: str

    @property
    def folder(self) -> Path:
        return self.slurm.home(self.user) / "rdma-ray-slurm" / f"job-{self.id}"

    @property
    def log(self) -> str:
        path = self.slurm.home(self.user) / f"rdma-ray-{self.id}.log"
        return path.read_text() if path.exists() else ""

    @property
    def outputs(self) -> Outputs:
        return Outputs.model_validate_json((self.folder / "outputs.json").read_bytes())

    def wait_until_ready(self) -> None:
        file = self.folder / "outputs.json"
        self.slurm.until(f"job {self.id} has outputs", lambda: file.exists() or self.ended(), READY_S)
        assert file.exists(), self.log

    def show(self, name: str) -> str:
        """Return a field of `scontrol show job`."""
        said = self.slurm.run(["scontrol", "--oneliner", "show", "job", self.id]).stdout
        return said.partition(f" {name}=")[2].partition(" ")[0]

    def ended(self) -> bool:
        return self.show("JobState") not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")

    def cancel(self) -> None:
        self.slurm.run(["scancel", self.id], user=self.user)

    def rdma_ray(self, *words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
        """Run a command on this cluster, from the host of the test, which is none of Slurm's."""
        environment = os.environ | {"RDMA_RAY_OUTPUTS": str(self.folder / "outputs.json"), "PYTHONPATH": str(ROOT)}
        return subprocess.run([*RDMA_RAY, *words], env=environment, cwd=cwd, capture_output=True, text=True)


def start(slurm: Slurm, user: str, *words: str) -> Run:
    """Submit a job by `rdma-ray slurm run --detach`."""
    done = rdma_ray(slurm, user, "slurm", "run", "--detach", *SMALL, *words)
    assert done.returncode == 0, done.stderr
    return Run(slurm, user, done.stdout.strip())


def rdma_ray(slurm: Slurm, user: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user on the login machine."""
    return slurm.run([*RDMA_RAY, *words], user=user, variables={"PYTHONPATH": str(ROOT)})


def left_of(slurm: Slurm, user: str) -> list[str]:
    """Return the processes of a user's jobs, and their folders, in /tmp and in the storage."""
    uid = slurm.uids[user]
    found = [
        f"process {each.pid} {each.info['status']}: {each.info['cmdline']}"
        for each in psutil.process_iter(["uids", "status", "cmdline"])
        if each.info["uids"] and each.info["uids"].real == uid
    ]
    found += map(str, in_tmp([uid]))
    found += [str(path) for path in slurm.home(user).glob("rdma-ray-slurm/job-*")]
    return found


def assert_nothing_is_left(slurm: Slurm, user: str) -> None:
    with contextlib.suppress(TimeoutError):
        slurm.until("all has ended", lambda: not left_of(slurm, user), GONE_S)
    assert left_of(slurm, user) == []
    assert not list(slurm.home(user).rglob("token"))


def json_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextlib.contextmanager
def attacked(slurm: Slurm, node: str, victims: list[Run]) -> Iterator[None]:
    """Until the end of the block, mallory has planted things in /tmp, and attacks the port where nodes meet."""
    mallory = slurm.uids["mallory"]
    address = slurm.network.address(list(slurm.nodes).index(node))
    as_user(mallory, lambda: plant(Path("/tmp"), PLACE, slurm.home("alice"), 500))
    attack = subprocess.Popen(
        slurm.as_user("mallory", [sys.executable, "-c", ATTACK, address]), stdout=subprocess.PIPE, text=True
    )
    try:
        yield
    finally:
        attack.kill()
        output, _ = attack.communicate()
        unplant(Path("/tmp"), PLACE, mallory)
    assert len(set(output.split())) == len(victims), "the attack did not find the port of each"
    for victim in victims:
        said = [line for line in victim.log.splitlines() if "refused" in line]
        assert len(said) == 1, victim.log
        assert said[0].startswith("rdma-ray: refused a connection without this job's token, from 10.")


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    """Three nodes, two users, and one who attacks them. pytest's own folders are closed to other users."""
    try:
        ready_to_run()
    except Missing as missing:
        pytest.skip(f"not run: {missing}")
    folder = Path(tempfile.mkdtemp(prefix="rdma-ray-slurm-test-"))
    folder.chmod(0o755)
    try:
        with Slurm(folder, nodes=3, cpus=8, users=("alice", "bob", "mallory")) as slurm:
            yield slurm
    finally:
        shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def _no_job_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A failed test leaves no job to the next one."""
    yield
    if "slurm" in request.fixturenames:
        slurm: Slurm = request.getfixturevalue("slurm")
        for user in slurm.uids:
            slurm.run(["scancel", f"--user={user}"])
        slurm.until("no job is left", lambda: not slurm.run(["squeue", "--noheader"]).stdout.strip())
