"""Checks of Ray's pods: why one is pending, does not start, is refused or was killed; queues, claims and volumes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from workloads.doctor.check import Problem, Severity, check
from workloads.doctor.machines import installer, name_of, waiting_reason
from workloads.doctor.state import State, condition, is_true, labels

Json = dict[str, Any]
PENDING_S = 120
"""Seconds within which a pod may be pending, a container be created, or an object get its first status."""
WAITING_S = 900
"""Seconds after which a wait for the cloud's machines is reported, as a warning."""
START_S = 600
"""Seconds that a scheduled pod has for its volumes, image and containers: an image with CUDA takes minutes."""
DAY_S = 86400


@dataclass(frozen=True)
class Cause:
    """A cause of a pod without a node. `pattern` matches messages of the component in `source`."""

    name: str
    pattern: str
    text: str
    cure: str
    source: str
    severity: Severity = "error"


_GKE = "GoogleCloudPlatform/cluster-autoscaler: pkg/events, read 2026-11"
_AUTOSCALER = "kubernetes/autoscaler: cluster-autoscaler, events and status ConfigMap, read 2026-11"
_AWS = "EC2 Auto Scaling, scaling activities in public reports, read 2026-11"
_SCHEDULER = "kubernetes 1.36.1: pkg/scheduler/framework/plugins"

CAUSES = (
    Cause(
        "quota",
        r"GCE quota exceeded|QUOTA_EXCEEDED|QuotaExceeded|VcpuLimitExceeded|Quota '\S+' exceeded",
        "the cloud refuses the nodes: the quota of the project or account is used up",
        "request more quota for the GPUs of this machine type (docs/gke.md, docs/eks.md), or lower nodes.max",
        f"{_GKE}; {_AWS}",
    ),
    Cause(
        "stockout",
        r"GCE out of resources|ZONE_RESOURCE_POOL_EXHAUSTED|ResourcePoolExhausted|InsufficientInstanceCapacity"
        r"|UnfulfillableCapacity|placeholder-cannot-be-fulfilled|cannot provision any more instances",
        "the zone has no such machines now",
        "wait, or use another zone (location) or kind of capacity (nodes.capacity)",
        f"{_GKE}; {_AUTOSCALER}; {_AWS}",
    ),
    Cause(
        "reservation",
        r"Reservation (?:not ready|capacity exceeded|not found|incompatible)|Invalid Reservation"
        r"|ReservationCapacityExceeded|InvalidCapacityReservation",
        "the reservation does not serve these nodes",
        "compare nodes.reservation with the reservation's zone, machine type, dates and free machines",
        f"{_GKE}; {_AWS}",
    ),
    Cause(
        "addresses",
        r"IP space exhausted|InsufficientFreeAddressesInSubnet",
        "the subnet has no addresses left for nodes or pods",
        "use a larger range for the stack's networks (infra/addresses.py)",
        f"{_GKE}; {_AWS}",
    ),
    Cause(
        "late-nodes",
        r"failed to appear in time|failed to register within",
        "machines were started and did not become nodes in time",
        "read the serial console or system log of one: the network, the image or its start script keeps it away",
        f"{_GKE}; {_AUTOSCALER}",
    ),
    Cause(
        "claim",
        r"cannot allocate all claims|resourceclaim in use|resource claim|device class \S+ does not exist",
        "no node has the devices that the pod claims",
        "kubectl get resourceslices,deviceclasses: is the DRA driver of the NICs there, are the devices taken?",
        _SCHEDULER,
    ),
    Cause(
        "volume",
        r"unbound immediate PersistentVolumeClaims|persistentvolumeclaim \S+ not found"
        r"|didn't find available persistent volumes|bound to non-existent pv",
        "its volume is not available",
        "kubectl -n ray describe pvc: does the file system or bucket behind it exist?",
        _SCHEDULER,
    ),
    Cause(
        "full-pool",
        r"max node group size reached|max cluster .{1,20}limit reached",
        "the node pool is at its maximum",
        "raise nodes.max, or wait for the other pods",
        _AUTOSCALER,
    ),
    Cause(
        "nics",
        r"Insufficient (?:vpc\.amazonaws\.com/efa|networking\.gke\.io\.networks/\S+)",
        "no node has all its RDMA NICs free",
        "see the nodes' allocatable NICs: a device plugin or a network is missing, or another pod holds them",
        _SCHEDULER,
    ),
    Cause(
        "taint",
        r"untolerated taint",
        "the fitting nodes have a taint that the pod does not tolerate",
        "kubectl describe node shows it: remove the taint, or wait if the cloud set it for maintenance",
        _SCHEDULER,
    ),
    Cause(
        "gpus",
        rf"Insufficient {re.escape('nvidia.com/gpu')}",
        "every GPU node is taken",
        "wait, or raise nodes.max; `rdma-ray list` shows the jobs that run",
        _SCHEDULER,
    ),
    Cause(
        "resources",
        r"Insufficient (?:cpu|memory|ephemeral-storage)|Too many pods",
        "no node has enough CPUs, memory or disk",
        "compare the pod's requests with `kubectl describe node`",
        _SCHEDULER,
    ),
    Cause(
        "selector",
        r"didn't match Pod's node affinity/selector",
        "no node has the labels that the pod selects",
        "compare the pod's nodeSelector with the node pool: `make up` sets both",
        _SCHEDULER,
    ),
)
"""Causes by precedence: the first one that matches any message explains the others."""

