"""Indexed Jobs on this machine: processes as pods, each with its own address, home and temporary folder.

The scripts are those of the ConfigMap, started as the pod's container starts them. Tests have no name server for host
names: `--head-host` gets an address, which the script resolves in the same way.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from infra.kubernetes.pods import INDEXED_JOB_POD, script_files
from infra.local import processes
from infra.local.loopback import free_ports
from tests.clone import wait_until

DEADLINE_S = 150.0
_NETWORKS = itertools.count(20)


@dataclass
class Pod:
    """A process as a pod; every process that it starts carries its mark."""

    mark: str
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def output(self) -> str:
        """Its log so far."""
        return self.log.read_text(errors="replace")

    def end_of_output(self) -> str:
        return self.output[-3000:]

    def wait_for(self, text: str) -> None:
        """Wait until its log has this text."""
        wait_until(lambda: text in self.output or self.process.poll() is not None, self.end_of_output, DEADLINE_S)
        assert text in self.output, self.end_of_output()

    def code(self) -> int:
        """Wait for its end; return its exit code."""
        wait_until(lambda: self.process.poll() is not None, self.end_of_output, DEADLINE_S)
        return int(self.process.returncode)

    def kill(self) -> None:
        """Kill all its processes, like a container whose node is lost."""
        self.process.kill()
        self.process.wait()
        processes.end_marked(self.mark)

    @property
    def generation(self) -> str | None:
        """Generation that it created or joined, or None."""
        found = re.search(r"generation (\w{16})", self.output)
        return found[1] if found else None


@dataclass
class Job:
    """A Job: its UID and what its pods share. `folder` is the shared storage."""

    root: Path
    uid: str
    nodes: int
    entrypoint: str
    folder: Path | None = None
    ports: list[int] = field(default_factory=lambda: free_ports(6))
    network: int = field(default_factory=lambda: next(_NETWORKS))
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def address(self, index: int) -> str:
        """Return the address of a pod. On Linux every address in 127.0.0.0/8 is this machine's."""
        return f"127.0.{self.network}.{2 + index}"

    def start(
        self, index: int, *, wait_s: float = DEADLINE_S, head_host: str | None = None, everywhere: bool = False
    ) -> Pod:
        """Start a pod. Without `head_host` it finds the head by its stable address, as by a stable name."""
        scripts = self.root / "scripts" / INDEXED_JOB_POD
        if not scripts.exists():
            scripts.mkdir(parents=True)
            for name, text in script_files(INDEXED_JOB_POD).items():
                (scripts / name).write_text(text, encoding="utf-8")
        place = self.root / f"{self.uid}-{next(self.numbers)}"
        place.mkdir()
        gcs, control, torch, client, *metrics = self.ports
        (agent,) = free_ports(1)
        mark = f"{place}/"
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(place),
            "PYTHONPATH": str(self.root / "scripts"),
            "PYTHONUNBUFFERED": "1",
            "POD_IP": self.address(index),
            "JOB_UID": self.uid,
            "JOB_COMPLETION_INDEX": str(index),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": "a-token-that-only-these-tests-know-0123456789",
            # The defaults are fixed ports, which another Ray on this machine may use.
            "AUTOSCALER_METRIC_PORT": str(metrics[0]),
            "DASHBOARD_METRIC_PORT": str(metrics[1]),
            "GLOO_SOCKET_IFNAME": "lo",
            processes.MARK: mark,
        }
        ray = (
            f"--temp-dir={place}",
            "--num-cpus=1",
            "--num-gpus=0",
            "--object-store-memory=80000000",
            "--min-worker-port=0",
            "--max-worker-port=0",
            f"--dashboard-agent-listen-port={agent}",
        )
        argv = [
            *(sys.executable, "-m", INDEXED_JOB_POD),
            f"--nodes={self.nodes}",
            f"--head-host={head_host or self.address(0)}",
            f"--wait-s={wait_s}",
            *([f"--folder={self.folder}"] if self.folder else []),
            *(["--everywhere"] if everywhere else []),
            f"--port={control}",
            f"--gcs-port={gcs}",
            f"--torch-port={torch}",
            *(f"--ray={argument}" for argument in ray),
            "--ray-head=--include-dashboard=false",
            f"--ray-head=--ray-client-server-port={client}",
            f"--entrypoint={self.entrypoint}",
        ]
        log = place / "pod.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                argv,
                env=environment,
                cwd=place,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        return Pod(mark, log, process)
