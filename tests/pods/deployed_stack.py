"""A cloud stack's objects on a real cluster, and user actions on its Ray from outside: port-forward, Ray's own command,
this project's command line, the Jobs API."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import requests
from pydantic import SecretStr

from infra.catalog.names import DASHBOARD_PORT, NAMESPACE
from infra.catalog.pins import GKE_NETWORK_API, POD_MONITORING_API, RAY_API
from infra.outputs import FORWARDED
from rehearsal.cluster.scaling import CPUS, Scale, pods, scaled
from tests.kubernetes import stack_objects
from tests.kubernetes.queries import is_ready
from tests.pods.jobs import running
from tests.pods.pod_cluster import PodCluster, run_to_end
from tests.workloads.stack_outputs import LOCAL
from tools.kubernetes import builds, kubectl
from tools.kubernetes.api import Api, ApiError, Json, NotYet
from workloads.client.api import Job, JobsApi, UnreachableError

RAY = Path(sys.executable).with_name("ray")
RDMA_RAY = Path(__file__).resolve().parents[2] / "bin" / "rdma-ray"
LEFT_OUT = {
    GKE_NETWORK_API: "GKE's own networks, which need GKE's webhook and its second NICs",
    POD_MONITORING_API: "GKE's collectors find Ray's metrics by it",
    "apps/v1 DaemonSet": "its image is Google's, and installs gIB; a folder of the node replaces what it installs",
    "storage.k8s.io/v1": "a driver of the cloud's",
}
_LOOK_S = 0.5


class DeployedStack:
    """A stack's objects, scaled, on a cluster: `changes` are settings by name, merged into its stack file."""

    def __init__(self, pod_cluster: PodCluster, stack: str, scale: Scale, changes: Mapping[str, Any]) -> None:
        self.pod_cluster = pod_cluster
        self.api = pod_cluster.api
        self.objects: list[Json] = []
        ours, theirs = next((ours, theirs) for name, ours, theirs in stack_objects.stacks() if name == stack)
        for body in stack_objects.registered(kubectl.merged(ours, dict(changes)), theirs, stack):
            kind = stack_objects.kind(body)
            if why := next((why for start, why in LEFT_OUT.items() if kind.startswith(start)), None):
                print(f"left out: {kind} {body['metadata']['name']}: {why}")
                continue
            if scale.shared is not None and (mode := bucket_mode(body)) is not None:
                scale.shared.chmod(mode)
            made, scalings = scaled(body, scale)
            for change in scalings:
                print(f"scaled: {change}")
            self.objects.append(made)

    def one(self, kind: str) -> Json:
        """Return the object of this kind. Raises StopIteration if the stack has none."""
        return next(body for body in self.objects if body["kind"] == kind)

    @property
    def name(self) -> str:
        """Name of the RayCluster or RayService."""
        return str(self.workload["metadata"]["name"])

    @property
    def workload(self) -> Json:
        """The RayCluster or RayService."""
        return next(body for body in self.objects if body["kind"] in ("RayCluster", "RayService"))

    @property
    def token(self) -> str:
        """Ray's token in the stack's Secret."""
        return self.token_in(f"{self.name}-token")

    def token_in(self, secret: str) -> str:
        """Return the token in a Secret of the stack."""
        [found] = [each for each in self.objects if each["kind"] == "Secret" and each["metadata"]["name"] == secret]
        return str(found["stringData"]["auth_token"])

    def apply(self) -> None:
        """Apply the objects server-side in the order of the stack's registrations, the namespace first."""
        self.api.until("the objects of the stack before to be gone", self._free, 120)
        namespace, *others = sorted(self.objects, key=lambda each: each["kind"] != "Namespace")
        self.api.apply(namespace)
        if self.pod_cluster.cluster is not None:
            # The operator, which serves one stack after the other, has lost its role with the namespace before.
            self.pod_cluster.cluster.operators.grant_kuberay()
        for body in others:
            self.api.apply(body)

    def delete(self) -> None:
        """Delete the stack and wait until its pods are gone; its empty namespace ends later."""
        for kind in ("RayJob", "RayService", "RayCluster", "Job"):
            for body in self.objects:
                if body["kind"] == kind:
                    self.api.delete(body["apiVersion"], kind, body["metadata"]["name"], NAMESPACE)
        for pod in self.pods():
            self.kill(pod)
        self.api.until("the pods to be gone", lambda: not self.pods() or None, 240)
        for body in reversed(self.objects):
            if "namespace" not in body["metadata"] and body["kind"] != "Namespace":
                self.api.delete(body["apiVersion"], body["kind"], body["metadata"]["name"])
        # Kubernetes starts after five seconds; the next test waits (namespace_controller.go, 1.36).
        self.api.delete("v1", "Namespace", NAMESPACE)

    def _free(self) -> bool:
        scoped = (body for body in self.objects if "namespace" not in body["metadata"])
        found = [self.api.get(body["apiVersion"], body["kind"], body["metadata"]["name"]) for body in scoped]
        return not any(body and "deletionTimestamp" in body["metadata"] for body in found)

    def pods(self, selector: str = "") -> list[Json]:
        """Return the pods of the stack's namespace."""
        return self.api.list("v1", "Pod", NAMESPACE, selector or None)

    def workers(self) -> list[Json]:
        """Return the worker pods that are not being deleted."""
        found = self.pods("ray.io/node-type=worker")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def head(self) -> Json | None:
        """Return the head's pod when it is ready, else None."""
        return next((pod for pod in self.pods("ray.io/node-type=head") if is_ready(pod)), None)

    def until_another_head(self, lost: Json, within_s: float) -> None:
        """Wait until a head is ready that is not this pod."""

        def another() -> bool | None:
            now = self.head()
            return True if now is not None and now["metadata"]["uid"] != lost["metadata"]["uid"] else None

        self.api.until(f"another head than {lost['metadata']['name']} to be ready", another, within_s)

    def nodes_at(self, addresses: Collection[str]) -> set[str]:
        """Return the nodes of the workers with these addresses."""
        return {pod["spec"]["nodeName"] for pod in self.workers() if pod["status"].get("podIP") in addresses}

    def gpu_nodes(self) -> set[str]:
        """Return the names of both GPU nodes in the cluster."""
        return {self.pod_cluster.nodes["gpu-0"], self.pod_cluster.nodes["gpu-1"]}

    def identities(self) -> set[str]:
        """Return the uids of all pods of the RayCluster."""
        return {pod["metadata"]["uid"] for pod in self.pods("ray.io/is-ray-node=yes")}

    def open(self, takes_pods: bool, *nodes: str) -> None:
        """Make nodes schedulable or not (`kubectl uncordon`, `kubectl cordon`)."""
        for node in nodes:
            patch = {"spec": {"unschedulable": not takes_pods}}
            self.api.patch("v1", "Node", self.pod_cluster.nodes[node], None, patch)

    def kill(self, pod: Json) -> None:
        """Delete a pod without a grace period, as when its machine fails."""
        place = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
        try:
            self.api.request("DELETE", place, body={"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
        except ApiError as problem:
            # Its owner has already deleted it.
            if problem.status != 404:
                raise

    def run(self, command: list[str], within_s: float = 240) -> str:
        """Run a command in its own pod, with the stack's Ray image, until it has succeeded; return its log."""
        [(_, head), *_] = pods(self.workload, "")
        phase, log = run_to_end(
            self.api, head["containers"][0]["image"], command, namespace=NAMESPACE, within_s=within_s
        )
        assert phase == "Succeeded", log
        return log

    def describe(self) -> str:
        """Return the status for the message of a timeout: pods, their phases, and the latest events."""
        lines = []
        for pod in self.pods():
            status = pod["status"]
            states = [
                f"{each['name']}: ready={each['ready']} restarts={each['restartCount']} {each.get('state')}"
                for each in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
            ]
            lines.append(f"{pod['metadata']['name']} {status['phase']} on {pod['spec'].get('nodeName')}: {states}")
        events = self.api.list("v1", "Event", NAMESPACE)
        lines += [
            f"  {event['involvedObject']['name']}: {event['reason']}: {event['message']}" for event in events[-15:]
        ]
        return "\n".join(lines)

    def kubectl(self, *arguments: str) -> list[str]:
        """Return a command line of `kubectl` in the stack's namespace."""
        program = builds.programs("kubectl")["kubectl"]
        return [str(program), f"--kubeconfig={self.pod_cluster.kubeconfig}", "-n", NAMESPACE, *arguments]

    @contextlib.contextmanager
    def forwarded(self) -> Iterator[int]:
        """Run `kubectl port-forward` to the head's Service, as the documentation describes; yield the local port."""
        with kubectl.forwarded(self.pod_cluster.kubeconfig, NAMESPACE, f"svc/{self.name}-head-svc") as port:
            yield port

    def log(self, pod: Json) -> str:
        """Return the log of a pod's first container, by `kubectl logs`: through the API server and the kubelet."""
        command = self.kubectl("logs", pod["metadata"]["name"])
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout

    def has_said(self, pod: Json, word: str) -> bool:
        """Return whether a pod runs and has printed a word."""
        runs = any("running" in each["state"] for each in pod["status"].get("containerStatuses", ()))
        return runs and word in self.log(pod)

    def execute(self, pod: Json, *command: str) -> str:
        """Run a command in a pod's first container, by `kubectl exec`; return its output."""
        container = pod["spec"]["containers"][0]["name"]
        line = self.kubectl("exec", pod["metadata"]["name"], "-c", container, "--", *command)
        return subprocess.run(line, stdout=subprocess.PIPE, text=True, timeout=120, check=True).stdout

    def environment(self, port: int, token: str | None = None) -> dict[str, str]:
        """Return the environment of Ray's commands: the forwarded port, and the stack's token or another."""
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            "RAY_ADDRESS": f"http://127.0.0.1:{port}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token if token is None else token,
            "PYTHONUNBUFFERED": "1",
        }

    def ray(self, port: int, *arguments: str, token: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run the `ray` command with the forwarded port and the stack's token or another."""
        return _done([str(RAY), *arguments], self.environment(port, token), 600)

    def rdma_ray(self, file: Path, *arguments: str) -> str:
        """Run this project's command line on the stack whose outputs are in the file; return what it prints."""
        done = _done([str(RDMA_RAY), *arguments], user(file), 900)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def jobs(self, port: int) -> JobsApi:
        """Call Ray's Jobs API at the port: the requests of the commands, without their start-up time."""
        return JobsApi(f"http://127.0.0.1:{port}", SecretStr(self.token), self.name, timeout_s=60)

    def submit(self, port: int, job: str, code: str, environment: Mapping[str, str]) -> None:
        """Submit Python code as a job, without waiting for it."""
        wanted = {
            "entrypoint": shlex.join(running(code)),
            "submission_id": job,
            "runtime_env": {"env_vars": dict(environment)},
        }
        jobs = self.jobs(port)
        response = requests.post(f"{jobs.address}/api/jobs/", json=wanted, headers=jobs.headers, timeout=60)
        assert response.json()["submission_id"] == job, response.text

    def until_logged(self, port: int, job: str, word: str) -> str:
        """Wait until a job has printed a word; return its log. Raises AssertionError if the job ends before."""

        def said() -> str | None:
            found, text = self._looked_at(port, job)
            if word in text:
                return text
            assert not found.terminal, f"{found.message}\n{text}"
            return None

        return self.api.until(f"job {job} to print {word}", said, 400)

    def until_succeeded(self, port: int, job: str, within_s: float = 600) -> str:
        """Wait until a job has ended; return its log. Raises AssertionError if it has not succeeded."""

        def over() -> tuple[Job, str] | None:
            found, text = self._looked_at(port, job)
            return (found, text) if found.terminal else None

        found, text = self.api.until(f"job {job} to be over", over, within_s)
        assert found.status == "SUCCEEDED", text
        return text

    def _looked_at(self, port: int, job: str) -> tuple[Job, str]:
        client = self.jobs(port)
        # Each poll is a request to the head, so polls are infrequent.
        time.sleep(_LOOK_S)
        try:
            # The status first: an ended job has written all of its log.
            return client.job(job), client.logs(job)
        except UnreachableError as problem:
            raise NotYet(str(problem)) from problem

    def outputs(self, file: Path, **changes: Any) -> Path:
        """Write the outputs that `rdma-ray` reads: the stack's, with a kubeconfig, so that it forwards a port itself.

        GPUs that are only counts cannot run NCCL: a node has CPUs only, and no RDMA NIC, so that gloo is used.
        """
        address = f"http://{FORWARDED}:{DASHBOARD_PORT}"
        ray = LOCAL["ray"] | {"cluster": self.name, "dashboard": address, "jobs": address, "token": self.token}
        nodes = {"min": 0, "max": 2, "gpusPerNode": 0, "cpusPerNode": CPUS}
        own = {"target": "gke", "location": "here", "namespace": NAMESPACE, "nodes": nodes, "ray": ray}
        own["kubeconfig"] = self.pod_cluster.kubeconfig.read_text()
        file.touch(mode=0o600)
        file.write_text(json.dumps(LOCAL | own | changes))
        return file


def user(file: Path) -> dict[str, str]:
    """Return the environment of a user of `rdma-ray` whose stack's outputs are in the file."""
    path = f"{builds.programs('kubectl')['kubectl'].parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"RDMA_RAY_OUTPUTS": str(file), "PATH": path}


def _done(command: list[str], environment: Mapping[str, str], within_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=within_s,
    )


def end_of_rayjob(api: Api, name: str, within_s: float) -> Json:
    """Wait until a RayJob has ended; return its status."""

    def ended() -> Json | None:
        status = (api.get(RAY_API, "RayJob", name, NAMESPACE) or {}).get("status", {})
        return status if status.get("jobDeploymentStatus") in ("Complete", "Failed") else None

    return api.until("the RayJob to end", ended, within_s)


def answer(port: int, token: str | None) -> int:
    """Return the HTTP status of the dashboard for a request of its version."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return requests.get(f"http://127.0.0.1:{port}/api/version", headers=headers, timeout=20).status_code


@contextlib.contextmanager
def following(command: Sequence[str], environment: Mapping[str, str], file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command that follows a log, with its output in a file; stop it at the end if it still runs."""
    with file.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def bucket_mode(body: Mapping[str, Any]) -> int | None:
    """Return the mode that GCS FUSE gives a bucket's folder, for root: `dir-mode` of its options, or 755.

    None if the manifest mounts no bucket. Source: `--dir-mode` of gcsfuse (Cloud Storage FUSE docs, read 2026-11).
    """
    for _, spec in pods(dict(body), ""):
        for volume in spec.get("volumes", []):
            driver = volume.get("csi") or {}
            if driver.get("driver") == "gcsfuse.csi.storage.gke.io":
                text = driver.get("volumeAttributes", {}).get("mountOptions", "")
                options = dict(option.partition("=")[::2] for option in text.split(","))
                return int(options.get("dir-mode", "755"), 8)
    return None
