"""Time to first step from recorded objects: complete, cached, several pods, odd clocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from workloads.train.timeline import NO_CLUSTER, NOT_REACHED, PHASES, Clock, from_clock, from_cluster, seconds

BEGAN = seconds("2026-11-21T14:00:00Z")


def at(offset: int) -> str:
    minutes, second = divmod(offset, 60)
    return f"2026-11-21T14:{minutes:02}:{second:02}Z"


def clock(**changes: float | None) -> Clock:
    """Return a run's clock; `changes` in seconds after its submission."""
    times = {"driver": 250, "worker": 280, "restored": 290, "compiled": 350.5, "first_step": 351} | changes
    found: dict[str, Any] = {name: value and BEGAN + value for name, value in times.items()}
    return Clock(**{"submitted": BEGAN} | found)


def condition(kind: str, when: int | None) -> dict[str, Any]:
    status = {"type": kind, "status": "False" if when is None else "True", "lastTransitionTime": at(when or 0)}
    return {"conditions": [{"type": "MemoryPressure", "status": "False", "lastTransitionTime": at(7)}, status]}


def node(name: str, made: int, ready: int) -> dict[str, Any]:
    metadata = {"name": name, "creationTimestamp": at(made)}
    return {"kind": "Node", "metadata": metadata, "status": condition("Ready", ready)}


def pod(name: str, on: str, ready: int | None) -> dict[str, Any]:
    metadata = {"name": name, "creationTimestamp": at(1)}
    return {"kind": "Pod", "metadata": metadata, "spec": {"nodeName": on}, "status": condition("Ready", ready)}


def event(about: str, reason: str, when: int) -> dict[str, Any]:
    return {
        "kind": "Event",
        "metadata": {"name": f"{about}.17a", "creationTimestamp": at(when)},
        "involvedObject": {"kind": "Pod", "name": about},
        "reason": reason,
        "firstTimestamp": at(when),
        "lastTimestamp": at(when),
    }


COMPLETE = [
    event("worker-a", "Pulling", 111),
    event("worker-a", "Pulled", 200),
    pod("worker-a", "node-a", 230),
    node("node-a", 90, 110),
]


def lengths(objects: Sequence[dict[str, Any]] = COMPLETE, skew_s: float = 0.0, **changes: float | None) -> list[float]:
    """Return the seconds of each phase, in order."""
    found = from_cluster(from_clock(clock(**changes)), objects, skew_s)
    by_name = {phase.name: phase.seconds for phase in found.phases}
    assert [*by_name] == [name for name in PHASES if name in by_name]
    assert found.unknown.keys() == PHASES - by_name.keys()
    return [round(by_name.get(name, -1), 3) for name in PHASES]


EVERY = [90, 20, 90, 30, 20, 30, 10, 60.5, 0.5]


def test_every_phase_of_a_recorded_start() -> None:
    assert lengths() == EVERY
    assert [phase.source for phase in from_cluster(from_clock(clock()), COMPLETE).phases[:4]] == [
        "Node node-a created",
        "Node node-a Ready",
        "Pod worker-a Pulled",
        "Pod worker-a Ready",
    ]


def test_the_slowest_of_several_pods_decides_and_other_nodes_do_not_count() -> None:
    others = [
        event("worker-b", "Pulled", 150),
        pod("worker-b", "node-b", 235),
        node("node-b", 100, 140),
        node("another", 800, 900),
        event("another", "Pulled", 950),
    ]
    assert lengths([*others, *COMPLETE]) == [100, 40, 60, 35, 15, *EVERY[5:]]


def test_an_image_without_its_event_is_unknown_and_its_time_is_in_the_next_phase() -> None:
    """Kubernetes keeps events for an hour."""
    assert lengths(COMPLETE[2:]) == [90, 20, -1, 120, *EVERY[4:]]


def test_the_newer_events_and_a_provisioning_request() -> None:
    newer = {
        "kind": "Event",
        "metadata": {"name": "x", "creationTimestamp": None},
        "regarding": {"kind": "Pod", "name": "worker-a"},
        "reason": "Pulled",
        "eventTime": "2026-11-21T14:03:20.500000Z",
    }
    request = {
        "kind": "ProvisioningRequest",
        "metadata": {"name": "two-nodes"},
        "status": condition("Provisioned", 60),
    }
    assert lengths([request, newer, *COMPLETE[2:]])[:3] == [60, 50, 90.5]


def test_what_existed_before_took_no_time() -> None:
    """A node and a pod that were up before the run was submitted."""
    found = lengths(submitted=300, driver=310, worker=320, restored=321)
    assert found == [0, 0, 0, 0, 10, 10, 1, 29.5, 0.5]


def test_a_clock_ahead_is_corrected_and_no_phase_is_negative() -> None:
    ahead = {name: value - BEGAN + 30 for name, value in vars(clock()).items()}
    assert lengths(skew_s=30, **ahead) == EVERY
    assert lengths(driver=220)[4:6] == [0, 50]


def test_a_run_without_a_cluster_and_without_a_step_says_why() -> None:
    timeline = from_clock(clock(compiled=None, first_step=None))
    assert [round(phase.seconds, 3) for phase in timeline.phases] == [250, 30, 10]
    assert timeline.unknown == dict.fromkeys(PHASES[:4], NO_CLUSTER) | dict.fromkeys(PHASES[-2:], NOT_REACHED)
    assert timeline.ended == BEGAN + 290


@given(
    times=st.lists(st.integers(-500, 3000), min_size=5, max_size=5),
    kept=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_phases_follow_each_other_and_add_up(times: list[int], kept: list[bool]) -> None:
    names = ("driver", "worker", "restored", "compiled", "first_step")
    objects = [item for item, keep in zip(COMPLETE, kept, strict=True) if keep]
    timeline = from_cluster(from_clock(clock(**dict(zip(names, times, strict=True)))), objects)
    assert all(phase.seconds >= 0 for phase in timeline.phases)
    ends = [timeline.began, *(phase.ended for phase in timeline.phases)]
    assert [*(phase.began for phase in timeline.phases), timeline.ended] == ends
    assert {phase.name for phase in timeline.phases} | set(timeline.unknown) == set(PHASES)
