"""Component and providers of the local cluster, without an engine and without Ray."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from infra.catalog.pins import RAY
from infra.local import loopback
from infra.local import node as ray_node
from infra.local.folder import ClusterFolder, FolderError
from infra.local.provider import RayHeadProvider, RayWorkerProvider

WORKER = {
    "folder": "/tmp/rdma-ray-0/0",
    "name": "worker-1",
    "position": 1,
    "cpus": 2,
    "headId": "head-1",
    "headAddress": "127.0.0.2:20000",
    "jobs": "http://127.0.0.1:8265",
}
HEAD = {"folder": "/tmp/rdma-ray-0/0", "name": "head", "rayVersion": RAY}


@pytest.mark.parametrize("key", ["folder", "name", "position", "headId", "headAddress"])
def test_worker_is_replaced_with_its_head_or_folder(key: str) -> None:
    result = RayWorkerProvider().diff("id", WORKER, WORKER | {key: "other"})
    assert (result.changes, result.replaces, result.delete_before_replace) == (True, [key], True)


def test_worker_changes_cpus_in_place() -> None:
    result = RayWorkerProvider().diff("id", WORKER, WORKER | {"cpus": 4})
    assert (result.changes, result.replaces) == (True, [])


def test_head_keeps_a_generated_token() -> None:
    assert RayHeadProvider().diff("id", HEAD | {"token": "made"}, HEAD).changes is False
    assert RayHeadProvider().diff("id", HEAD | {"token": "made"}, HEAD | {"token": "given"}).replaces == ["token"]


def test_head_of_another_ray_version_is_rejected() -> None:
    result = RayHeadProvider().check({}, HEAD | {"rayVersion": "2.52.0"})
    assert [failure.property for failure in result.failures] == ["rayVersion"]
    assert f"environment has Ray {loopback.ray_version()}" in result.failures[0].reason
    assert "set ray.version" in result.failures[0].reason
    assert RayHeadProvider().check({}, HEAD | {"rayVersion": loopback.ray_version()}).failures == []


def test_dead_node_reads_as_deleted() -> None:
    assert RayWorkerProvider().read("worker-1-x", WORKER | {"pid": 1, "started": 1.0}).id == ""


@pytest.mark.parametrize("earlier_results", [False, True])
def test_head_that_does_not_start_leaves_no_token_and_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, earlier_results: bool
) -> None:
    """Only results of an earlier head stay: they are the user's."""

    def fail(*_: object, **__: object) -> None:
        raise ray_node.NodeError("Ray node head ended while it started")

    monkeypatch.setattr(ray_node, "start", fail)
    folder = ClusterFolder(tmp_path / "rdma-ray" / "01234567")
    if earlier_results:
        folder.make()
        (folder.storage / "checkpoint").touch()
    with pytest.raises(ray_node.NodeError):
        RayHeadProvider().create(HEAD | {"folder": str(folder.path)})
    assert not folder.token.exists()
    assert folder.path.exists() is earlier_results


def test_folder_of_another_user_is_rejected(tmp_path: Path) -> None:
    """A link in /tmp could redirect the token to another user."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "rdma-ray-0").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FolderError, match="belongs to another user"):
        ClusterFolder(tmp_path / "rdma-ray-0" / "01234567").make()


@pytest.mark.parametrize(
    ("message", "times"), [("The current node timed out during startup.", 3), ("No such option", 1)]
)
def test_node_that_ray_found_too_slow_is_restarted(tmp_path: Path, message: str, times: int) -> None:
    folder = ClusterFolder(tmp_path / "mine" / "one")
    folder.make()
    # A program that prints Ray's message and ends takes the place of Ray.
    (folder.path / "environment").unlink()
    folder.python.parent.mkdir(parents=True)
    folder.python.write_text(f"#!/bin/sh\necho once >> {tmp_path}/count\necho '{message}'\nexit 1\n")
    folder.python.chmod(0o755)
    with pytest.raises(ray_node.NodeError, match=message):
        ray_node.start(
            folder,
            "head",
            address="127.0.0.2",
            agent_port=20_000,
            ray_arguments=[],
            environment={},
            ready=lambda: False,
        )
    assert (tmp_path / "count").read_text().count("once") == times
    assert not folder.node("head").exists()


def test_heads_of_one_user_start_one_at_a_time(tmp_path: Path) -> None:
    one, other = ClusterFolder(tmp_path / "mine" / "one"), ClusterFolder(tmp_path / "mine" / "other")
    for folder in (one, other):
        folder.make()
    inside = threading.Event()

    def start() -> None:
        with other.start_alone():
            inside.set()

    waiting = threading.Thread(target=start)
    with one.start_alone():
        waiting.start()
        assert not inside.wait(0.3)
    assert inside.wait(10)
    waiting.join()
