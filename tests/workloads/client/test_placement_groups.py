"""What placement groups wait for, by the State API's rows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.catalog.names import NODE_GROUP
from infra.outputs import Nodes, OtherWorkers
from tests.hostile import ESCAPES
from workloads.client.api import Job, UnreachableError
from workloads.client.placement_groups import FIRST_LOOK_S, NEXT_LOOK_S, PendingGroups, Room, ender, holders

FIXED = Nodes(min=2, max=2, gpus_per_node=4, cpus_per_node=8)
ELASTIC = FIXED.model_copy(update={"max": 4})
RUNNING = Job("mine", "RUNNING", "", 1.0, None, None, {}, driver="02000000")


def node(state: str = "ALIVE", *, head: bool = False, **resources: float) -> dict[str, Any]:
    return {"state": state, "is_head_node": head, "resources_total": resources}


UP = [node(head=True), node(CPU=8, GPU=4), node(CPU=8, GPU=4)]


@pytest.mark.parametrize(
    ("shapes", "infeasible", "reason"),
    [
        ([{"GPU": 4}] * 2, False, None),
        ([{"GPU": 8}], True, "no node has 8 GPU; the most on a node: 4 GPU"),
        ([{"GPU": 3}] * 3, False, "it needs 9 GPU in all; the nodes have 8"),
        ([{"GPU": 1}] * 5, True, "no node has room for all bundles that its strategy puts on one node"),
        ([{"GPU": 1, "accelerator_type:H200": 0.001}], True, "no node has 1 GPU, 0.001 accelerator_type:H200"),
    ],
)
def test_what_can_never_fit(shapes: list[dict[str, float]], infeasible: bool, reason: str | None) -> None:
    found = Room.of(UP, FIXED).never(shapes, infeasible)
    assert (found is None) if reason is None else (found or "").startswith(reason)


def test_nodes_that_may_still_come_count() -> None:
    """An autoscaler adds two; on a stack of fixed size one is lost. What else a node that comes has is unknown."""
    lost = [*UP[:2], node("DEAD", CPU=8, GPU=4)]
    for room in (Room.of(UP, ELASTIC), Room.of(lost, FIXED, missing=True)):
        assert room.never([{"GPU": 1, "accelerator_type:H200": 0.001}] * 3, True) is None
        assert room.never([{"GPU": 5}], True) == "no node has 5 GPU; the most on a node: 4 GPU"
    assert Room.of(lost, FIXED, missing=True).never([{"GPU": 3}] * 3, False) is not None
    assert Room.of(UP, ELASTIC).never([{"GPU": 3}] * 3, False) is None


def test_workers_of_another_group_are_no_nodes_of_the_stack() -> None:
    """Two CPU workers are running; the autoscaler may add a worker of a third group, and two of the stack's nodes."""
    others = (OtherWorkers(group="cpu", max=2, gpus=0, cpus=4), OtherWorkers(group="big", max=1, gpus=8, cpus=4))
    running = [node(CPU=4) | {"labels": {NODE_GROUP: "cpu"}}] * 2
    room = Room.of([*UP, *running], ELASTIC.model_copy(update={"others": others}))
    assert (len(room.more), len(room.others)) == (2, 1)
    assert room.never([{"GPU": 4}] * 4, True) is None
    assert room.never([{"GPU": 8}], True) is None
    assert room.never([{"GPU": 8}] * 4, True) == "it needs 32 GPU in all; the nodes have 24"
    assert room.never([{"GPU": 9}], True) == "no node has 9 GPU; the most on a node: 8 GPU"


def group(name: str, state: str, job: str, gpus: float, count: int = 1, **fields: Any) -> dict[str, Any]:
    stats = {"creation_request_received_ns": "0", "scheduling_state": "NO_RESOURCES"}
    row = {"placement_group_id": name * 8, "name": name, "state": state, "creator_job_id": job, "stats": stats}
    return row | {"bundles": [{"unit_resources": {"GPU": gpus}}] * count} | fields


def actor(name: str, job: str, **fields: Any) -> dict[str, Any]:
    row = {"actor_id": name * 8, "name": name, "class_name": "Judge", "ray_namespace": "n", "state": "ALIVE"}
    return row | {"job_id": job, "is_detached": True, "required_resources": {"GPU": 0.5}} | fields