STARTS = {
    "image": (
        ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"),
        "its image cannot be pulled",
        "compare ray.image with the registry: name, tag, and the nodes' right to read it",
    ),
    "reference": (
        ("CreateContainerConfigError",),
        "a Secret or ConfigMap that it names is missing",
        "make up: it creates the objects that the pods name",
    ),
    "container": (
        (
            "CreateContainerError",
            "RunContainerError",
            "CreatePodSandboxError",
            "PreStartHookError",
            "PostStartHookError",
        ),
        "the container runtime cannot start it",
        "the message names the device, path or command; compare it with ray.image and the node",
    ),
    "crash": (
        ("CrashLoopBackOff",),
        "it ends again and again",
        "kubectl -n ray logs POD --previous shows its last lines",
    ),
}
"""Reasons of the kubelet for a waiting container, with cause and cure (kubernetes 1.36.1: pkg/kubelet/images/types.go,
container/sync_result.go, kuberuntime/kuberuntime_container.go)."""
MOUNTS = (
    "FailedMount",
    "FailedAttachVolume",
    "FailedCreatePodSandBox",
    "FailedPrepareDynamicResources",
    "FailedMapVolume",
)
"""Reasons of the kubelet's events about a pod that it cannot set up (pkg/kubelet/events/event.go)."""


def explained(texts: list[str]) -> Cause | None:
    """Return the cause that the messages about a pod name; None if they name none."""
    return next((cause for cause in CAUSES if any(re.search(cause.pattern, text) for text in texts)), None)


def events_of(state: State, name: str) -> list[Json]:
    """Return the events about an object of Ray's namespace, oldest first."""
    found = [each for each in state.objects("events") if (each.get("involvedObject") or {}).get("name") == name]
    return sorted(found, key=when)


def when(event: Json) -> str:
    """Return the time of an event's last occurrence."""
    series = event.get("series") or {}
    return str(event.get("lastTimestamp") or series.get("lastObservedTime") or event.get("eventTime") or "")


def backoffs(state: State) -> list[str]:
    """Return why the autoscaler leaves node groups alone for a while, from its status (ConfigMap in kube-system)."""
    found = []
    for body in state.objects("autoscaler"):
        status = yaml.safe_load((body.get("data") or {}).get("status") or "")
        for group in status.get("nodeGroups") or [] if isinstance(status, dict) else []:
            up = group.get("scaleUp") or {}
            if up.get("status") == "Backoff":
                info = up.get("backoffInfo") or {}
                found.append(f"{group.get('name')}: {info.get('errorCode')}: {info.get('errorMessage')}")
    return found


def on_autoscaler(state: State) -> list[str]:
    """Return the autoscaler's warnings that name no pod, such as those of EKS' Cluster Autoscaler."""
    warned = [event for event in state.objects("system events") if event.get("type") == "Warning"]
    return [
        str(event.get("message"))
        for event in warned
        if "autoscaler" in str((event.get("source") or {}).get("component"))
    ]


