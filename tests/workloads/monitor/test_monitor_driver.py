"""The monitor's driver without a cluster: the lease, probes of nodes that come and go, and Ray's state in words."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray.core.generated.autoscaler_pb2 import (  # type: ignore[attr-defined]  # generated
    ClusterConfig,
    GetClusterStatusReply,
    NodeStatus,
)

from tests.workloads.monitor.simulated import Fleet
from workloads.monitor.driver import DEAD_S, RETRY_S, DeadNodes, Leased, Paced, Probes, publish, wanted, with_reading
from workloads.monitor.ray_state import HEAD, demands_of, in_use, nodes_of
from workloads.monitor.snapshot import LEASE_S, NOT_PROBED, PROBE_STARTS, Lease, NodeState, Reading, Snapshot, decode

READING = Reading(seconds=2)


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Cluster:
    """Ray's actors: what each node answers, and what was started and killed."""

    answers: dict[str, Any] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)

    def start(self, node: str) -> Any:
        self.started.append(node)
        return _Actor(node)

    def wait(self, answers: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        assert (num_returns, timeout) == (len(answers), 1)
        return [answer for answer in answers if answer[0] in self.answers], []

    def get(self, answer: Any) -> Reading:
        found = self.answers[answer[0]]
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, Reading)
        return found

    def kill(self, actor: Any) -> None:
        self.killed.append(actor.node)


class _Actor:
    def __init__(self, node: str) -> None:
        self.node, self.read = node, self
        self.asked = 0

    def remote(self) -> Any:
        self.asked += 1
        return self.node, self.asked


def test_lease_ends_when_its_client_is_gone_or_writes_nonsense() -> None:
    clock = Clock()
    current: list[bytes | None] = [None]
    leased = Leased(lambda: current[0], clock)
    assert leased()  # a client that is still starting
    current[0] = Lease(count=1, interval_s=5).model_dump_json().encode()
    clock.now += LEASE_S - 1
    assert leased()
    assert leased.last.interval_s == 5
    for current[0] in (None, b"nonsense"):
        assert leased()
    clock.now += LEASE_S
    assert not leased()


def test_probes_follow_nodes_that_come_hang_and_die() -> None:
    clock, cluster = Clock(), Cluster({"a": READING})
    probes = Probes(cluster.start, cluster.wait, cluster.get, cluster.kill, clock)
    probes.poll(frozenset("ab"), 1)
    assert (sorted(cluster.started), list(probes.readings)) == (["a", "b"], ["a"])
    clock.now += RETRY_S + 1
    probes.poll(frozenset("ab"), 1)
    assert probes.notes == {"b": f"no answer of the probe for {RETRY_S + 1:.0f} s"}
    cluster.answers = {"a": RuntimeError("node died"), "b": READING}
    probes.poll(frozenset("ab"), 1)
    assert (list(probes.readings), probes.notes) == (["b"], {"a": "the probe ended: node died"})
    # Not again at once: a node that kills its probes would be busy with them.
    probes.poll(frozenset("ab"), 1)
    assert cluster.started.count("a") == 1
    clock.now += RETRY_S
    cluster.answers["a"] = READING
    probes.poll(frozenset("ab"), 1)
    assert (cluster.started.count("a"), probes.notes) == (2, {})
    probes.poll(frozenset("b"), 1)
    assert (cluster.killed, list(probes.readings)) == (["a"], ["b"])


def status(*nodes: tuple[str, str, dict[str, float], dict[str, float]]) -> Any:
    """Return Ray's message with these nodes: address, status, total and free resources."""
    found: Any = GetClusterStatusReply()
    for address, state, total, free in nodes:
        node = found.cluster_resource_state.node_states.add(
            node_id=address.encode(),
            node_ip_address=address,
            status=NodeStatus.Value(state),
            ray_node_type_name="gpu-group",
        )
        node.total_resources.update(total)
        node.available_resources.update(free)
    return found


