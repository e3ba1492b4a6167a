"""Real nodes of the cloud controllers: started in threads, one request per node at a time, up to the limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from infra.settings import from_stack_file
from rehearsal.clouds.kind import Json
from rehearsal.clouds.state import State
from rehearsal.cluster.controllers.events import Event, MachineFull, NodeGranted, NodeJoined, NodeRemoved
from rehearsal.cluster.controllers.fleet import Fleet
from rehearsal.cluster.controllers.nodes import node
from rehearsal.cluster.controllers.pools import Pool, pools
from rehearsal.cluster.controllers.snapshot import Context, Delays, Snapshot
from rehearsal.cluster.real_nodes import RealNodes, shape, stubs
from rehearsal.workspace import ROOT
from tests.kubernetes import simulated_clouds as clouds
from tests.kubernetes.simulated_clouds import GKE, gpu_pool
from tools.kubernetes.api import Api
from tools.kubernetes.node import Cluster, NodeShape

WITHIN_S = 30.0


@dataclass
class FakeApi:
    """Node objects by name; no pods."""

    nodes: dict[str, Json] = field(default_factory=dict)

    def create(self, body: Json) -> Json:
        self.nodes[body["metadata"]["name"]] = body
        return body

    def delete(self, _version: str, _kind: str, name: str) -> None:
        self.nodes.pop(name, None)

    def list(self, _version: str, kind: str) -> list[Json]:
        return list(self.nodes.values()) if kind == "Node" else []

    def path(self, _version: str, kind: str) -> str:
        return kind

    def request(self, _verb: str, _path: str, **_more: Any) -> Json:
        return {"items": []}


class FakeCluster:
    """Records its calls; a node starts when `go` is set, or fails with `problem`."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.plane = self
        self.said: list[str] = []
        self.shapes: dict[str, NodeShape] = {}
        self.scale_down = threading.Event()
        self.problem: Exception | None = None

    def begin(self, name: str, shape: NodeShape) -> None:
        assert self.scale_down.wait(WITHIN_S)
        if self.problem is not None:
            raise self.problem
        self.shapes[name] = shape
        self.said.append(f"begin {name}")

    def remove(self, name: str) -> None:
        self.said.append(f"remove {name}")

    def check(self) -> None:
        """Report no problem."""


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def nodes(cluster: FakeCluster) -> Iterator[RealNodes]:
    nodes = RealNodes(cast(Cluster, cluster), most=2)
    yield nodes
    cluster.scale_down.set()
    nodes.close()


def gke_pools(tmp_path: Path, **more: Any) -> dict[str, Pool]:
    state = State(tmp_path / "clouds.sqlite")
    clouds.gke(state, gpu_pool("gpu", 4, **more))
    with state.transaction() as view:
        return {pool.name: pool for pool in pools(view, ("gcp:container/cluster:Cluster", GKE))}


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_node_start_does_not_block_and_precedes_stop(cluster: FakeCluster, nodes: RealNodes, tmp_path: Path) -> None:
    pool = gke_pools(tmp_path)["gpu"]
    made = nodes.start(pool, node(pool, "a", {"nvidia.com/gpu": 8}))
    assert "status" not in made, "the kubelet's to write"
    assert made["spec"]["taints"]
    nodes.stop("a")
    assert cluster.said == [], "neither is done yet, and no call waited"
    cluster.scale_down.set()
    until(lambda: len(cluster.said) == 2)
    assert cluster.said == ["begin a", "remove a"]
    nodes.check()


def test_failed_node_start_is_reported(cluster: FakeCluster, nodes: RealNodes, tmp_path: Path) -> None:
    cluster.problem = RuntimeError("containerd has ended")
    cluster.scale_down.set()
    pool = gke_pools(tmp_path)["gpu"]
    nodes.start(pool, node(pool, "a", {}))
    nodes.close()
    with pytest.raises(RuntimeError, match="containerd has ended"):
        nodes.check()


def test_only_gke_gpu_machines_have_driver_folders(tmp_path: Path) -> None:
    pools = gke_pools(tmp_path)
    assert set(shape(pools["gpu"]).host_files) == {"/home/kubernetes/bin/nvidia/lib64", "/home/kubernetes/bin/gib"}
    assert not shape(pools["system"]).host_files


def test_unavailable_images_are_replaced() -> None:
    gke = stubs(from_stack_file(ROOT / "Pulumi.gke.yaml"))
    assert {name.partition(":")[0]: bool(files) for name, files in gke.items()} == {
        "gke.gcr.io/pause": False,
        "us-docker.pkg.dev/gce-ai-infra/gpudirect-gib/nccl-plugin-gib": True,
    }
    assert stubs(from_stack_file(ROOT / "Pulumi.eks.yaml")) == {}


def test_fleet_grants_up_to_limit_and_reports_ready_nodes(
    cluster: FakeCluster, nodes: RealNodes, tmp_path: Path
) -> None:
    events: list[Event] = []
    api = cast(Api, cluster.api)
    state = State(tmp_path / "own.sqlite")
    desk = Context(api=api, state=state, delays=Delays(), now=lambda: 0.0, report=events.append)
    fleet = Fleet(desk, nodes)
    pool = gke_pools(tmp_path, nodeCount=3)["gpu"]
    for _ in range(2):
        fleet.reconcile(Snapshot(api=api, now=0.0, cluster=None, pools=[pool]))
    granted = [event.node for event in events if isinstance(event, NodeGranted)]
    assert len(granted) == 2
    assert [(each.count, each.room) for each in events if isinstance(each, MachineFull)] == [(3, 2)]
    cluster.api.nodes[granted[0]]["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    fleet.reconcile(Snapshot(api=api, now=0.0, cluster=None, pools=[pool]))
    assert [event.node for event in events if isinstance(event, NodeJoined)] == granted[:1]
    fleet.reconcile(Snapshot(api=api, now=0.0, cluster=None, pools=[]))
    assert {event.node for event in events if isinstance(event, NodeRemoved)} == set(granted)
    assert nodes.room() == 2
    cluster.scale_down.set()
    wanted = sorted(f"{what} {name}" for name in granted for what in ("begin", "remove"))
    until(lambda: sorted(cluster.said) == wanted)
