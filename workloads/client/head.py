"""The Ray nodes of a stack in Kubernetes: their pods, the head's Service, and why there is none yet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from infra.catalog.names import (
    CHECK_FAILED,
    GROUP_LABEL,
    JOB_INDEX,
    JOB_NAME,
    NODE_CHECK,
    NODE_TYPE,
    RAY_CLUSTER,
    SERVE_PORT,
)
from infra.outputs import Outputs
from workloads.client.kubectl import Kubectl
from workloads.exits import WorkloadError
from workloads.untrusted import MALFORMED

Json = dict[str, Any]
LONGEST = 1_000
"""Characters of the reason why a node is kept out."""
KUBERNETES_KINDS = {"cluster": "raycluster", "job": "rayjob", "indexed-job": "job", "service": "rayservice"}
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
"""Name of a pod or a container (Kubernetes docs, overview/working-with-objects/names, read 2026-11)."""


def service(kubectl: Kubectl, outputs: Outputs, port: int) -> str:
    """Return the name of the Service with a port, as KubeRay and infra/kubernetes/indexed_job.py form it: the head's,
    or that of Ray Serve, which is the same for all clusters of a RayService.

    WorkloadError if a RayJob or RayService has no RayCluster.
    """
    with _as_expected():
        return f"{outputs.ray.cluster}-serve-svc" if port == SERVE_PORT else f"{_cluster(kubectl, outputs)}-head-svc"


def explain(kubectl: Kubectl, outputs: Outputs) -> str | None:
    """Return why the head does not answer, in one line; None if its pod is ready. WorkloadError if kubectl fails."""
    with _as_expected():
        return _explain(kubectl, outputs)


def places(kubectl: Kubectl, outputs: Outputs) -> list[RayHost]:
    """Return the pods of Ray's nodes that have not ended, the newest first. WorkloadError as for `service`."""
    with _as_expected():
        label = JOB_NAME if outputs.ray.mode == "indexed-job" else RAY_CLUSTER
        pods = kubectl.get("pods", f"--selector={label}={_cluster(kubectl, outputs)}")
        phases = ("Succeeded", "Failed")
        return [_place(pod) for pod in _newest_first(pods) if (pod.get("status") or {}).get("phase") not in phases]


@dataclass(frozen=True)
class RayHost:
    """Where a node of Ray runs: a pod and its container, or a host. Its `name` may go into a command line.

    Attributes:
        addresses: What `status`, `top` and kubectl call it.
        problem: Why nothing can run there; None if it can.
    """

    name: str
    addresses: tuple[str, ...]
    head: bool
    container: str = ""
    problem: str | None = None


def _place(pod: Json) -> RayHost:
    """Return the place of a pod. Ray's container is the first one (ray-project/kuberay#1379, read 2026-11)."""
    name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]["name"]
    if not (_NAME.fullmatch(name) and _NAME.fullmatch(container)):
        raise ValueError(f"{name!r} or {container!r} is not the name of a pod or a container")
    status, labels = pod.get("status") or {}, pod["metadata"].get("labels") or {}
    addresses = (name, status.get("podIP"), pod["spec"].get("nodeName"))
    return RayHost(
        name=name,
        addresses=tuple(address for address in addresses if isinstance(address, str)),
        head=labels.get(NODE_TYPE) == "head" or labels.get(JOB_INDEX) == "0",
        container=container,
        problem=None if status.get("phase") == "Running" else pod_state(pod),
    )


def _newest_first(pods: list[Json]) -> list[Json]:
    return sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True)


def _explain(kubectl: Kubectl, outputs: Outputs) -> str | None:
    cluster = _cluster(kubectl, outputs)
    head = (
        {JOB_NAME: cluster, JOB_INDEX: "0"}
        if outputs.ray.mode == "indexed-job"
        else {RAY_CLUSTER: cluster, NODE_TYPE: "head"}
    )
    pods = kubectl.get("pods", f"--selector={','.join(f'{key}={value}' for key, value in head.items())}")
    if not pods:
        return f"there is no head yet: {_waiting(kubectl, outputs)}"
    pod = _newest_first(pods)[0]
    return None if (state := pod_state(pod)) is None else f"the head's pod {pod['metadata']['name']} is {state}"


def pod_state(pod: Json) -> str | None:
    """Return a pod's phase with the reason, as Kubernetes reports it; None if the pod is ready."""
    status = pod.get("status") or {}
    conditions = {found["type"]: found for found in status.get("conditions") or ()}
    if conditions.get("Ready", {}).get("status") == "True":
        return None
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waiting = [found["state"]["waiting"] for found in containers if found.get("state", {}).get("waiting")]
    failed = [found for found in conditions.values() if found.get("status") == "False"]
    reasons = [status, *waiting, *failed]
    reason = next((text for found in reasons if (text := found.get("message") or found.get("reason"))), "no reason yet")
    return f"{status.get('phase', 'Unknown')}: {' '.join(reason.split())}"


