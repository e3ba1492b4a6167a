"""Real nodes of the cloud controllers: started in threads, one request per node at a time, up to the limit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from infra.settings import from_stack_file
from rehearsal.cluster.controllers.events import Event
from rehearsal.cluster.controllers.fleet import Fleet
from rehearsal.cluster.controllers.nodes import node
from rehearsal.cluster.controllers.snapshot import Context, Delays, Snapshot
from rehearsal.cluster.real_nodes import RealNodes, shape, stubs
from rehearsal.engine.state import State
from rehearsal.engine.workspace import ROOT
from tests.clone import wait_until
from tests.rehearsal.cluster.simulated_clouds import gpu_pool
from tests.rehearsal.cluster.test_controllers import gke_pools

WITHIN_S = 30.0


@pytest.fixture
def may_start() -> threading.Event:
    """Starts of machines wait for it."""
    return threading.Event()


@pytest.fixture
def cluster(may_start: threading.Event) -> Mock:
    """Records its calls; its API server has Node objects and no pods."""
    found = Mock(objects={})
    found.begin.side_effect = lambda *_: may_start.wait(WITHIN_S)
    api = found.plane.api
    api.create.side_effect = lambda body: found.objects.setdefault(body["metadata"]["name"], body)
    api.delete.side_effect = lambda _version, _kind, name: found.objects.pop(name, None)
    api.list.side_effect = lambda _version, kind: list(found.objects.values()) if kind == "Node" else []
    api.request.return_value = {"items": []}
    return found


def machines(cluster: Mock) -> list[str]:
    """Return the calls that start and stop machines."""
    return [f"{call[0]} {call[1][0]}" for call in cluster.method_calls if call[0] in ("begin", "remove")]


@pytest.fixture
def nodes(cluster: Mock, may_start: threading.Event) -> Iterator[RealNodes]:
    nodes = RealNodes(cluster, most=2)
    yield nodes
    may_start.set()
    nodes.close()


def test_node_start_does_not_block_and_precedes_stop(
    cluster: Mock, nodes: RealNodes, may_start: threading.Event, tmp_path: Path
) -> None:
    pool = gke_pools(tmp_path, gpu_pool("gpu", 4))["gpu"]
    made = nodes.start(pool, node(pool, "a", {"nvidia.com/gpu": 8}))
    assert "status" not in made, "the kubelet's to write"
    assert made["spec"]["taints"]
    nodes.stop("a")
    assert "remove a" not in machines(cluster), "no call waited for the start"
    may_start.set()
    wait_until(lambda: machines(cluster) == ["begin a", "remove a"], "the node is stopped")
    nodes.check()


def test_failed_node_start_is_reported(cluster: Mock, nodes: RealNodes, tmp_path: Path) -> None:
    cluster.begin.side_effect = RuntimeError("containerd has ended")
    pool = gke_pools(tmp_path, gpu_pool("gpu", 4))["gpu"]
    nodes.start(pool, node(pool, "a", {}))
    nodes.close()
    with pytest.raises(RuntimeError, match="containerd has ended"):
        nodes.check()


def test_only_gke_gpu_machines_have_driver_folders(tmp_path: Path) -> None:
    pools = gke_pools(tmp_path, gpu_pool("gpu", 4))
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
    cluster: Mock, nodes: RealNodes, may_start: threading.Event, tmp_path: Path
) -> None:
    events: list[Event] = []
    api = cluster.plane.api
    state = State(tmp_path / "own.sqlite")

    def report(kind: str, **fields: Any) -> None:
        events.append(Event(kind, fields))

    desk = Context(api=api, state=state, delays=Delays(), now=lambda: 0.0, report=report)
    fleet = Fleet(desk, nodes)
    pool = gke_pools(tmp_path, gpu_pool("gpu", 4, nodeCount=3))["gpu"]
    for _ in range(2):
        fleet.reconcile(Snapshot(api=api, now=0.0, cluster=None, pools=[pool]))
    granted = [event.node for event in events if event.kind == "NodeGranted"]
    assert len(granted) == 2
    assert [(each.count, each.room) for each in events if each.kind == "MachineFull"] == [(3, 2)]
    cluster.objects[granted[0]]["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    fleet.reconcile(Snapshot(api=api, now=0.0, cluster=None, pools=[pool]))
    assert [event.node for event in events if event.kind == "NodeJoined"] == granted[:1]
    fleet.reconcile(Snapshot(api=api, now=0.0, cluster=None, pools=[]))
    assert {event.node for event in events if event.kind == "NodeRemoved"} == set(granted)
    assert nodes.room() == 2
    may_start.set()
    wanted = sorted(f"{what} {name}" for name in granted for what in ("begin", "remove"))
    wait_until(lambda: sorted(machines(cluster)) == wanted, "both machines are stopped")
