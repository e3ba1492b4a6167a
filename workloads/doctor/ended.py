"""Checks for Ray pods that failed or were evicted, and for containers that were killed or restarted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from infra.catalog.names import NODE_TYPE
from workloads.doctor.causes import Cause, first
from workloads.doctor.check import Problem, Severity, check
from workloads.doctor.objects import condition, containers, is_true, labels, name_of
from workloads.doctor.pods import DAY_S, events_of, when
from workloads.doctor.state import State

Json = dict[str, Any]
_KUBELET = "kubernetes 1.36.1: pkg/kubelet/eviction/{helpers,eviction_manager}.go"
_RESUME = "the job continues from its last checkpoint with --resume"

ENDS = (
    Cause(
        "disk",
        r"low on resource: (?:ephemeral-storage|inodes)|local ephemeral storage|ephemeral local storage"
        r"|EmptyDir volume|DiskPressure",
        "was evicted: it or its node had no disk space left",
        "the message names the container: keep less under /tmp and in caches of /bucket, or raise its ephemeral-storage"
        f"; {_RESUME}",
        f"{_KUBELET}; kubernetes/kubernetes#91600, ray-project/kuberay#2125",
    ),
    Cause(
        "memory",
        r"low on resource: memory|MemoryPressure",
        "was evicted: its node had no memory left",
        f"lower the memory of the node's pods, or keep fewer objects with ray.put; {_RESUME}",
        f"{_KUBELET}; ray-project/kuberay#2125",
    ),
    Cause(
        "pids",
        r"low on resource: pids|PIDPressure",
        "was evicted: its node had no process ids left",
        f"start fewer processes and data loaders per node; {_RESUME}",
        _KUBELET,
    ),
    Cause(
        "preempted",
        r"PreemptionByScheduler|[Pp]reempt",
        "was preempted by a pod of higher priority",
        f"give the stack's pods a higher PriorityClass, or wait for free nodes; {_RESUME}",
        "kubernetes 1.36.1: pkg/scheduler/framework/preemption, pkg/kubelet/preemption",
    ),
    Cause(
        "shutdown",
        r"node shutdown|shutting down|NodeShutdown|Shutdown",
        "ended because its node shut down: reclaimed by the cloud, at the end of its lifetime, or for maintenance",
        f"pods get another node while the capacity lasts; {_RESUME}",
        "kubernetes 1.36.1: pkg/kubelet/nodeshutdown",
    ),
    Cause(
        "lost",
        r"DeletionByPodGC|NodeLost|node no longer exists|DeletionByTaintManager|TaintManagerEviction",
        "was deleted because its node is lost or has a taint",
        f"the finding about the node has the cause; {_RESUME}",
        "kubernetes 1.36.1: pkg/controller/podgc, pkg/controller/tainteviction",
    ),
    Cause(
        "drained",
        r"EvictionByEvictionAPI",
        "was evicted by a request: its node is drained for an upgrade, by an autoscaler or by a person",
        f"see who drains nodes: kubectl get events -A, and the node pool's upgrades; {_RESUME}",
        "kubernetes 1.36.1: pkg/registry/core/pod/storage/eviction.go",
    ),
    Cause(
        "refused",
        r"UnexpectedAdmissionError|Allocate failed|OutOf\w+|NodeAffinity|NodeResourcesFit",
        "was refused by its node: a device or resource was gone when it came",
        "compare the node's allocatable with the pod's requests; devices are lost while their plugin restarts",
        "kubernetes 1.36.1: pkg/kubelet/lifecycle/predicate.go, pkg/kubelet/cm/devicemanager",
    ),
    Cause(
        "deadline",
        r"DeadlineExceeded",
        "reached its deadline (activeDeadlineSeconds)",
        f"raise the deadline of the job; {_RESUME}",
        "kubernetes 1.36.1: pkg/kubelet/active_deadline.go",
    ),
)
"""Reasons why a pod ended, by precedence, with the code that sets the reason or message; read 2026-11-26."""
EVICTIONS = ("Evicted", "Preempted", "TaintManagerEviction", "NodeShutdown")
"""Reasons of events about a pod that no longer exists: KubeRay deletes failed workers."""


@check("ended-pods", "pods", "events", cure=f"kubectl -n ray logs POD --all-containers --previous; {_RESUME}")
def ended_pods(state: State) -> Iterator[Problem]:
    """A pod of Ray failed or was evicted within the last day: for disk, memory, a lost node, preemption and more."""
    named = set()
    for pod in state.objects("pods"):
        status, target = pod.get("status") or {}, condition(pod, "DisruptionTarget")
        disrupted = target.get("status") == "True"
        if status.get("phase") != "Failed" and not disrupted:
            continue
        named.add(name_of(pod))
        ended = [each for each in map(_terminated, containers(pod)) if each.get("exitCode")]
        times = [target.get("lastTransitionTime"), *(each.get("finishedAt") for each in ended)]
        times.append(condition(pod, "Ready").get("lastTransitionTime"))
        if state.age(next((each for each in times if each), None)) > DAY_S:
            continue
        told = [_text(status.get("reason"), status.get("message"))]
        told += [_text(target.get("reason"), target.get("message"))] if disrupted else []
        told += [_text(each.get("reason"), each.get("message")) for each in _evictions(state, name_of(pod))]
        told = [each for each in dict.fromkeys(told) if each]
        cause = first(ENDS, told)
        if cause is None and any(each.get("reason") == "OOMKilled" for each in ended):
            continue  # reported by `memory`
        told += [f"{each['name']}: {_ending(_terminated(each))}" for each in containers(pod) if _terminated(each)]
        yield _problem(pod, name_of(pod), cause, "; ".join(told) or "phase Failed, without a reason")
    for event in state.objects("events"):
        its = event.get("involvedObject") or {}
        name, text = str(its.get("name")), _text(event.get("reason"), event.get("message"))
        new = name not in named and str(event.get("reason")) in EVICTIONS and its.get("kind") in (None, "Pod")
        if new and state.age(when(event)) <= DAY_S and not str(event.get("message")).startswith("Cancelling"):
            named.add(name)
            yield _problem({}, name, first(ENDS, [text]), text)


def _problem(pod: Json, name: str, cause: Cause | None, text: str) -> Problem:
    lost = ", and every job with it" if _is_head(pod) else ""
    what = "was evicted" if cause is None and "Evicted" in text else "failed"
    return Problem(f"pod {name}", f"it {cause.text if cause else what}{lost}", text, cause.cure if cause else None)


def _evictions(state: State, name: str) -> list[Json]:
    return [each for each in events_of(state, name) if str(each.get("reason")) in EVICTIONS]


def _text(reason: object, message: object) -> str:
    return " ".join(": ".join(str(each) for each in (reason, message) if each).split())


def _terminated(container: Json) -> Json:
    terminated: Json = (container.get("state") or {}).get("terminated") or {}
    return terminated


def _ending(ended: Json) -> str:
    return f"exit code {ended.get('exitCode')} ({ended.get('reason')}) at {ended.get('finishedAt')}"


@check(
    "memory", "pods", cure="raise the pod's memory, or keep less in it: ray.put and actors hold memory until they end"
)
def memory(state: State) -> Iterator[Problem]:
    """A container of Ray's pods, including sidecars, was killed for its memory within the last day."""
    for pod in state.objects("pods"):
        for each in containers(pod):
            states = (each.get("state") or {}, each.get("lastState") or {})
            ended: Json = next((one["terminated"] for one in states if one.get("terminated")), {})
            if ended.get("reason") == "OOMKilled" and state.age(ended.get("finishedAt")) < DAY_S:
                text = f"OOMKilled at {ended.get('finishedAt')}, restarted {each.get('restartCount')} times"
                lost = ", and every job with it" if _is_head(pod) and each["name"] == "ray-head" else ""
                where = f"pod {name_of(pod)}, container {each['name']}"
                yield Problem(where, f"it was killed for its memory{lost}", text, _more_memory(str(each["name"])))


