"""A cloud stack's objects on a real cluster: applied, watched, talked to as a user would."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kubernetes import stack_objects
from tests.pods.jobs import running
from tests.pods.scene import Scene
from tools.kubernetes import builds
from tools.kubernetes.api import ApiError, Json
from tools.kubernetes.scaling import Scale, scaled

NAMESPACE = "ray"
LEFT_OUT = {
    "networking.gke.io/v1": "GKE's own networks, which need GKE's webhook and its second NICs",
    "apps/v1 DaemonSet": "its image is Google's, and installs gIB; a folder of the node stands in for what it installs",
    "v1 PersistentVolume": "a file system of the cloud; a folder of this machine stands in for it",
    "storage.k8s.io/v1": "a driver of the cloud's",
}
RAY = Path(sys.executable).with_name("ray")


@dataclass
class Timeline:
    """When each step was done, in seconds from the beginning."""

    say: Callable[[str], None] = print
    began: float = field(default_factory=time.monotonic)
    steps: dict[str, float] = field(default_factory=dict)

    def done(self, step: str) -> None:
        """Note a step, and say it."""
        self.steps[step] = round(time.monotonic() - self.began, 1)
        self.say(f"{self.steps[step]:7.1f} s  {step}")


class StackOn:
    """A stack's objects on a cluster: `changes` are settings by name, merged into its file's."""

    def __init__(
        self,
        scene: Scene,
        stack: str,
        scale: Scale,
        *,
        changes: Mapping[str, Any] | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        self.scene = scene
        self.api = scene.api
        self.scale = scale
        self.objects = []
        for body in _registered(stack, changes or {}):
            if why := next(
                (why for start, why in LEFT_OUT.items() if stack_objects.kind(body).startswith(start)), None
            ):
                say(f"left out: {stack_objects.kind(body)} {body['metadata']['name']}: {why}")
                continue
            made, told = scaled(body, scale)
            for change in told:
                say(f"scaled: {change}")
            self.objects.append(made)

    def one(self, kind: str) -> Json:
        """The object of this kind. Raises StopIteration where the stack has none."""
        return next(body for body in self.objects if body["kind"] == kind)

    @property
    def name(self) -> str:
        """Of the RayCluster."""
        return str(self.one("RayCluster")["metadata"]["name"])

    @property
    def token(self) -> str:
        """Ray's token, as it stands in the stack's Secret."""
        secret = self.one("Secret")
        return str(secret["stringData"]["auth_token"])

    def apply(self) -> None:
        """Server-side apply in the order of the stack's registrations, its namespace first."""
        for body in sorted(self.objects, key=lambda each: each["kind"] != "Namespace"):
            self.api.apply(body)

    def delete(self) -> None:
        """Delete the namespace and wait until no pod of it is left."""
        for kind in ("RayJob", "RayCluster", "Job"):
            for body in self.objects:
                if body["kind"] == kind:
                    self.api.delete(body["apiVersion"], kind, body["metadata"]["name"], NAMESPACE)
        for pod in self.pods():
            self.kill(pod)
        self.api.until("the pods to be gone", lambda: not self.pods() or None, 120)
        for body in reversed(self.objects):
            if "namespace" not in body["metadata"] and body["kind"] != "Namespace":
                self.api.delete(body["apiVersion"], body["kind"], body["metadata"]["name"])
        self.api.delete("v1", "Namespace", NAMESPACE)
        self.api.until(
            "the namespace to be gone", lambda: self.api.get("v1", "Namespace", NAMESPACE) is None or None, 60
        )

    def pods(self, selector: str = "") -> list[Json]:
        """The pods of the stack's namespace."""
        return self.api.list("v1", "Pod", NAMESPACE, selector or None)

    def workers(self) -> list[Json]:
        """Worker pods that are not being deleted."""
        found = self.pods("ray.io/node-type=worker")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def head(self) -> Json | None:
        """The head's pod when it is ready."""
        return next((pod for pod in self.pods("ray.io/node-type=head") if ready(pod)), None)

    @contextlib.contextmanager
    def forwarded(self, target: str = "") -> Iterator[int]:
        """`kubectl port-forward` to the head's Service, as the documents tell users; yields the local port."""
        kubectl = builds.programs("kubectl")["kubectl"]
        target = target or f"svc/{self.name}-head-svc"
        command = [kubectl, f"--kubeconfig={self.scene.kubeconfig}", "-n", NAMESPACE, "port-forward", target, ":8265"]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            match = re.search(r"127\.0\.0\.1:(\d+) ->", line)
            assert match, f"kubectl port-forward said {line!r}"
            yield int(match.group(1))
        finally:
            process.terminate()
            process.wait(20)
            process.stdout.close()

    def ray(self, port: int, *arguments: str, token: str | None = None, within_s: float = 300) -> str:
        """Run the `ray` command against the forwarded port, with the stack's token; returns what it printed.

        Raises AssertionError with all that it printed when it leaves with another status than 0.
        """
        done = self.try_ray(port, *arguments, token=token, within_s=within_s)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def try_ray(
        self, port: int, *arguments: str, token: str | None = None, within_s: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """As `ray`, whatever its exit status."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            "RAY_ADDRESS": f"http://127.0.0.1:{port}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token if token is None else token,
        }
        return subprocess.run(
            [str(RAY), *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=within_s,
        )

    def submit(self, port: int, job: str, code: str, environment: Mapping[str, str]) -> None:
        """Submit Python code as a job, without waiting for it."""
        settings = json.dumps({"env_vars": dict(environment)})
        arguments = ["--no-wait", "--submission-id", job, "--runtime-env-json", settings, "--", *running(code)]
        self.ray(port, "job", "submit", *arguments)

    def until_logged(self, port: int, job: str, word: str, within_s: float = 240) -> None:
        """Wait until a job has printed a word."""
        self.api.until(
            f"job {job} to print {word}", lambda: word in self.ray(port, "job", "logs", job) or None, within_s
        )

    def until_over(self, port: int, job: str, within_s: float = 120) -> str:
        """Wait until a job is over; returns how, in `ray job status`' words: "succeeded", "failed", "was stopped"."""

        def over() -> str | None:
            match = re.search(rf"Job '{job}' (succeeded|failed|was stopped)", self.ray(port, "job", "status", job))
            return match.group(1) if match else None

        return self.api.until(f"job {job} to be over", over, within_s)

    def identities(self) -> set[str]:
        """The uids of all pods of the RayCluster."""
        return {pod["metadata"]["uid"] for pod in self.pods("ray.io/is-ray-node=yes")}

    def open(self, node: str, takes_pods: bool) -> None:
        """Let a node take pods, or not (`kubectl uncordon`, `kubectl cordon`)."""
        self.api.patch("v1", "Node", self.scene.nodes[node], None, {"spec": {"unschedulable": not takes_pods}})

    def kill(self, pod: Json) -> None:
        """Delete a pod without grace, as when its machine is gone."""
        place = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
        try:
            self.api.request("DELETE", place, body={"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
        except ApiError as problem:
            # Its owner was quicker.
            if problem.status != 404:
                raise

    def run_pod(self, name: str, command: list[str]) -> Json:
        """Run a command in a pod of its own, with the stack's Ray image, and wait until it has succeeded or failed."""
        head = self.one("RayCluster")["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
        spec = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": head["image"], "command": command}],
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
        self.api.create(body)

        def over() -> Json | None:
            pod = self.api.get("v1", "Pod", name, NAMESPACE)
            return pod if pod and pod["status"]["phase"] in ("Succeeded", "Failed") else None

        return self.api.until(f"pod {name} to be over", over, 120)

    def log(self, pod: Json) -> str:
        """What a pod's first container printed, by `kubectl logs`: through the API server and the kubelet."""
        kubectl = str(builds.programs("kubectl")["kubectl"])
        command = [kubectl, f"--kubeconfig={self.scene.kubeconfig}", "-n", NAMESPACE, "logs", pod["metadata"]["name"]]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    def outputs(self, port: int, file: Path) -> Path:
        """Write the outputs that `rdma-ray` reads: the stack's, with the forwarded port.

        GPUs that are only numbers cannot run NCCL: here a node has CPUs alone, and no RDMA NIC, so that gloo is used.
        """
        ray = {
            "cluster": self.name,
            "version": "2.60.0",
            "dashboard": f"http://127.0.0.1:{port}",
            "jobs": f"http://127.0.0.1:{port}",
            "client": "ray://127.0.0.1:10001",
            "token": self.token,
        }
        nodes = {"min": 0, "max": 2, "gpusPerNode": 0, "cpusPerNode": self.scale.cpus}
        fabric: Json = {"transport": "socket", "nics": None, "gbpsPerNic": None, "floors": []}
        outputs = {"target": "gke", "location": "here", "machine": None, "nodes": nodes, "fabric": fabric, "ray": ray}
        file.touch(mode=0o600)
        file.write_text(json.dumps(outputs | {"namespace": NAMESPACE}))
        return file

    def describe(self) -> str:
        """What one wants to see when a wait was in vain: pods, their states, and the latest events."""
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


def _registered(stack: str, changes: Mapping[str, Any]) -> list[Json]:
    ours, theirs = next((ours, theirs) for name, ours, theirs in stack_objects.stacks() if name == stack)
    for name, change in changes.items():
        ours = ours | {name: ours.get(name, {}) | change if isinstance(change, dict) else change}
    return stack_objects.registered(ours, theirs, stack)


def ready(pod: Mapping[str, object]) -> bool:
    """Whether a pod's Ready condition is true."""
    status: Json = dict(pod)["status"]  # type: ignore[assignment]
    return any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", ()))