@check("pods", "pods", "events", cure="kubectl -n ray describe pod POD")
def pods(state: State) -> Iterator[Problem]:
    """A pod of Ray is pending, does not start, or is not ready: by quota, stockout, taint, claim, image and more."""
    installing = {problem.where.rpartition("node ")[2] for problem in installer(state)}
    for pod in state.objects("pods"):
        phase, age = (pod.get("status") or {}).get("phase"), state.age(pod["metadata"].get("creationTimestamp"))
        if phase in ("Succeeded", "Failed") or pod["metadata"].get("deletionTimestamp") or is_true(pod, "Ready"):
            continue
        if condition(pod, "PodScheduled").get("status") == "False":
            yield from _without_node(state, pod, age)
        elif pod["spec"].get("nodeName") not in installing:
            yield from _not_started(state, pod, age)


def _without_node(state: State, pod: Json, age: float) -> Iterator[Problem]:
    where, scheduled = f"pod {name_of(pod)}", condition(pod, "PodScheduled")
    message = str(scheduled.get("message") or scheduled.get("reason"))
    if scheduled.get("reason") == "SchedulingGated" or _volume_problem(state, pod):
        return  # the queue or the volume is reported itself
    events = [(event.get("reason"), str(event.get("message"))) for event in events_of(state, name_of(pod))]
    failed = [text for reason, text in events if reason == "FailedScaleUp"]
    refused = [text for reason, text in events if reason == "NotTriggerScaleUp"]
    last = next((reason for reason, _ in reversed(events) if str(reason).endswith("ScaleUp")), None)
    outside = [*backoffs(state), *on_autoscaler(state)]
    # The scheduler's message lists why each node does not fit, whose pools may still grow.
    sure = explained([*failed, *outside]) or explained(refused)
    if sure is not None:
        shown = next(text for text in [*failed, *outside, *refused] if re.search(sure.pattern, text))
        yield Problem(where, f"no node: {sure.text}", shown, sure.cure, sure.severity)
    elif last == "TriggeredScaleUp":
        if age > WAITING_S:
            shown = next(text for reason, text in reversed(events) if reason == last)
            cure = (
                "wait: the cloud reports no failure; `rdma-ray inspect` keeps the events for a question to its support"
            )
            yield Problem(where, f"has waited {age / 60:.0f} min for its node", shown, cure, "warning")
    elif age > PENDING_S:
        cause = explained([message])
        text = "no node fits" if cause is None else f"no node: {cause.text}"
        yield Problem(
            where, text, (refused or [message])[-1] if cause is None else message, cause.cure if cause else None
        )


def _not_started(state: State, pod: Json, age: float) -> Iterator[Problem]:
    where, waiting = f"pod {name_of(pod)}", waiting_reason(pod)
    for reasons, cause, cure in STARTS.values():
        if any(f" {reason}" in waiting for reason in reasons):
            yield Problem(where, cause, waiting, cure)
            return
    if age < START_S:
        return
    setups = [event for event in events_of(state, name_of(pod)) if event.get("reason") in MOUNTS]
    if setups:
        cure = "the message names the volume, network or device: does it exist, and may this node use it?"
        yield Problem(where, "the node cannot set it up", f"{setups[-1]['reason']}: {setups[-1]['message']}", cure)
    else:
        ready = condition(pod, "Ready")
        shown = waiting or str(ready.get("message") or ready.get("reason") or f"phase {pod['status'].get('phase')}")
        yield Problem(where, f"not ready for {age / 60:.0f} min", shown, f"kubectl -n ray logs {name_of(pod)}")


@check(
    "refused-pods",
    "events",
    "rayclusters",
    cure="the message names the webhook, policy or quota that refuses; `make up` restores the stack's own",
)
def refused_pods(state: State) -> Iterator[Problem]:
    """A pod of Ray cannot be created: a webhook, a policy or a ResourceQuota refuses it."""
    for body in (*state.objects("rayclusters"), *state.objects("jobs")):
        failed = [each for each in events_of(state, name_of(body)) if str(each.get("reason")) in REFUSED]
        created = [each for each in events_of(state, name_of(body)) if str(each.get("reason")) in CREATED]
        if failed and (not created or when(failed[-1]) > when(created[-1])):
            yield Problem(f"{body['kind']} {name_of(body)}", "its pods are refused", str(failed[-1].get("message")))


