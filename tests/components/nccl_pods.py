"""NCCL Jobs on this machine: processes as pods, with stubs for missing programs.

What runs is the ConfigMap's own scripts, with the environment and the mpirun command of the manifest. `ssh` runs its
command in the pod and breaks when its sshd ends; `getent` knows the names that a test adds; `mpirun` records its
arguments and runs the commands of the test.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.kubernetes.nccl_job import Sweep, nccl_job
from infra.kubernetes.nccl_job_manifest import manifests
from infra.local import processes
from infra.settings import parse
from tests.unit.stacks import GKE, changed

DEADLINE_S = 60.0
DOMAIN = "lab.ray.svc.cluster.local"

STAND_INS = {
    "hostname": 'echo "$LAB_HOST"',
    "getent": 'test -e "$LAB/names/$2" && echo "10.0.0.7 $2"',
    "lab-sshd": 'echo $$ >"$LAB/up/$LAB_HOST"; exec sleep 300',
    "ssh": """
host=${@: -2:1} line=${@: -1}
serves() { [[ -e $LAB/up/$host ]] && kill -0 "$(<"$LAB/up/$host")" 2>/dev/null; }
serves || { echo "ssh: connect to host $host port 222: Connection refused" >&2; exit 255; }
RDMA_RAY_RUN=$LAB/run/$host bash -c "$line" &
while kill -0 $! 2>/dev/null; do
    serves || { kill $!; exit 255; }
    sleep 0.1
done
wait $!""",
    "mpirun": """
printf '%s\\n' "$@" >"$LAB/mpirun"
cp "$RDMA_RAY_RUN/hosts" "$LAB/hosts"
exec bash "$LAB/measurement" """,
}


def container() -> dict[str, Any]:
    """The container of a Job of two nodes on GKE, whose image has mpirun on its PATH."""
    (job,) = (each for each in manifests(nccl_job(parse(GKE), Sweep(), name="lab")) if each["kind"] == "Job")
    return dict(job["spec"]["template"]["spec"]["containers"][0])


def scripts() -> Mapping[str, str]:
    """What the ConfigMap holds."""
    (found,) = (each for each in manifests(nccl_job(parse(changed(GKE, {})), Sweep())) if each["kind"] == "ConfigMap")
    return dict(found["data"])


@dataclass
class Lab:
    """One Job. `measurement` is what mpirun does: lines of bash. Pods get their names when they are started."""

    root: Path
    nodes: int = 2
    measurement: str = 'echo "# Out of bounds values : 0 OK"'
    environment: Mapping[str, str] = field(default_factory=dict)
    pods: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for folder in ("bin", "names", "up", "run", "scripts"):
            (self.root / folder).mkdir(parents=True)
        for name, text in STAND_INS.items():
            (self.root / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
            (self.root / "bin" / name).chmod(0o755)
        for name, text in scripts().items():
            (self.root / "scripts" / name).write_text(text)
        (self.root / "measurement").write_text(self.measurement + "\n")

    def host(self, index: int) -> str:
        return f"lab-{index}.{DOMAIN}"

    def named(self, index: int) -> None:
        """From now on this pod's name resolves."""
        (self.root / "names" / self.host(index)).touch()

    def start(self, *indexes: int) -> None:
        """Start pods as Kubernetes does: with a name, an index, and the container's environment and command."""
        spec = container()
        for index in indexes:
            self.named(index)
            environment = {
                "HOME": str(self.root),
                **{each["name"]: each["value"] for each in spec["env"]},
                "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
                "JOB_COMPLETION_INDEX": str(index),
                "RDMA_RAY_NODES": str(self.nodes),
                "RDMA_RAY_WAIT_S": "30",
                "RDMA_RAY_SSHD": "lab-sshd",
                "RDMA_RAY_RUN": str(self.root / "run" / self.host(index)),
                "LAB": str(self.root),
                "LAB_HOST": self.host(index),
                processes.MARK: self.mark(index),
                **self.environment,
            }
            with self.log(index).open("wb") as out:
                self.pods[index] = subprocess.Popen(
                    ["bash", str(self.root / "scripts" / "pod.sh"), *spec["command"][4:]],
                    env={name: value for name, value in environment.items() if value},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )

    def mark(self, index: int) -> str:
        return f"{self.root}/{index}/"

    def log(self, index: int) -> Path:
        return self.root / f"{index}.log"

    def says(self, index: int, text: str) -> None:
        """Wait until a pod has said this."""
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.said(index):
            assert time.monotonic() < deadline, f"not said: {text!r} in\n{self.said(index)}"
            time.sleep(0.1)

    def said(self, index: int) -> str:
        """What a pod has said so far."""
        return self.log(index).read_text()

    def code(self, index: int) -> int:
        """A pod's exit code; waits for it."""
        return self.pods[index].wait(DEADLINE_S)

    def terminate(self, index: int) -> None:
        """Ask a pod to end, as the kubelet does."""
        self.pods[index].send_signal(signal.SIGTERM)

    def kill(self, index: int) -> None:
        """Take a pod away with everything in it."""
        self.pods[index].kill()
        self.pods[index].wait()
        processes.end_marked(self.mark(index))