class Head:
    """A head with these rows, that counts requests."""

    def __init__(self, groups: Any, actors: Any = ()) -> None:
        self.rows = {"placement_groups": groups, "actors": list(actors), "nodes": UP}
        self.asked = 0

    def once(self, path: str, **_: object) -> Any:
        self.asked += 1
        return {"data": {"result": {"result": self.rows[path.split("?")[0].rpartition("/")[2]]}}}

    def jobs(self) -> list[Job]:
        return [RUNNING, Job("earlier", "SUCCEEDED", "", 1.0, 2.0, 0, {}, driver="01000000")]


def look(head: Any, nodes: Nodes = FIXED) -> list[str]:
    times = iter((0.0, *[float(FIRST_LOOK_S)] * 3))
    return [text for text, _ in PendingGroups(head, nodes, lambda: next(times)).look(RUNNING)]


def test_waiting_group_names_each_holder() -> None:
    groups = [
        group("rollouts", "PENDING", "02000000", 1, 4),
        group("trainers", "CREATED", "02000000", 1, 2),
        group("kept", "CREATED", "01000000", 1, 1, is_detached=True),
        group("theirs", "PENDING", "03000000", 4),
        group(ESCAPES, "PENDING", "02000000", 8),
    ]
    inside = {"placement_group_id": "kept", "required_resources": {"GPU_group_1": 1.0}}
    its = [actor("judge", "01000000"), actor("in", "01000000", **inside), actor("s", "1", ray_namespace="serve")]
    first, second = look(Head(groups, [*its, actor("busy", "03000000", is_detached=False)]))
    assert first == (
        "placement group rollouts needs 4 x (1 GPU); held: 2 GPU by this job, 1 GPU by detached placement group kept of"
        " job earlier, 0.5 GPU by detached actor judge of job earlier, 0.5 GPU by detached actor s of job 1,"
        " 0.5 GPU by job 03000000"
    )
    assert second.endswith("needs 8 GPU; it can never fit: no node has 8 GPU; the most on a node: 4 GPU")


def test_group_that_waits_for_nodes_counts_those_that_are_up() -> None:
    head = Head([group("rollouts", "PENDING", "02000000", 3, 4)])
    assert look(head, ELASTIC) == ["placement group rollouts needs 4 x (3 GPU); 2 of 4 nodes are up"]


def test_groups_that_wait_alike_are_one_line() -> None:
    groups = [group(f"trainers-{number}", "PENDING", "02000000", 1, 4) for number in range(32)]
    assert look(Head(groups), ELASTIC) == [
        "placement groups trainers-0 and 31 more each need 4 x (1 GPU); 2 of 4 nodes are up"
    ]


def test_looks_are_seldom_and_need_one_request_if_nothing_waits() -> None:
    head, now = Head([group("trainers", "CREATED", "02000000", 1)]), 0.0
    pending = PendingGroups(head, FIXED, lambda: now)  # type: ignore[arg-type]
    now = FIRST_LOOK_S - 1.0
    assert (list(pending.look(RUNNING)), head.asked) == ([], 0)
    now = FIRST_LOOK_S
    assert (list(pending.look(RUNNING)), head.asked) == ([], 1)
    head.rows["placement_groups"] = [group("rollouts", "PENDING", "02000000", 1)]
    assert (list(pending.look(RUNNING)), head.asked) == ([], 1)
    now += NEXT_LOOK_S
    assert len(list(pending.look(RUNNING))) == 1
    assert (head.asked, list(pending.look(Job("mine", "RUNNING", "", 1.0, None, None, {})))) == (4, [])


@pytest.mark.parametrize("rows", [None, [None], [{}], [{"state": "PENDING", "creator_job_id": "02000000"}], {"a": 1}])
def test_malformed_answers_and_silence_end_no_run(rows: Any) -> None:
    assert look(Head(rows)) == []

    class Silent(Head):
        def once(self, *_: object, **__: object) -> Any:
            raise UnreachableError("no answer")

    assert look(Silent([])) == []


def test_only_identified_actors_are_ended() -> None:
    left = holders([group("kept", "CREATED", "1", 1, is_detached=True)], [actor('x"; exit', "1")])
    option, code, given = ender(left)
    assert (option, json.loads(given)) == ("-c", [[['x"; exit' * 8, 'x"; exit', "n"]], ["kept" * 8]])
    compile(code, "ender", "exec")
