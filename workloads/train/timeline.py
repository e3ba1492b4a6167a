"""Phases of the time to the first step, from Kubernetes' objects and from the run's clock. Pure.

The objects are those of `kubectl get events,nodes,pods -o json` (core/v1), and may include ProvisioningRequests
(autoscaling.x-k8s.io). A phase begins when the previous one ends, so that all add up to the time to the first step. A
phase that ran in parallel with an earlier one (an image pulled while another node still booted) takes 0 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from workloads.train.result import Clock, Phase, Timeline

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
NOT_RECORDED = "not in the objects: events are kept for an hour only"
NOT_REACHED = "the run ended before it"

Ends = dict[str, tuple[float, str]]
"""End of each phase (seconds since 1970), and its source."""


def from_clock(clock: Clock) -> Timeline | None:
    """Return the phases that the run records, from its submission on, or None if it never reached a worker."""
    return _timeline(clock.submitted, _of_clock(clock), dict.fromkeys(PHASES[:4], NO_CLUSTER))


def from_cluster(clock: Clock, objects: Iterable[Mapping[str, Any]], skew_s: float = 0.0) -> Timeline | None:
    """Return all phases, from the run's clock and the Ray workers' events, nodes and pods, in any order.

    The slowest pod counts. Phases that ended before the submission take 0 s. `skew_s` is how many seconds the run's
    clock is ahead of Kubernetes', whose times are in whole seconds.
    """
    ends = {name: (at - skew_s, source) for name, (at, source) in _of_clock(clock).items()}
    found = _of_cluster(list(objects))
    unknown = {name: NOT_RECORDED for name in PHASES[:4] if name not in found}
    return _timeline(clock.submitted - skew_s, ends | found, unknown)


def _timeline(began: float, ends: Ends, unknown: dict[str, str]) -> Timeline | None:
    phases, at = [], began
    for name in PHASES:
        if name not in ends:
            unknown.setdefault(name, NOT_REACHED)
            continue
        ended, source = ends[name]
        # Clocks may differ and phases overlap: no phase ends before the previous one.
        ended = max(at, ended)
        phases.append(Phase(name=name, began=at, ended=ended, source=source))
        at = ended
    if not phases:
        return None
    # The next phase includes the time of an unknown one.
    return Timeline(
        began=began, ended=at, phases=phases, unknown={name: unknown[name] for name in PHASES if name in unknown}
    )


def _of_clock(clock: Clock) -> Ends:
    ends: dict[str, float | None] = {
        "cluster formed": clock.driver,
        "worker started": clock.worker,
        "restored": clock.restored,
        "compiled": clock.compiled,
        "first step": clock.first_step,
    }
    return {name: (at, "the run's clock") for name, at in ends.items() if at is not None}


def _of_cluster(objects: Sequence[Mapping[str, Any]]) -> Ends:
    """Return the ends that Kubernetes recorded for the pods among `objects` and the nodes of these pods."""
    pods = [item for item in objects if item.get("kind") == "Pod"]
    used = {pod.get("spec", {}).get("nodeName") for pod in pods}
    nodes = [item for item in objects if item.get("kind") == "Node" and item["metadata"]["name"] in used]
    events = [item for item in objects if item.get("kind") == "Event"]
    seen: dict[str, list[tuple[float, str]]] = {name: [] for name in PHASES[:4]}
    for node in nodes:
        name = node["metadata"]["name"]
        # Without a ProvisioningRequest, new capacity first appears as a node, after its machine booted.
        _add(seen["capacity granted"], node["metadata"].get("creationTimestamp"), f"Node {name} created")
        _add(seen["node ready"], _condition(node, "Ready"), f"Node {name} Ready")
    ready = {pod["metadata"]["name"]: _condition(pod, "Ready") for pod in pods}
    for name, timestamp in ready.items():
        _add(seen["pod ready"], timestamp, f"Pod {name} Ready")
    pulled = dict(_pulled(event) for event in _in_time(events, ready))
    for name, timestamp in pulled.items():
        _add(seen["image pulled"], timestamp, f"Pod {name} Pulled")
    # A phase needs the ends of all nodes or pods: the slowest may be missing.
    expected = {"capacity granted": len(nodes), "node ready": len(nodes)} | dict.fromkeys(PHASES[2:4], len(pods))
    ends = {name: max(found) for name, found in seen.items() if found and len(found) == expected[name]}
    granted = [
        (seconds(at), f"ProvisioningRequest {item['metadata']['name']} Provisioned")
        for item in objects
        if item.get("kind") == "ProvisioningRequest" and (at := _condition(item, "Provisioned"))
    ]
    return ends | ({"capacity granted": max(granted)} if granted else {})


def _in_time(events: Iterable[Mapping[str, Any]], ready: Mapping[str, str | None]) -> list[Mapping[str, Any]]:
    """Return the Pulled events of these pods in order of time, without those of containers that restarted later."""
    found = []
    for event in events:
        about = event.get("involvedObject") or event.get("regarding") or {}
        when = _when(event)
        if event.get("reason") != "Pulled" or about.get("kind") != "Pod" or about.get("name") not in ready or not when:
            continue
        limit = ready[about["name"]]
        # Conditions have whole seconds, events microseconds.
        if limit is None or seconds(when) < seconds(limit) + 1:
            found.append(event)
    return sorted(found, key=lambda event: seconds(_when(event) or ""))


def _pulled(event: Mapping[str, Any]) -> tuple[str, str | None]:
    about = event.get("involvedObject") or event.get("regarding") or {}
    return about["name"], _when(event)


def _add(ends: list[tuple[float, str]], timestamp: str | None, source: str) -> None:
    if timestamp:
        ends.append((seconds(timestamp), source))


def _condition(item: Mapping[str, Any], kind: str) -> str | None:
    """Return when a condition of an object became true, or None if it is not."""
    for condition in item.get("status", {}).get("conditions") or []:
        if condition.get("type") == kind and condition.get("status") == "True":
            found: str | None = condition.get("lastTransitionTime")
            return found
    return None


def _when(event: Mapping[str, Any]) -> str | None:
    """Return an event's first time: `eventTime` in the newer API (microseconds), `firstTimestamp` in the older one."""
    found: str | None = event.get("eventTime") or event.get("firstTimestamp") or event.get("lastTimestamp")
    return found or event.get("metadata", {}).get("creationTimestamp")


def seconds(timestamp: str) -> float:
    """Return the seconds since 1970 of a Kubernetes time, RFC 3339 in UTC: `2026-11-21T14:23:42Z`."""
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()
