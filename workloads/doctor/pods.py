"""Checks of Ray's pods: why one is pending, does not start, is refused or was killed; queues, claims and volumes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from infra.catalog.names import GPU
from workloads.client.head import failing_checks, kept_out
from workloads.doctor.causes import CAUSES, CREATE_OBJECTS, MOUNTING, Cause, first
from workloads.doctor.check import Problem, check
from workloads.doctor.machines import daemons_on, installer, machine_of, settled, waiting_reason
from workloads.doctor.objects import condition, is_true, name_of
from workloads.doctor.state import State

Json = dict[str, Any]
PENDING_S = 120
"""Seconds within which a pod must leave Pending, a container be created, or an object get its first status."""
WAITING_S = 900
"""Seconds after which a wait for the cloud's machines is reported, as a warning."""
START_S = 600
"""Seconds that a scheduled pod has for its volumes, image and containers: an image with CUDA takes minutes."""
DAY_S = 86400

STARTS = {
    "image": (
        ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"),
        "its image cannot be pulled",
        "compare ray.image with the registry: name, tag, and the nodes' right to read it",
    ),
    "reference": (
        ("CreateContainerConfigError",),
        "a Secret or ConfigMap that it names is missing",
        CREATE_OBJECTS,
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
    """Return the cause that the messages about a pod without a node name; None if they name none."""
    return first(CAUSES, texts)


def events_of(state: State, name: str) -> list[Json]:
    """Return the events about an object of Ray's namespace, oldest first."""
    events = [each for each in state.objects("events") if (each.get("involvedObject") or {}).get("name") == name]
    return sorted(events, key=when)


def when(event: Json) -> str:
    """Return the time of an event's last occurrence."""
    series = event.get("series") or {}
    return str(event.get("lastTimestamp") or series.get("lastObservedTime") or event.get("eventTime") or "")


def backoffs(state: State) -> list[str]:
    """Return why the autoscaler leaves node groups alone for a while, from its status (ConfigMap in kube-system)."""
    lines = []
    for body in state.objects("autoscaler"):
        status = yaml.safe_load((body.get("data") or {}).get("status") or "")
        for group in status.get("nodeGroups") or [] if isinstance(status, dict) else []:
            up = group.get("scaleUp") or {}
            if up.get("status") == "Backoff":
                info = up.get("backoffInfo") or {}
                lines.append(f"{group.get('name')}: {info.get('errorCode')}: {info.get('errorMessage')}")
    return lines


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
    daemons = {name_of(pod) for pod, *_ in daemons_on(state)}  # `daemons` reports them
    checked = {name_of(pod) for pod, _ in failing_checks(state.objects("pods"), state.objects("events"))}
    for pod in state.objects("pods"):
        if name_of(pod) in daemons or name_of(pod) in checked:  # `node-check` reports these
            continue
        phase, age = (pod.get("status") or {}).get("phase"), state.age(pod["metadata"].get("creationTimestamp"))
        if phase in ("Succeeded", "Failed") or pod["metadata"].get("deletionTimestamp") or is_true(pod, "Ready"):
            continue
        if condition(pod, "PodScheduled").get("status") == "False":
            yield from _without_node(state, pod, age)
        elif pod["spec"].get("nodeName") not in installing:
            yield from _not_started(state, pod, age)


@check(
    "node-check",
    "pods",
    "events",
    cure="kubectl cordon NODE, delete the pod, and delete the node: its pool adds another (docs/health.md)",
)
def node_check(state: State) -> Iterator[Problem]:
    """A node keeps its worker out: a GPU, a NIC or the driver is not as it should be (ray.check)."""
    for node, reason in kept_out(state.objects("pods"), state.objects("events")).items():
        yield Problem(f"node {node}", "ray.check keeps it out", reason)


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
        yield _unplaced(state, pod, sure, shown)
    elif last == "TriggeredScaleUp":
        if age > WAITING_S:
            shown = next(text for reason, text in reversed(events) if reason == last)
            cure = (
                "wait: the cloud reports no failure; `rdma-ray inspect` keeps the events for a question to its support"
            )
            yield Problem(where, f"has waited {age / 60:.0f} min for its node", shown, cure, "warning")
    elif age > PENDING_S:
        cause = explained([message])
        if cause is None:
            yield Problem(where, "no node fits", (refused or [message])[-1])
        else:
            yield _unplaced(state, pod, cause, message)


def _unplaced(state: State, pod: Json, cause: Cause, shown: str) -> Problem:
    """Return the problem of a pod without a node. More nodes do not help where one has lost GPUs."""
    machine = machine_of(state)
    used = {each["spec"].get("nodeName") for each in state.objects("pods") if each is not pod}
    short = {
        name_of(node): int(node["status"]["allocatable"].get(GPU, 0))
        for node in settled(state)
        if machine is not None and name_of(node) not in used
    }
    short = {name: gpus for name, gpus in short.items() if machine is not None and gpus < machine.gpus}
    if cause.name not in ("gpus", "full-pool") or not short:
        return Problem(f"pod {name_of(pod)}", f"no node: {cause.text}", shown, cause.cure, cause.severity)
    counts = ", ".join(f"node {name} offers {gpus} GPUs" for name, gpus in sorted(short.items()))
    cure = (
        "fix or replace that node, as the finding `gpus` says: its capacity is lost while it exists (NVIDIA/aicr#1858)"
    )
    return Problem(f"pod {name_of(pod)}", "no node: a free GPU node has lost GPUs", f"{counts}; {shown}", cure)


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
        texts = [f"{each['reason']}: {each.get('message')}" for each in reversed(setups)]
        why = first(MOUNTING, texts)
        cure = "the message names the volume, network or device: does it exist, and may this node use it?"
        shown = next((text for text in texts if why and re.search(why.pattern, text)), texts[0])
        yield Problem(where, why.text if why else "the node cannot set it up", shown, why.cure if why else cure)
    else:
        ready = condition(pod, "Ready")
        shown = waiting or str(ready.get("message") or ready.get("reason") or f"phase {pod['status'].get('phase')}")
        yield Problem(where, f"not ready for {age / 60:.0f} min", shown, f"kubectl -n ray logs {name_of(pod)}")


@check(
    "refused-pods",
    "events",
    "rayclusters",
    cure="the message names the webhook, policy or quota that refuses it; `make up` restores those of the stack",
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
                f"ResourceClaim {name_of(claim)}", "its deletion does not finish, and its devices stay allocated", text
            )
        elif gone and len(gone) == len(users):
            yield Problem(
                f"ResourceClaim {name_of(claim)}", "holds devices for pods that no longer exist", ", ".join(gone)
            )