def test_elastic_stack_keeps_probes_off_idle_nodes() -> None:
    """A probe is a worker process, and Ray's autoscaler removes only nodes without any."""
    found = status(
        ("10.0.0.10", "IDLE", {"CPU": 8, "GPU": 8}, {"CPU": 8, "GPU": 8}),
        ("10.0.0.9", "RUNNING", {"CPU": 8, "GPU": 8}, {"CPU": 8, "GPU": 6.5}),
        ("10.0.0.8", "DEAD", {"CPU": 8}, {}),
        ("10.0.0.1", "RUNNING", {HEAD: 1}, {HEAD: 1}),
    )
    nodes = nodes_of(found)
    assert [(node.address, node.role, node.state) for node in nodes] == [
        ("10.0.0.1", "head", "running"), ("10.0.0.8", "worker", "dead"),
        ("10.0.0.9", "worker", "running"), ("10.0.0.10", "worker", "idle"),
    ]  # fmt: skip
    assert nodes[2].gpus.used == 1.5
    names = {node.id: node.address for node in nodes}
    used = in_use(found)
    assert {names[node] for node in wanted(nodes, used, elastic=True)} == {"10.0.0.1", "10.0.0.9"}
    assert len(wanted(nodes, used, elastic=False)) == 3
    probed = wanted(nodes, used, elastic=True)
    cluster = Cluster()
    shown = [with_reading(node, probed, Probes(cluster.start)) for node in nodes]
    assert [shown[2].note, shown[1].note] == [PROBE_STARTS, None]
    assert shown[3].note == NOT_PROBED


def test_dead_nodes_leave_the_list() -> None:
    clock = Clock()
    dead = DeadNodes(clock)
    [head, node] = Fleet(2).snapshot().nodes
    gone = node.model_copy(update={"state": "dead"})
    assert dead([gone]) == []  # died before the monitor started
    dead([head, node])
    assert dead([head, gone]) == [head, gone]
    clock.now += DEAD_S
    assert dead([head, gone]) == [head]


def demands(found: Any, config: Any = None) -> list[tuple[str, int, str]]:
    return [(demand.what, demand.count, demand.why) for demand in demands_of(found, config)[0]]


def test_pending_demands_say_why_they_wait() -> None:
    found = status(("a", "RUNNING", {"CPU": 4}, {"CPU": 1}), ("b", "DEAD", {"GPU": 8}, {"GPU": 8}))
    state = found.cluster_resource_state
    for bundle, count in (({"CPU": 2}, 3), ({"GPU": 1}, 1), ({"CPU": 1, "bundle_group_0a": 0.001}, 1)):
        state.pending_resource_requests.add(count=count).request.resources_bundle.update(bundle)
    assert demands(found) == [
        ("2 CPU", 3, "waiting for free resources: 0 of 1 nodes that fit 2 CPU have them free"),
        ("1 GPU", 1, "infeasible: no node has 1 GPU; the most on any node: 0 GPU"),
    ]
    config = ClusterConfig()
    config.node_group_configs.add(name="gpu-group").resources.update({"GPU": 8})
    assert demands(found, config)[1][2] == "waiting for the autoscaler to add nodes of gpu-group"
    found.autoscaling_state.infeasible_resource_requests.add().resources_bundle.update({"GPU": 1})
    assert demands(found, config)[1][2].startswith("infeasible: no node group of the autoscaler fits 1 GPU")
    found.autoscaling_state.pending_instance_requests.add(ray_node_type_name="gpu-group", count=2)
    assert demands(found, config)[0][2] == "waiting for nodes: 2 of gpu-group starting"


def test_gang_demand_is_explained_by_its_hardest_bundle() -> None:
    found = status(("a", "RUNNING", {"CPU": 4}, {"CPU": 4}))
    gang = found.cluster_resource_state.pending_gang_resource_requests.add(details="5f3c12aa99:STRICT_SPREAD|PENDING")
    selector = gang.bundle_selectors.add()
    for bundle in ({"CPU": 1}, {"CPU": 4, "GPU": 8}, {"CPU": 1}):
        selector.resource_requests.add().resources_bundle.update(bundle)
    assert demands(found) == [
        (
            "placement group 5f3c12aa STRICT_SPREAD: 2 × {1 CPU}, 1 × {8 GPU, 4 CPU}",
            1,
            "infeasible: no node has 8 GPU, 4 CPU; the most on any node: 0 GPU, 4 CPU",
        )
    ]


def test_slow_parts_of_the_state_are_read_less_often() -> None:
    clock, reads = Clock(), []
    paced = Paced(clock)

    def slow() -> int:
        clock.now += 1
        reads.append(clock.now)
        return len(reads)

    for _ in range(60):
        value = paced("actors", slow)
        clock.now += 1
    assert (len(reads), value) == (3, 3)  # a second of reading in twenty


def test_published_file_is_whole_and_its_only_copy(tmp_path: Path) -> None:
    file = tmp_path / "rdma-ray-top-x.json"
    for step in range(2):
        publish(file, Fleet(3).snapshot(step))
    assert list(tmp_path.iterdir()) == [file]
    found: Snapshot = decode(json.loads(file.read_text()))
    assert found == Fleet(3).snapshot(1)
    assert isinstance(found.nodes[0], NodeState)
