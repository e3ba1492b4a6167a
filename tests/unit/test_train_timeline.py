"""Time to first step from recorded objects: complete, cached, several pods, odd clocks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.train.result import Timeline
from workloads.train.timeline import NO_CLUSTER, PHASES, Clock, from_clock, from_cluster, seconds

BEGAN = seconds("2026-11-21T14:00:00Z")


def at(offset: int) -> str:
    minutes, second = divmod(offset, 60)
    return f"2026-11-21T14:{minutes:02}:{second:02}Z"


def clock(**changes: float | None) -> Clock:
    whole: dict[str, Any] = {
        "submitted": BEGAN,
        "driver": BEGAN + 250,
        "worker": BEGAN + 280,
        "restored": BEGAN + 290,
        "compiled": BEGAN + 350.5,
        "first_step": BEGAN + 351,
    }
    return Clock(**whole | {name: value and BEGAN + value for name, value in changes.items()})


def timeline_of(**changes: float | None) -> Timeline:
    return from_clock(clock(**changes))


def node(name: str, made: int, ready: int) -> dict[str, Any]:
    conditions = [
        {"type": "MemoryPressure", "status": "False", "lastTransitionTime": at(made)},
        {"type": "Ready", "status": "True", "lastTransitionTime": at(ready)},
    ]
    return {
        "kind": "Node",
        "metadata": {"name": name, "creationTimestamp": at(made)},
        "status": {"conditions": conditions},
    }


def pod(name: str, on: str, ready: int | None) -> dict[str, Any]:
    status = {"type": "Ready", "status": "False" if ready is None else "True", "lastTransitionTime": at(ready or 0)}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "creationTimestamp": at(1)},
        "spec": {"nodeName": on},
        "status": {"conditions": [status]},
    }


def event(about: str, reason: str, when: int, **more: Any) -> dict[str, Any]:
    return {
        "kind": "Event",
        "metadata": {"name": f"{about}.17a", "creationTimestamp": at(when)},
        "involvedObject": {"kind": "Pod", "name": about},
        "reason": reason,
        "message": 'Successfully pulled image "ray" in 41.2s (41.2s including waiting)',
        "firstTimestamp": at(when),
        "lastTimestamp": at(when),
        "count": 1,
    } | more


COMPLETE = [
    event("worker-a", "Pulling", 111),
    event("worker-a", "Pulled", 200),
    pod("worker-a", "node-a", 230),
    node("node-a", 90, 110),
]


def lengths(timeline: Timeline) -> dict[str, float]:
    return {phase.name: round(phase.seconds, 3) for phase in timeline.phases}


def test_every_phase_of_a_recorded_start() -> None:
    timeline = from_cluster(timeline_of(), COMPLETE)
    assert lengths(timeline) == {
        "capacity granted": 90,
        "node ready": 20,
        "image pulled": 90,
        "pod ready": 30,
        "cluster formed": 20,
        "worker started": 30,
        "restored": 10,
        "compiled": 60.5,
        "first step": 0.5,
    }
    assert timeline.unknown == {}
    assert [phase.source for phase in timeline.phases[:4]] == [
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
    assert lengths(from_cluster(timeline_of(), [*others, *COMPLETE])) | {"compiled": 0} == {
        "capacity granted": 100,
        "node ready": 40,
        "image pulled": 60,
        "pod ready": 35,
        "cluster formed": 15,
        "worker started": 30,
        "restored": 10,
        "compiled": 0,
        "first step": 0.5,
    }


def test_an_image_without_its_event_is_unknown_and_its_time_is_in_the_next_phase() -> None:
    """Kubernetes keeps events for an hour; a cached image has its event, like any other."""
    timeline = from_cluster(timeline_of(), [item for item in COMPLETE if item["kind"] != "Event"])
    assert lengths(timeline)["pod ready"] == 120
    assert list(timeline.unknown) == ["image pulled"]
    cached = event("worker-a", "Pulled", 111, message='Container image "ray" already present on machine')
    assert lengths(from_cluster(timeline_of(), [cached, *COMPLETE[2:]]))["image pulled"] == 1


def test_one_of_two_pods_without_an_end_leaves_the_phase_unknown() -> None:
    timeline = from_cluster(timeline_of(), [*COMPLETE, pod("worker-b", "node-a", None)])
    assert set(timeline.unknown) == {"image pulled", "pod ready"}


def test_a_restarted_container_does_not_count() -> None:
    again = event("worker-a", "Pulled", 600)
    assert lengths(from_cluster(timeline_of(), [*COMPLETE, again])) == lengths(from_cluster(timeline_of(), COMPLETE))


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
        "status": {"conditions": [{"type": "Provisioned", "status": "True", "lastTransitionTime": at(60)}]},
    }
    found = lengths(from_cluster(timeline_of(), [request, newer, *COMPLETE[2:]]))
    assert (found["capacity granted"], found["node ready"], found["image pulled"]) == (60, 50, 90.5)


def test_what_existed_before_took_no_time() -> None:
    """Nodes that were up before the run was submitted."""
    early = [item for item in COMPLETE if item["kind"] == "Pod"]
    timeline = from_cluster(timeline_of(submitted=300, driver=310, worker=320, restored=321), early)
    assert lengths(timeline)["pod ready"] == 0
    assert lengths(timeline)["cluster formed"] == 10


def test_a_clock_ahead_is_corrected_and_no_phase_is_negative() -> None:
    ahead = Clock(**{name: value and value + 30 for name, value in vars(clock()).items()})
    assert lengths(from_cluster(from_clock(ahead), COMPLETE, skew_s=30)) == lengths(
        from_cluster(timeline_of(), COMPLETE)
    )
    behind = from_cluster(timeline_of(driver=220), COMPLETE)
    assert lengths(behind)["cluster formed"] == 0


def test_the_clock_alone() -> None:
    timeline = from_clock(clock())
    assert lengths(timeline) == {
        "cluster formed": 250,
        "worker started": 30,
        "restored": 10,
        "compiled": 60.5,
        "first step": 0.5,
    }
    assert timeline.unknown == dict.fromkeys(PHASES[:4], NO_CLUSTER)


def test_a_run_without_a_step_lists_phases_not_reached() -> None:
    timeline = from_clock(clock(compiled=None, first_step=None))
    assert {"compiled", "first step"} <= set(timeline.unknown)
    assert timeline.ended == BEGAN + 290


@given(
    times=st.lists(st.integers(-500, 3000), min_size=5, max_size=5),
    kept=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_phases_follow_each_other_and_add_up(times: list[int], kept: list[bool]) -> None:
    names = ("driver", "worker", "restored", "compiled", "first_step")
    objects = [item for item, keep in zip(COMPLETE, kept, strict=True) if keep]
    timeline = from_cluster(timeline_of(**dict(zip(names, times, strict=True))), objects)
    assert all(phase.seconds >= 0 for phase in timeline.phases)
    assert timeline.phases[0].began == timeline.began
    assert timeline.phases[-1].ended == timeline.ended
    for before, after in zip(timeline.phases, timeline.phases[1:], strict=False):
        assert before.ended == after.began
    assert {phase.name for phase in timeline.phases} | set(timeline.unknown) == set(PHASES)


@pytest.mark.parametrize("text", ["2026-11-21T14:00:00Z", "2026-11-21T14:00:00.000000Z", "2026-11-21T15:00:00+01:00"])
def test_times_of_kubernetes(text: str) -> None:
    assert seconds(text) == BEGAN