REFUSED = ("FailedToCreateHeadPod", "FailedToCreateWorkerPod", "FailedCreate")
CREATED = ("CreatedHeadPod", "CreatedWorkerPod", "SuccessfulCreate")
"""Reasons of events of KubeRay (ray-operator/controllers/ray/utils/constant.go, 1.6.2) and of the Job controller."""


@check(
    "memory", "pods", cure="raise the pod's memory, or keep less in it: ray.put and actors hold memory until they end"
)
def memory(state: State) -> Iterator[Problem]:
    """A container of Ray was killed for its memory within the last day."""
    for pod in state.objects("pods"):
        for each in (pod.get("status") or {}).get("containerStatuses") or []:
            states = (each.get("state") or {}, each.get("lastState") or {})
            ended: Json = next((one["terminated"] for one in states if "terminated" in one), {})
            if ended.get("reason") == "OOMKilled" and state.age(ended.get("finishedAt")) < DAY_S:
                text = f"OOMKilled at {ended.get('finishedAt')}, restarted {each.get('restartCount')} times"
                lost = ", and every job with it" if _is_head(pod) else ""
                yield Problem(
                    f"pod {name_of(pod)}, container {each['name']}", f"it was killed for its memory{lost}", text
                )


@check("restarts", "pods", cure="kubectl -n ray logs POD --previous shows its last lines")
def restarts(state: State) -> Iterator[Problem]:
    """The head restarted within the last day, which ends every job."""
    for pod in filter(_is_head, state.objects("pods")):
        for each in (pod.get("status") or {}).get("containerStatuses") or []:
            ended = (each.get("lastState") or {}).get("terminated") or {}
            recent = state.age(ended.get("finishedAt")) < DAY_S
            if each["name"] == "ray-head" and ended and recent and ended.get("reason") != "OOMKilled":
                text = f"exit code {ended.get('exitCode')} ({ended.get('reason')}) at {ended.get('finishedAt')}"
                yield Problem(f"pod {name_of(pod)}", "the head restarted", text)


def _is_head(pod: Json) -> bool:
    return labels(pod).get("ray.io/node-type") == "head"


def _volume_problem(state: State, pod: Json) -> bool:
    named = {(each.get("persistentVolumeClaim") or {}).get("claimName") for each in pod["spec"].get("volumes") or []}
    return bool(named & {name_of(claim) for claim in _unbound(state)})


def _unbound(state: State) -> list[Json]:
    return [
        claim
        for claim in state.objects("volume claims")
        if (claim.get("status") or {}).get("phase") != "Bound"
        and state.age(claim["metadata"].get("creationTimestamp")) > PENDING_S
    ]


@check("volumes", "volume claims", cure="kubectl -n ray describe pvc: does the file system or bucket behind it exist?")
def volumes(state: State) -> Iterator[Problem]:
    """A volume claim is not bound, so no pod with it starts."""
    for claim in _unbound(state):
        last = [str(event.get("message")) for event in events_of(state, name_of(claim))][-1:]
        text = f"phase {(claim.get('status') or {}).get('phase')}"
        yield Problem(
            f"PersistentVolumeClaim {name_of(claim)}", "the volume claim is not bound", "; ".join([text, *last])
        )


@check("claims", "claims", "pods", cure="kubectl -n ray delete resourceclaim NAME, when no pod uses it")
def claims(state: State) -> Iterator[Problem]:
    """A claim holds devices for a pod that does not exist, or cannot be deleted."""
    uids = {pod["metadata"].get("uid") for pod in state.objects("pods")}
    for claim in state.objects("claims"):
        users = (claim.get("status") or {}).get("reservedFor") or []
        gone = [each["name"] for each in users if each.get("resource") == "pods" and each.get("uid") not in uids]
        if state.age(claim["metadata"].get("deletionTimestamp")) > PENDING_S:
            text = f"finalizers: {', '.join(claim['metadata'].get('finalizers') or [])}"
            yield Problem(
                f"ResourceClaim {name_of(claim)}", "its deletion does not end, and its devices stay taken", text
            )
        elif gone and len(gone) == len(users):
            yield Problem(f"ResourceClaim {name_of(claim)}", "holds devices for pods that are gone", ", ".join(gone))