def _more_memory(container: str) -> str | None:
    if re.search("gcsfuse", container):
        return (
            "raise the annotation gke-gcsfuse/memory-limit of the pods (0 is no limit: then the node had no memory"
            " left); meanwhile, reads of /bucket failed (GoogleCloudPlatform/gcs-fuse-csi-driver#314, #372)"
        )
    return None if container.startswith("ray-") else f"raise the memory limit of the container {container}"


@check("restarts", "pods", cure="kubectl -n ray logs POD -c CONTAINER --previous shows its last lines")
def restarts(state: State) -> Iterator[Problem]:
    """A container of Ray's pods, including sidecars, restarted within the last day; the head's ends every job."""
    for pod in state.objects("pods"):
        for each in containers(pod):
            ended = (each.get("lastState") or {}).get("terminated") or {}
            done = _terminated(each).get("exitCode") == 0  # an init container that failed first, and then succeeded
            if not ended or done or ended.get("reason") == "OOMKilled" or state.age(ended.get("finishedAt")) >= DAY_S:
                continue
            text = f"exit code {ended.get('exitCode')} ({ended.get('reason')}) at {ended.get('finishedAt')}"
            if _is_head(pod) and each["name"] == "ray-head":
                yield Problem(f"pod {name_of(pod)}", "the head restarted", text)
            elif is_true(pod, "Ready") or "waiting" not in (each.get("state") or {}):  # else `pods` reports it
                severity: Severity = "error" if str(each["name"]).startswith("ray-worker") else "warning"
                where = f"pod {name_of(pod)}, container {each['name']}"
                text += f", restarted {each.get('restartCount')} times"
                yield Problem(where, "the container restarted", text, severity=severity)


def _is_head(pod: Json) -> bool:
    return bool(pod) and labels(pod).get(NODE_TYPE) == "head"