def failing_checks(pods: Iterable[Json], events: Iterable[Json]) -> Iterator[tuple[Json, str]]:
    """Yield each pod whose check of its node (`ray.check`) does not end, and why: the message of its last event."""
    reasons: dict[str, Json] = {}
    for event in events:
        uid = str((event.get("involvedObject") or {}).get("uid"))
        if event.get("reason") == CHECK_FAILED and _time(event) >= _time(reasons.get(uid) or {}):
            reasons[uid] = event
    for pod in pods:
        reason = reasons.get(str(pod["metadata"].get("uid")))
        for each in (pod.get("status") or {}).get("initContainerStatuses") or ():
            if reason and each.get("name") == NODE_CHECK and "running" in (each.get("state") or {}):
                yield pod, " ".join(str(reason.get("message")).split())[:LONGEST]


def kept_out(pods: Iterable[Json], events: Iterable[Json]) -> dict[str, str]:
    """Return the reason of each node that keeps its worker out, by node."""
    return {str(pod["spec"].get("nodeName")): reason for pod, reason in failing_checks(pods, events)}


def _time(event: Json) -> str:
    return str(event.get("lastTimestamp") or "")


def kept_out_of(kubectl: Kubectl) -> dict[str, str]:
    """Return `kept_out` of the GPU workers in the namespace. WorkloadError if kubectl fails."""
    with _as_expected():
        events = kubectl.get("events", f"--field-selector=reason={CHECK_FAILED}")
        return kept_out(kubectl.get("pods", f"--selector={GROUP_LABEL}"), events) if events else {}


@contextmanager
def _as_expected() -> Iterator[None]:
    """Raise WorkloadError for an object whose fields are not as KubeRay, Kueue and Kubernetes write them."""
    try:
        yield
    except MALFORMED as error:
        raise WorkloadError(f"an object of the cluster is not as expected ({type(error).__name__}: {error})") from None


def _cluster(kubectl: Kubectl, outputs: Outputs) -> str:
    """Return the name of the RayCluster or Indexed Job."""
    name = outputs.ray.cluster
    if outputs.ray.mode not in ("job", "service"):
        return name
    # The RayCluster of a RayJob has a generated name, and that of a RayService another one after each upgrade.
    kind = "RayJob" if outputs.ray.mode == "job" else "RayService"
    [body] = kubectl.get(f"{kind.lower()}s.ray.io", name)
    status = body.get("status") or {}
    for each in (status, status.get("activeServiceStatus") or {}, status.get("pendingServiceStatus") or {}):
        if found := each.get("rayClusterName"):
            return str(found)
    state = status.get("jobDeploymentStatus") or "new"
    raise WorkloadError(f"there is no head: {kind} {name} is {state}; {_waiting(kubectl, outputs)}")


USUAL = ("QuotaReserved", "Admitted", "PodsReady", "Finished", "Requeued")
"""Conditions of a Workload that are true as it progresses; all others name what stopped it, such as Evicted, Preempted,
DeactivationTarget, BlockedOnPreemptionGates (kueue 0.19.2: apis/kueue/v1beta2/workload_types.go)."""
UNMET = ("Rejected", "Retry")
"""States of an admission check that ended an admission (the same file)."""


def _waiting(kubectl: Kubectl, outputs: Outputs) -> str:
    """Return what a workload without pods waits for."""
    name, kind = outputs.ray.cluster, KUBERNETES_KINDS[outputs.ray.mode]
    if outputs.queue:
        for workload in kubectl.get("workloads.kueue.x-k8s.io"):
            owners = {owner["name"] for owner in workload["metadata"].get("ownerReferences") or ()}
            status = workload.get("status") or {}
            told = [found for found in status.get("conditions") or () if found.get("message")]
            stopped = [found["message"] for found in told if found["status"] == "True" and found["type"] not in USUAL]
            checks = [found for found in status.get("admissionChecks") or () if found.get("message")]
            stopped[:0] = [found["message"] for found in checks if found.get("state") in UNMET]
            failed = [found["message"] for found in told if found["status"] == "False"]
            if name in owners and (stopped or failed):
                what = "is stopped" if stopped else "waits"
                return f"it {what} in queue {outputs.queue}: {' '.join([*stopped, *failed][0].split())}"
    return f"see `kubectl -n {outputs.namespace} describe {kind} {name}`, or `rdma-ray doctor`"
