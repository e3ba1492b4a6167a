"""Phases of the time to the first step, from Kubernetes objects and from the run's clock. Pure.

The objects are those of `kubectl get events,nodes,pods -o json` (core/v1), and may include ProvisioningRequests
(autoscaling.x-k8s.io). A phase begins when the previous one ends, so that all add up to the time to the first step. A
phase that ran in parallel with an earlier one (an image pulled while another node still booted) takes 0 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from workloads.train.result import Phase, Timeline

PHASES = (
    "capacity granted",
    "node ready",
    "image pulled",
    "pod ready",
    "cluster formed",
    "worker started",
    "restored",
    "compiled",
    "first step",
)
NO_CLUSTER = "no Kubernetes here: the nodes were up before"
NOT_RECORDED = "not in the objects: events are kept for an hour only, and a pod may not be ready yet"
NOT_REACHED = "the run ended before it"

Ends = dict[str, tuple[float, str]]
"""End of each phase (seconds since 1970), and its source."""


@dataclass(kw_only=True)
class Clock:
    """Milestones of the last attempt in seconds since 1970, by rank 0's clock; None: not reached.

    `compiled` is the end of the passes before the first step: they compile the model and let DDP find its buckets.
    """

    submitted: float
    driver: float
    worker: float
    restored: float | None = None
    compiled: float | None = None
    first_step: float | None = None


def from_clock(clock: Clock) -> Timeline:
    """Return the phases that the run records, from its submission on."""
    recorded = (clock.driver, clock.worker, clock.restored, clock.compiled, clock.first_step)
    ends = {name: (at, "the run's clock") for name, at in zip(PHASES[4:], recorded, strict=True) if at is not None}
    return _timeline(clock.submitted, ends, NO_CLUSTER)


def from_cluster(timeline: Timeline, objects: Iterable[Mapping[str, Any]], skew_s: float = 0.0) -> Timeline:
    """Return all phases, from the run's timeline and the Ray workers' events, nodes and pods, in any order.

    The slowest pod counts. Phases that ended before the submission take 0 s. `skew_s` is how many seconds the run's
    clock is ahead of Kubernetes', whose times are in whole seconds.
    """
    own = [phase for phase in timeline.phases if phase.name in PHASES[4:]]
    ends = {phase.name: (phase.ended - skew_s, phase.source) for phase in own}
    return _timeline(timeline.began - skew_s, ends | _of_cluster(list(objects)), NOT_RECORDED)


def _timeline(began: float, ends: Ends, without_cluster: str) -> Timeline:
    """Return the timeline of these ends. `without_cluster` is why phases of the cluster have none."""
    phases: list[Phase] = []
    unknown: dict[str, str] = {}
    at = began
    for name in PHASES:
        if name not in ends:
            # The next phase includes its time.
            unknown[name] = without_cluster if name in PHASES[:4] else NOT_REACHED
            continue
        ended, source = ends[name]
        # Clocks may differ and phases overlap: no phase ends before the previous one.
        phases.append(Phase(name=name, began=at, ended=max(at, ended), source=source))
        at = phases[-1].ended
    return Timeline(began=began, ended=at, phases=phases, unknown=unknown)


def _of_cluster(objects: Sequence[Mapping[str, Any]]) -> Ends:
    """Return the ends that Kubernetes recorded for the pods among `objects` and the nodes of these pods."""
    pods = {item["metadata"]["name"]: item for item in objects if item.get("kind") == "Pod"}
    used = {pod.get("spec", {}).get("nodeName") for pod in pods.values()}
    nodes = [item for item in objects if item.get("kind") == "Node" and item["metadata"]["name"] in used]
    ready = {name: _condition(pod, "Ready") for name, pod in pods.items()}
    pulled = _pulled(objects, ready)
    granted = [
        (at, f"ProvisioningRequest {item['metadata']['name']} Provisioned")
        for item in objects
        if item.get("kind") == "ProvisioningRequest" and (at := _condition(item, "Provisioned"))
    ]
    # Without a ProvisioningRequest, new capacity first appears as a node, after its machine booted.
    created = [
        (node["metadata"].get("creationTimestamp"), f"Node {node['metadata']['name']} created") for node in nodes
    ]
    recorded = {
        "capacity granted": granted or created,
        "node ready": [(_condition(node, "Ready"), f"Node {node['metadata']['name']} Ready") for node in nodes],
        "image pulled": [(pulled.get(name), f"Pod {name} Pulled") for name in pods],
        "pod ready": [(ready[name], f"Pod {name} Ready") for name in pods],
    }
    # A phase needs the ends of all nodes or pods: the slowest may be missing.
    return {
        name: max((seconds(at), source) for at, source in recorded_time if at)
        for name, recorded_time in recorded.items()
        if recorded_time and all(at for at, _ in recorded_time)
    }


def _pulled(objects: Iterable[Mapping[str, Any]], ready: Mapping[str, str | None]) -> dict[str, str]:
    """Return the last Pulled event of each pod, without those of containers that restarted after it was ready."""
    images: dict[str, str] = {}
    for event in objects:
        about = event.get("involvedObject") or event.get("regarding") or {}
        name, when = about.get("name", ""), _when(event)
        if (event.get("kind"), event.get("reason"), about.get("kind")) != ("Event", "Pulled", "Pod") or not when:
            continue
        # Conditions have whole seconds, events microseconds.
        if name in ready and (not (limit := ready[name]) or seconds(when) < seconds(limit) + 1):
            images[name] = max(images.get(name, when), when, key=seconds)
    return images


def _condition(item: Mapping[str, Any], kind: str) -> str | None:
    """Return when a condition of an object became true, or None if it is not."""
    for condition in item.get("status", {}).get("conditions") or []:
        if condition.get("type") == kind and condition.get("status") == "True":
            moment: str | None = condition.get("lastTransitionTime")
            return moment
    return None


def _when(event: Mapping[str, Any]) -> str | None:
    """Return an event's first time: `eventTime` in the newer API (microseconds), `firstTimestamp` in the older one."""
    moment: str | None = event.get("eventTime") or event.get("firstTimestamp") or event.get("lastTimestamp")
    return moment or event.get("metadata", {}).get("creationTimestamp")


def seconds(timestamp: str) -> float:
    """Return the seconds since 1970 of a Kubernetes time, RFC 3339 in UTC: `2026-11-21T14:23:42Z`."""
    return datetime.fromisoformat(timestamp).timestamp()
