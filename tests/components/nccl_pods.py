"""NCCL Jobs on this machine: processes as pods, with fakes of the programs that tests lack.

The scripts are those of the ConfigMap, with the environment and the mpirun command of the manifest. `ssh` runs its
command with the folder of the target pod and fails when that pod or its sshd has ended; `getent` resolves the names
that a test has registered; `mpirun` records its arguments and runs the measurement of the test. `pod_log` logs what a
pod writes, and its other processes end with its first, as those of a container do.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from infra.local import processes
from infra.nccl_job import Sweep, nccl_job
from infra.settings import parse
from tests.clone import executable, wait_until
from tests.components import pod_log
from tests.unit.stacks import GKE, changed
from workloads.nccl.job_manifest import manifests

DEADLINE_S = 60.0
# A child that is forked while a script is open for writing inherits the descriptor: to run the script fails (ETXTBSY).
WRITE_OR_START = threading.Lock()
DOMAIN = "lab.ray.svc.cluster.local"

FAKES = {
    "hostname": 'echo "$LAB_HOST"',
    "getent": 'test -e "$LAB/names/$2" && echo "10.0.0.7 $2"',
    # With the pod, which leads its session: a container's processes end with it.
    "lab-sshd": 'read -ra own </proc/$$/stat; echo $$ "${own[5]}" >"$LAB/up/$LAB_HOST"; exec sleep 300',
    "ssh": """
host=${@: -2:1} line=${@: -1}
serves() {
    [[ -e $LAB/up/$host ]] && read -r sshd pod <"$LAB/up/$host" && kill -0 "$sshd" &&
        [[ $(<"/proc/$pod/stat") == *") "[^Z]* ]]
} 2>/dev/null
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
    """Return the container of a Job of two nodes on GKE, whose image has mpirun on its PATH."""
    (job,) = (each for each in manifests(nccl_job(parse(GKE), Sweep(), name="lab")) if each["kind"] == "Job")
    return dict(job["spec"]["template"]["spec"]["containers"][0])


def scripts() -> Mapping[str, str]:
    """Return the data of the ConfigMap."""
    (found,) = (each for each in manifests(nccl_job(parse(changed(GKE, {})), Sweep())) if each["kind"] == "ConfigMap")
    return dict(found["data"])


@dataclass
class Lab:
    """One Job. `measurement` is what mpirun runs: lines of bash. Names resolve once their pods are started.

    `merged`: the image's entry point redirects stderr to stdout.
    """

    root: Path
    nodes: int = 2
    measurement: str = 'echo "# Out of bounds values : 0 OK"'
    environment: Mapping[str, str] = field(default_factory=dict)
    merged: bool = False
    pods: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    logs: dict[int, threading.Thread] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for folder in ("bin", "names", "up", "run", "scripts"):
            (self.root / folder).mkdir(parents=True)
        for name, text in FAKES.items():
            self.add(name, text)
        for name, text in scripts().items():
            (self.root / "scripts" / name).write_text(text)
        (self.root / "measurement").write_text(self.measurement + "\n")

    def add(self, program: str, text: str) -> None:
        """Add a program of bash to the PATH of the pods."""
        with WRITE_OR_START:
            executable(self.root / "bin" / program, f"#!/bin/bash\n{text}\n")

    def host(self, index: int) -> str:
        return f"lab-{index}.{DOMAIN}"

    def named(self, index: int) -> None:
        """Make the name of a pod resolve."""
        (self.root / "names" / self.host(index)).touch()

    def start(self, *indexes: int) -> None:
        """Start pods as Kubernetes does: with a name, an index, and the environment and command of the container."""
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
            with WRITE_OR_START:
                pod = self.pods[index] = subprocess.Popen(
                    ["bash", str(self.root / "scripts" / "pod.sh"), *spec["command"][4:]],
                    env={name: value for name, value in environment.items() if value},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT if self.merged else subprocess.PIPE,
                    start_new_session=True,
                )
            streams = [each for each in (pod.stdout, pod.stderr) if each is not None]
            self.log(index).touch()
            self.logs[index] = threading.Thread(target=pod_log.write, args=(self.log(index), *streams), daemon=True)
            self.logs[index].start()

    def mark(self, index: int) -> str:
        return f"{self.root}/{index}/"

    def log(self, index: int) -> Path:
        """Return the file of the container runtime: a collector reads it as it is."""
        return self.root / f"{index}.log"

    def wait_for(self, index: int, text: str) -> None:
        """Wait until a text is in the log of a pod."""
        wait_until(lambda: text in self.output(index), lambda: f"{text!r} in\n{self.output(index)}", DEADLINE_S)

    def wait_until_met(self, index: int) -> None:
        """Wait until a pod has logged in to pod 0, which may have started mpirun before."""
        answer = self.root / "run" / self.host(index) / "answer"
        wait_until(lambda: answer.exists() and answer.stat().st_size, lambda: self.output(index), DEADLINE_S)

    def output(self, index: int) -> str:
        """Return the log of a pod so far, as `kubectl logs` prints it."""
        return pod_log.printed(self.log(index).read_text())

    def code(self, index: int) -> int:
        """Wait for the end of a pod and of its log; return its exit code."""
        code = self.pods[index].wait(DEADLINE_S)
        deadline = time.monotonic() + DEADLINE_S
        while True:
            for process in processes.marked(self.mark(index)):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            self.logs[index].join(0.1)
            if not self.logs[index].is_alive():
                return code
            assert time.monotonic() < deadline, f"a process of another pod holds the streams of pod {index}"

    def terminate(self, index: int) -> None:
        """Terminate a pod as the kubelet does."""
        self.pods[index].send_signal(signal.SIGTERM)

    def kill(self, index: int) -> None:
        """Kill a pod and all its processes."""
        self.pods[index].kill()
        self.code(index)
