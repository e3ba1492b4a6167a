"""Time to first step, split into what it was spent on: from what Kubernetes recorded, and from the run's clock. Pure.

Kubernetes' objects are read as `kubectl get events,nodes,pods -o json` prints them (API: core/v1 Event, Node, Pod);
ProvisioningRequests (autoscaling.x-k8s.io) may be among them.
A phase begins where the one before it ended, so that all of them add up to the time to the first step. What took place
beside an earlier phase (an image pulled while another node still booted) adds nothing: it is a phase of 0 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from workloads.train.records import Clock
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
NOT_TOLD = "none of the objects tells it: events are kept for an hour only"
NOT_REACHED = "the run ended before it"

Ends = dict[str, tuple[float, str]]
"""When a phase ended (seconds since 1970), and what told it."""


def from_clock(clock: Clock) -> Timeline | None:
    """The phases that the run itself sees: from its submission on. None where it never got to a worker."""
    return _timeline(clock["submitted"], _of_clock(clock), dict.fromkeys(PHASES[:4], NO_CLUSTER))


def from_cluster(clock: Clock, objects: Iterable[Mapping[str, Any]], skew_s: float = 0.0) -> Timeline | None:
    """The whole split: `objects` are events, nodes and pods of the Ray workers, in any order.

    Several pods: the slowest decides. `skew_s` is how far the run's clock is ahead of Kubernetes' (its times are to
    the second only), which is taken off the run's. What ended before the submission was there already: 0 s.
    """
    own = _of_clock(clock)
    ends = {name: (at - skew_s, source) for name, (at, source) in own.items()}
    unknown = {}
    found = _of_cluster(list(objects))
    for name in PHASES[:4]:
        if name in found:
            ends[name] = found[name]
        else:
            unknown[name] = NOT_TOLD
    return _timeline(clock["submitted"] - skew_s, ends, unknown)


def _timeline(began: float, ends: Ends, unknown: dict[str, str]) -> Timeline | None:
    phases, at = [], began
    for name in PHASES:
        if name not in ends:
            unknown.setdefault(name, NOT_REACHED)
            continue
        ended, source = ends[name]
        # A clock that runs ahead, or a phase beside another one: time does not run backwards.
        ended = max(at, ended)
        phases.append(Phase(name=name, began=at, ended=ended, source=source))
        at = ended
    if not phases:
        return None
    # An unknown phase is not lost: its time is in the one after it.
    return Timeline(
        began=began, ended=at, phases=phases, unknown={name: unknown[name] for name in PHASES if name in unknown}
    )


def _of_clock(clock: Clock) -> Ends:
    told: dict[str, float | None] = {
        "cluster formed": clock["driver"],
        "worker started": clock["worker"],
        "restored": clock["restored"],
        "compiled": clock["compiled"],
        "first step": clock["first_step"],
    }
    return {name: (at, "the run's clock") for name, at in told.items() if at is not None}


def _of_cluster(objects: Sequence[Mapping[str, Any]]) -> Ends:
    """The ends that Kubernetes tells of, for the pods among `objects` and the nodes that these pods are on."""
    pods = [item for item in objects if item.get("kind") == "Pod"]
    used = {pod.get("spec", {}).get("nodeName") for pod in pods}
    nodes = [item for item in objects if item.get("kind") == "Node" and item["metadata"]["name"] in used]
    events = [item for item in objects if item.get("kind") == "Event"]
    told: dict[str, list[tuple[float, str]]] = {name: [] for name in PHASES[:4]}
    for node in nodes:
        name = node["metadata"]["name"]
        # Without a request, the first that is seen of new capacity is the node: its machine has booted by then.
        _tell(told["capacity granted"], node["metadata"].get("creationTimestamp"), f"Node {name} made")
        _tell(told["node ready"], _condition(node, "Ready"), f"Node {name} Ready")
    ready = {pod["metadata"]["name"]: _condition(pod, "Ready") for pod in pods}
    for name, timestamp in ready.items():
        _tell(told["pod ready"], timestamp, f"Pod {name} Ready")
    pulled = dict(_pulled(event) for event in _in_time(events, ready))
    for name, timestamp in pulled.items():
        _tell(told["image pulled"], timestamp, f"Pod {name} Pulled")
    # Of some only, the slowest may be the one that is missing.
    expected = {"capacity granted": len(nodes), "node ready": len(nodes)} | dict.fromkeys(PHASES[2:4], len(pods))
    ends = {name: max(found) for name, found in told.items() if found and len(found) == expected[name]}
    granted = [
        (seconds(at), f"ProvisioningRequest {item['metadata']['name']} Provisioned")
        for item in objects
        if item.get("kind") == "ProvisioningRequest" and (at := _condition(item, "Provisioned"))
    ]
    return ends | ({"capacity granted": max(granted)} if granted else {})


def _in_time(events: Iterable[Mapping[str, Any]], ready: Mapping[str, str | None]) -> list[Mapping[str, Any]]:
    """The Pulled events of these pods, in order of time; not those of a container that was restarted later."""
    found = []
    for event in events:
        about = event.get("involvedObject") or event.get("regarding") or {}
        when = _when(event)
        if event.get("reason") != "Pulled" or about.get("kind") != "Pod" or about.get("name") not in ready or not when:
            continue
        limit = ready[about["name"]]
        # A Ready is told to the second, an event to the microsecond.
        if limit is None or seconds(when) < seconds(limit) + 1:
            found.append(event)
    return sorted(found, key=lambda event: seconds(_when(event) or ""))


def _pulled(event: Mapping[str, Any]) -> tuple[str, str | None]:
    about = event.get("involvedObject") or event.get("regarding") or {}
    return about["name"], _when(event)


def _tell(ends: list[tuple[float, str]], timestamp: str | None, source: str) -> None:
    if timestamp:
        ends.append((seconds(timestamp), source))


def _condition(item: Mapping[str, Any], kind: str) -> str | None:
    """When a condition of a node or pod became true; None where it is not."""
    for condition in item.get("status", {}).get("conditions") or []:
        if condition.get("type") == kind and condition.get("status") == "True":
            found: str | None = condition.get("lastTransitionTime")
            return found
    return None


def _when(event: Mapping[str, Any]) -> str | None:
    """An event's first time: `eventTime` in the newer API (microseconds), `firstTimestamp` in the older one."""
    found: str | None = event.get("eventTime") or event.get("firstTimestamp") or event.get("lastTimestamp")
    return found or event.get("metadata", {}).get("creationTimestamp")


def seconds(timestamp: str) -> float:
    """Seconds since 1970 of a Kubernetes time, RFC 3339 in UTC: `2026-11-21T14:23:42Z`, or with microseconds."""
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()
