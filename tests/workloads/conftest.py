"""A real Ray cluster with token authentication on loopback addresses: a head without CPUs and two nodes of two."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from pydantic import SecretStr

from infra.outputs import Fabric, Nodes, Outputs, Ray, Storage

ROOT = Path(__file__).resolve().parents[2]
NODES, CPUS = 2, 2


@dataclass
class Cluster:
    """A running cluster: its outputs, the file that holds them, and its folder."""

    outputs: Outputs
    file: Path
    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def token(self) -> str:
        return self.outputs.ray.token.get_secret_value()

    def rdma_ray(self, *arguments: str, timeout: float = 180) -> subprocess.CompletedProcess[str]:
        """Run the command line as a user does; stdout and stderr apart."""
        return subprocess.run(
            [ROOT / "bin" / "rdma-ray", *arguments],
            env=self.environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def environment(self) -> dict[str, str]:
        """A user's environment that knows the cluster by its outputs only."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "RDMA_RAY_"))}
        return kept | {"HOME": str(self.folder / "home"), "RDMA_RAY_OUTPUTS": str(self.file)}


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    # Ray's sockets lie below this folder, and a socket's path may have 107 characters only.
    folder = Path(tempfile.mkdtemp(prefix="rr-", dir="/tmp"))
    processes: list[subprocess.Popen[bytes]] = []
    try:
        outputs = start(folder, processes)
        yield Cluster(outputs, write_outputs(outputs, folder / "outputs.json"), folder, processes)
    finally:
        end(processes)
        shutil.rmtree(folder, ignore_errors=True)


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    """End the nodes and all that they started, by id: politely, and after ten seconds for good."""
    alive = [psutil.Process(process.pid) for process in processes if process.poll() is None]
    family = [child for process in alive for child in process.children(recursive=True)]
    for process in processes:
        process.terminate()
    _, left = psutil.wait_procs([*alive, *family], timeout=10)
    for member in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    for process in processes:
        process.wait(10)


def write_outputs(outputs: Outputs, file: Path) -> Path:
    """As `pulumi stack output --json --show-secrets` prints them."""
    found = json.loads(outputs.model_dump_json(by_alias=True))
    found["ray"]["token"] = outputs.ray.token.get_secret_value()
    file.touch(mode=0o600)
    file.write_text(json.dumps(found))
    return file


def start(folder: Path, processes: list[subprocess.Popen[bytes]]) -> Outputs:
    """Start the head and its nodes, and wait until all are alive. What runs is in `processes`, even on failure."""
    (folder / "home").mkdir()
    (folder / "storage").mkdir()
    token = secrets.token_hex(32)
    token_file = folder / "token"
    token_file.touch(mode=0o600)
    token_file.write_text(token)
    environment = {
        **os.environ,
        "HOME": str(folder / "home"),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token_file),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    gcs, dashboard = free_port(), free_port()

    def node(name: str, address: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
        command += ["--node-ip-address", address, "--min-worker-port=0", "--max-worker-port=0"]
        command += [f"--dashboard-agent-listen-port={free_port()}", f"--metrics-export-port={free_port()}"]
        # A folder each: nodes that start at the same time in one folder may pick the same socket name.
        command += [f"--temp-dir={folder / name}", f"--object-store-memory={100 * 2**20}", *arguments]
        with (folder / f"{name}.log").open("wb") as log:
            processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))

    def alive() -> int:
        request = urllib.request.Request(
            f"http://127.0.0.1:{dashboard}/api/v0/nodes", headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            found = json.load(answer)["data"]["result"]["result"]
        return sum(entry["state"] == "ALIVE" for entry in found)

    head = ["--head", f"--port={gcs}", "--num-cpus=0", "--dashboard-host=127.0.0.1"]
    node("h", "127.0.0.1", *head, f"--dashboard-port={dashboard}", f"--ray-client-server-port={free_port()}")
    wait_until(lambda: alive() == 1, processes, folder)
    for index in range(NODES):
        # Linux answers on all of 127.0.0.0/8, so that each node has an address of its own; others have one loopback.
        address = f"127.0.0.{index + 2}" if sys.platform == "linux" else "127.0.0.1"
        node(f"n{index}", address, f"--address=127.0.0.1:{gcs}", f"--num-cpus={CPUS}")
    wait_until(lambda: alive() == 1 + NODES, processes, folder)

    address = f"http://127.0.0.1:{dashboard}"
    return Outputs(
        target="local",
        location=None,
        machine=None,
        nodes=Nodes(min=NODES, max=NODES, gpus_per_node=0, cpus_per_node=CPUS),
        fabric=Fabric(transport="socket", nics=None, gbps_per_nic=None, floors=[]),
        kubeconfig=None,
        namespace=None,
        ray=Ray(
            cluster="test",
            version="2.60.0",
            dashboard=address,
            jobs=address,
            client="ray://127.0.0.1:10001",
            token=SecretStr(token),
        ),
        storage=Storage(path=str(folder / "storage")),
        queue=None,
    )


def wait_until(holds: Callable[[], bool], processes: list[subprocess.Popen[bytes]], folder: Path) -> None:
    """Wait for a condition, at most 90 s; fail with the logs when a process has ended."""
    deadline = time.monotonic() + 90
    while True:
        try:
            if holds():
                return
        except (urllib.error.URLError, OSError, KeyError, TypeError):
            pass  # not up yet
        if time.monotonic() > deadline or any(process.poll() is not None for process in processes):
            logs = "\n".join(f"== {log.name}\n{log.read_text()[-2000:]}" for log in sorted(folder.glob("*.log")))
            raise AssertionError(f"the Ray cluster did not come up:\n{logs}")
        time.sleep(0.3)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
