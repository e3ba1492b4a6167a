"""User actions on a stack's Ray from outside: port-forward, Ray's own command, this project's CLI, the Jobs API."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from infra.catalog import pins
from rehearsal.cluster.scaling import Scale
from tests.pods.jobs import running
from tests.pods.pod_cluster import PodCluster
from tools.kubernetes import builds, kubectl
from tools.kubernetes.api import Json, NotYet
from workloads.client.api import Api, Job, UnreachableError

NAMESPACE = "ray"
RAY = Path(sys.executable).with_name("ray")
RDMA_RAY = Path(__file__).resolve().parents[2] / "bin" / "rdma-ray"
_LOOK_S = 0.5


class AsUser:
    """A stack's objects (`objects`, scaled by `scale`) on the cluster of `pod_cluster`, for user actions."""

    pod_cluster: PodCluster
    scale: Scale
    objects: list[Json]

    def one(self, kind: str) -> Json:
        """Return the object of this kind. Raises StopIteration if the stack has none."""
        return next(body for body in self.objects if body["kind"] == kind)

    @property
    def name(self) -> str:
        """Name of the RayCluster."""
        return str(self.one("RayCluster")["metadata"]["name"])

    @property
    def token(self) -> str:
        """Ray's token in the stack's Secret."""
        secret = self.one("Secret")
        return str(secret["stringData"]["auth_token"])

    def kubectl(self, *arguments: str) -> list[str]:
        """Return a command line of `kubectl` in the stack's namespace."""
        program = builds.programs("kubectl")["kubectl"]
        return [str(program), f"--kubeconfig={self.pod_cluster.kubeconfig}", "-n", NAMESPACE, *arguments]

    @contextlib.contextmanager
    def forwarded(self, target: str = "") -> Iterator[int]:
        """Run `kubectl port-forward` to the head's Service, as the documentation describes; yield the local port."""
        where = target or f"svc/{self.name}-head-svc"
        with kubectl.forwarded(self.pod_cluster.kubeconfig, NAMESPACE, where) as port:
            yield port

    def log(self, pod: Json) -> str:
        """Return the log of a pod's first container, by `kubectl logs`: through the API server and the kubelet."""
        command = self.kubectl("logs", pod["metadata"]["name"])
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout

    def inside(self, pod: Json, *command: str) -> str:
        """Run a command in a pod's first container, by `kubectl exec`; return its output."""
        container = pod["spec"]["containers"][0]["name"]
        line = self.kubectl("exec", pod["metadata"]["name"], "-c", container, "--", *command)
        return subprocess.run(line, capture_output=True, text=True, timeout=120, check=True).stdout

    def ray(self, port: int, *arguments: str, token: str | None = None, within_s: float = 600) -> str:
        """Run the `ray` command with the forwarded port and the stack's token; return its output.

        Raises AssertionError with the output if the exit status is not 0.
        """
        done = self.try_ray(port, *arguments, token=token, within_s=within_s)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def try_ray(
        self, port: int, *arguments: str, token: str | None = None, within_s: float = 600
    ) -> subprocess.CompletedProcess[str]:
        """Run the `ray` command, whatever its exit status."""
        return subprocess.run(
            [str(RAY), *arguments],
            env=self.environment(port, token),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=within_s,
        )

    def environment(self, port: int, token: str | None = None) -> dict[str, str]:
        """Return the environment of Ray's commands: the forwarded port, and the stack's token or another."""
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            "RAY_ADDRESS": f"http://127.0.0.1:{port}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token if token is None else token,
            "PYTHONUNBUFFERED": "1",
        }

    def rdma_ray(self, file: Path, *arguments: str, within_s: float = 900) -> subprocess.CompletedProcess[str]:
        """Run this project's command line on the stack whose outputs are in the file."""
        command = [str(RDMA_RAY), *arguments]
        environment = os.environ | {"RDMA_RAY_OUTPUTS": str(file)}
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=within_s,
        )

    def jobs(self, port: int) -> Api:
        """Call Ray's Jobs API at the port: the requests of the commands, without their start-up time."""
        return Api(f"http://127.0.0.1:{port}", SecretStr(self.token), self.name, timeout_s=60)

    def submit(self, port: int, job: str, code: str, environment: Mapping[str, str]) -> None:
        """Submit Python code as a job, without waiting for it."""
        wanted = {
            "entrypoint": shlex.join(running(code)),
            "submission_id": job,
            "runtime_env": {"env_vars": dict(environment)},
        }
        headers = self.jobs(port).headers | {"Content-Type": "application/json"}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/api/jobs/", data=json.dumps(wanted).encode(), headers=headers, method="POST"
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["submission_id"] == job

    def until_logged(self, port: int, job: str, word: str, within_s: float = 400) -> str:
        """Wait until a job has printed a word; return its log. Raises AssertionError if the job ends before."""

        def said() -> str | None:
            found, text = self._looked_at(port, job)
            if word in text:
                return text
            assert not found.terminal, f"{found.message}\n{text}"
            return None

        return self.pod_cluster.api.until(f"job {job} to print {word}", said, within_s)

    def until_over(self, port: int, job: str, within_s: float = 240) -> str:
        """Wait until a job has ended; return its status: "succeeded", "failed", "stopped"."""

        def over() -> str | None:
            found, _ = self._looked_at(port, job)
            return found.status.lower() if found.terminal else None

        return self.pod_cluster.api.until(f"job {job} to be over", over, within_s)

    def _looked_at(self, port: int, job: str) -> tuple[Job, str]:
        client = self.jobs(port)
        # Each poll is a request to the head, so polls are infrequent.
        time.sleep(_LOOK_S)
        try:
            # The status first: an ended job has written all of its log.
            return client.job(job), client.logs(job)
        except UnreachableError as problem:
            raise NotYet(str(problem)) from problem

    def outputs(self, port: int, file: Path, changes: Json | None = None) -> Path:
        """Write the outputs that `rdma-ray` reads: the stack's, with the forwarded port.

        GPUs that are only counts cannot run NCCL: a node has CPUs only, and no RDMA NIC, so that gloo is used.
        """
        ray = {
            "cluster": self.name,
            "version": pins.RAY,
            "dashboard": f"http://127.0.0.1:{port}",
            "jobs": f"http://127.0.0.1:{port}",
            "client": "ray://127.0.0.1:10001",
            "token": self.token,
        }
        nodes = {"min": 0, "max": 2, "gpusPerNode": 0, "cpusPerNode": self.scale.cpus}
        fabric: Json = {"transport": "socket", "nics": None, "gbpsPerNic": None, "floors": []}
        outputs: Json = {
            "target": "gke",
            "location": "here",
            "machine": None,
            "nodes": nodes,
            "fabric": fabric,
            "ray": ray,
        }
        file.touch(mode=0o600)
        file.write_text(json.dumps(outputs | {"namespace": NAMESPACE} | (changes or {})))
        return file


def answer(port: int, token: str | None) -> int:
    """Return the HTTP status of the dashboard for a request of its version."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/version", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return int(response.status)
    except urllib.error.HTTPError as refused:
        return refused.code


@dataclass(frozen=True)
class Follower:
    """Command that follows a log, with its output in a file."""

    process: subprocess.Popen[bytes]
    file: Path

    def text(self) -> str:
        """The output so far."""
        return self.file.read_text()

    def said(self, word: str) -> bool:
        """Return whether the output contains a word."""
        return word in self.text()


@contextlib.contextmanager
def following(command: Sequence[str], environment: Mapping[str, str], file: Path) -> Iterator[Follower]:
    """Run a command that follows a log; stop it at the end of the block if it still runs."""
    with file.open("wb") as output:
        process = subprocess.Popen(
            command, env=dict(environment), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield Follower(process, file)
    finally:
        process.kill()
        process.wait()
