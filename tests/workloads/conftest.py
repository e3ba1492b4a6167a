"""The project's own local cluster, brought up by the real engine: a head without CPUs and two nodes of two."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infra.outputs import Outputs
from tests.clone import Clone
from workloads.client.api import JobsApi

ROOT = Path(__file__).resolve().parents[2]


# Several processes of tests share the processors, and threads of OpenMP wait for each other by spinning.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The tests may run in a job of Slurm, which `slurm run` would use.
for _name in ("SLURM_JOB_ID", "SLURM_STEP_ID"):
    os.environ.pop(_name, None)

# Its pods start Ray by themselves. A unit test has the same name.
_OWN_RAY = Path(__file__).with_name("test_indexed_job.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs Ray, which `make test` runs in a process of its own (tools/run_tests.py)."""
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()) or item.path == _OWN_RAY:
            item.add_marker("ray")


@dataclass
class Cluster:
    """A running cluster as a user on another machine would know it: by a file with its outputs.

    `folder` is where the command line is run and leaves its results; `logs` is where the nodes write.
    """

    clone: Clone
    outputs: Outputs
    file: Path
    folder: Path

    @property
    def token(self) -> str:
        return self.outputs.ray.token.get_secret_value()

    @property
    def logs(self) -> Path:
        return self.clone.folder().path

    @property
    def storage(self) -> Path:
        assert self.outputs.storage is not None
        return Path(self.outputs.storage.path)

    @property
    def command(self) -> Path:
        """The command line of the copy, whose path has a space."""
        return self.clone.path / "bin" / "rdma-ray"

    def rdma_ray(self, *arguments: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Run the command line as a user does; stdout and stderr apart."""
        return subprocess.run(
            [self.command, *arguments],
            env=self.environment(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        """Start the command line as a user does, with more variables."""
        return subprocess.Popen(
            [self.command, *arguments],
            env=self.environment() | variables,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def environment(self) -> dict[str, str]:
        """A user's environment that knows the cluster by its outputs only."""
        return self.clone.environment | {"RDMA_RAY_OUTPUTS": str(self.file)}


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    clone = Clone(tmp_path_factory.mktemp("workloads"))
    try:
        clone.pulumi("stack", "select", "--create")
        clone.up()
        folder = tmp_path_factory.mktemp("user")
        outputs = clone.outputs()
        yield Cluster(clone, outputs, write_outputs(outputs, folder / "outputs.json"), folder)
        clone.destroy()
    finally:
        clone.remove()


def write_outputs(outputs: Outputs, file: Path) -> Path:
    """As `pulumi stack output --json --show-secrets` prints them."""
    found = json.loads(outputs.model_dump_json(by_alias=True))
    found["ray"]["token"] = outputs.ray.token.get_secret_value()
    file.touch(mode=0o600)
    file.write_text(json.dumps(found))
    return file


@pytest.fixture(autouse=True)
def _nodes_are_free(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test leaves fails that test, instead of a later one that then waits for the nodes."""
    cluster = request.getfixturevalue("cluster") if "cluster" in request.fixturenames else None
    yield
    if cluster is not None:
        wait_until_free(cluster)


def wait_until_free(cluster: Cluster, within_s: float = 150) -> None:
    """Wait until no placement group and no actor holds a CPU and, seconds later, the autoscaler counts none as used."""
    api = JobsApi(cluster.outputs.ray.jobs, cluster.outputs.ray.token, "test")
    deadline = time.monotonic() + within_s
    while held := _held(api):
        if time.monotonic() > deadline:
            states = [file.read_text(errors="replace")[:6000] for file in cluster.logs.rglob("debug_state.txt")]
            pytest.fail("\n\n".join([f"held after {within_s:.0f} s: {held}", *states]))
        time.sleep(0.3)


def _held(api: JobsApi) -> list[Any]:
    """Return what holds CPUs of the nodes."""
    groups, actors = (
        api.call(f"/api/v0/{kind}?detail=1&limit=10000")["data"]["result"]["result"]
        for kind in ("placement_groups", "actors")
    )
    held = [group for group in groups if group["state"] != "REMOVED"]
    held += [one for one in actors if one["state"] != "DEAD" and (one["required_resources"] or {}).get("CPU")]
    # Both are absent until Ray's monitor has reported.
    report = api.call("/api/cluster_status?format=0")["data"]["clusterStatus"].get("loadMetricsReport") or {}
    used, _ = report.get("usage", {}).get("CPU", (0, 0))
    return held or ([f"{used:g} CPUs"] if used else [])
