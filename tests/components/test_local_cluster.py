"""Component and providers of the local cluster, without an engine and without Ray."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from infra.catalog.pins import RAY
from infra.local import loopback, processes
from infra.local import node as ray_node
from infra.local.folder import ClusterFolder, FolderError
from infra.local.provider import RayHeadProvider, RayWorkerProvider
from tests.clone import executable
from tests.other_user import needs_root
from tests.planted import ATTACKER, VICTIM, as_user, shared_folder

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


def closed(path: Path, _: Path) -> None:
    path.mkdir()
    path.chmod(0)


def with_a_fifo(path: Path, _: Path) -> None:
    """What `make down` and a worker's update read of a cluster whose folder a cleaner of /tmp has removed."""
    (path / "01234567" / "worker-1").mkdir(parents=True)
    for name in ("token", "worker-1/process.json"):
        os.mkfifo(path / "01234567" / name, 0o666)


@needs_root
@pytest.mark.parametrize(
    "plant",
    [
        lambda path, elsewhere: path.symlink_to(elsewhere),
        lambda path, _: path.symlink_to("/nowhere"),
        lambda path, _: os.mkfifo(path, 0o666),
        lambda path, _: path.touch(0o666),
        closed,
        with_a_fifo,
    ],
    ids=["link", "dangling", "fifo", "file", "closed", "folder"],
)
def test_folder_that_another_user_made_first_is_refused(plant: Callable[[Path, Path], None]) -> None:
    """Its name is known. A link could redirect the token, and what is in it could stop or end anything of the user."""

    def use() -> list[str]:
        folder = ClusterFolder(tmp / "rdma-ray-1234" / "01234567")
        worker = WORKER | {"folder": str(folder.path), "pid": 2**22, "started": 1.0}
        refused = []
        for operation in (
            folder.make,
            folder.start_alone().__enter__,
            lambda: RayHeadProvider().create(HEAD | {"folder": str(folder.path)}),
            lambda: RayWorkerProvider().update("id", worker, worker | {"cpus": 4}),
        ):
            with pytest.raises(FolderError) as caught:
                operation()
            refused.append(str(caught.value))
        # Nothing of the cluster is left there.
        RayWorkerProvider().delete("id", worker)
        RayHeadProvider().delete("id", HEAD | {"folder": str(folder.path), "pid": 2**22, "started": 1.0})
        return refused

    with shared_folder() as tmp:
        as_user(VICTIM, lambda: (tmp / "elsewhere").mkdir(mode=0o755))
        as_user(ATTACKER, lambda: plant(tmp / "rdma-ray-1234", tmp / "elsewhere"))
        before = sorted((path, path.lstat().st_mode) for path in tmp.rglob("*"))
        [said] = set(as_user(VICTIM, use))
        assert said.startswith(f"{tmp / 'rdma-ray-1234'} is not a folder, or belongs to another user; remove it")
        assert sorted((path, path.lstat().st_mode) for path in tmp.rglob("*")) == before


@needs_root
def test_only_processes_of_the_user_count() -> None:
    """Root reads every environment: another user's process with the mark would be started again for ever."""
    process = as_user(
        ATTACKER,
        lambda: subprocess.Popen(["sleep", "60"], env={processes.MARK: "01234567/head"}, start_new_session=True).pid,
    )
    try:
        assert psutil.Process(process).environ()[processes.MARK] == "01234567/head"
        assert [*processes.marked("01234567/")] == []
    finally:
        os.kill(process, signal.SIGKILL)


@pytest.mark.parametrize(
    ("message", "times"), [("The current node timed out during startup.", 3), ("No such option", 1)]
)
def test_node_that_ray_found_too_slow_is_restarted(tmp_path: Path, message: str, times: int) -> None:
    folder = ClusterFolder(tmp_path / "mine" / "one")
    folder.make()
    # A program that prints Ray's message and ends takes the place of Ray.
    (folder.path / "environment").unlink()
    executable(folder.python, f"#!/bin/sh\necho once >> {tmp_path}/count\necho '{message}'\nexit 1\n")
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
