"""A cloud stack's objects on a real cluster: apply, watch, delete."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.catalog.pins import GKE_NETWORK_API
from rehearsal.cluster.scaling import Scale, bucket_mode, scaled
from tests.kubernetes import stack_objects
from tests.pods.as_user import NAMESPACE as NAMESPACE
from tests.pods.as_user import AsUser
from tests.pods.pod_cluster import PodCluster
from tools.kubernetes.api import ApiError, Json

LEFT_OUT = {
    GKE_NETWORK_API: "GKE's own networks, which need GKE's webhook and its second NICs",
    "apps/v1 DaemonSet": "its image is Google's, and installs gIB; a folder of the node stands in for what it installs",
    "v1 PersistentVolume": "a file system of the cloud; a folder of this machine stands in for it",
    "storage.k8s.io/v1": "a driver of the cloud's",
}


@dataclass
class Timeline:
    """Times of steps, in seconds from the start."""

    say: Callable[[str], None] = print
    began: float = field(default_factory=time.monotonic)
    steps: dict[str, float] = field(default_factory=dict)

    def done(self, step: str) -> None:
        """Record and print a step."""
        self.steps[step] = round(time.monotonic() - self.began, 1)
        self.say(f"{self.steps[step]:7.1f} s  {step}")


class DeployedStack(AsUser):
    """A stack's objects on a cluster: `changes` are settings by name, merged into its stack file."""

    def __init__(
        self,
        pod_cluster: PodCluster,
        stack: str,
        scale: Scale,
        *,
        changes: Mapping[str, Any] | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        self.pod_cluster = pod_cluster
        self.api = pod_cluster.api
        self.scale = scale
        self.objects = []
        for body in _registered(stack, changes or {}):
            if why := next(
                (why for start, why in LEFT_OUT.items() if stack_objects.kind(body).startswith(start)), None
            ):
                say(f"left out: {stack_objects.kind(body)} {body['metadata']['name']}: {why}")
                continue
            if scale.shared is not None and (mode := bucket_mode(body)) is not None:
                scale.shared.chmod(mode)
            made, scalings = scaled(body, scale)
            for change in scalings:
                say(f"scaled: {change}")
            self.objects.append(made)

    def apply(self) -> None:
        """Apply the objects server-side in the order of the stack's registrations, the namespace first."""
        self.api.until("the namespace of the stack before to be gone", self._free, 120)
        for body in sorted(self.objects, key=lambda each: each["kind"] != "Namespace"):
            self.api.apply(body)

    def delete(self) -> None:
        """Delete the stack and wait until its pods are gone; its empty namespace ends later."""
        for kind in ("RayJob", "RayCluster", "Job"):
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
        namespace = self.api.get("v1", "Namespace", NAMESPACE)
        return namespace is None or namespace["status"]["phase"] != "Terminating"

    def pods(self, selector: str = "") -> list[Json]:
        """Return the pods of the stack's namespace."""
        return self.api.list("v1", "Pod", NAMESPACE, selector or None)

    def workers(self) -> list[Json]:
        """Return the worker pods that are not being deleted."""
        found = self.pods("ray.io/node-type=worker")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def head(self) -> Json | None:
        """Return the head's pod when it is ready, else None."""
        return next((pod for pod in self.pods("ray.io/node-type=head") if ready(pod)), None)

    def identities(self) -> set[str]:
        """Return the uids of all pods of the RayCluster."""
        return {pod["metadata"]["uid"] for pod in self.pods("ray.io/is-ray-node=yes")}

    def open(self, node: str, takes_pods: bool) -> None:
        """Make a node schedulable or not (`kubectl uncordon`, `kubectl cordon`)."""
        self.api.patch("v1", "Node", self.pod_cluster.nodes[node], None, {"spec": {"unschedulable": not takes_pods}})

    def bind(self, pod: Json, node: str) -> None:
        """Bind a pod to a node in place of the scheduler, also to a cordoned one."""
        target = {"apiVersion": "v1", "kind": "Node", "name": self.pod_cluster.nodes[node]}
        name = pod["metadata"]["name"]
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self.api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/binding", body=body)

    def kill(self, pod: Json) -> None:
        """Delete a pod without a grace period, as when its machine fails."""
        place = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
        try:
            self.api.request("DELETE", place, body={"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
        except ApiError as problem:
            # Its owner has already deleted it.
            if problem.status != 404:
                raise

    def run_pod(self, name: str, command: list[str]) -> Json:
        """Run a command in its own pod, with the stack's Ray image, and wait until it has succeeded or failed."""
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

        return self.api.until(f"pod {name} to be over", over, 240)

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


def _registered(stack: str, changes: Mapping[str, Any]) -> list[Json]:
    ours, user_cluster = next(
        (ours, user_cluster) for name, ours, user_cluster in stack_objects.stacks() if name == stack
    )
    for name, change in changes.items():
        ours = ours | {name: ours.get(name, {}) | change if isinstance(change, dict) else change}
    return stack_objects.registered(ours, user_cluster, stack)


def ready(pod: Mapping[str, object]) -> bool:
    """Return whether a pod's Ready condition is true."""
    status: Json = dict(pod)["status"]  # type: ignore[assignment]
    return any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", ()))
