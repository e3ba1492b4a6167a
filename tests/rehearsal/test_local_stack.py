"""The life of the local stack with the real engine: up, drift, repair, change, down.

Real: the engine, the program, the dynamic provider, Ray. The tests share one stack and each leaves it up and complete,
so any of them can run alone; the last one takes it down.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from infra.local import loopback
from infra.local.processes import MARK, marked
from tests.clone import Clone, wait_until

PLANTED = "planted-0123456789abcdef0123456789abcdef-token"


@pytest.fixture(scope="module")
def up(clone: Clone) -> Iterator[Clone]:
    """The stack `local` of the copy, up with a known token."""
    clone.pulumi("stack", "select", "--create")
    clone.pulumi("config", "set", "--secret", "--path", "rdma-ray:ray.token", PLANTED)
    clone.up()
    yield clone
    clone.destroy()


def guard(clone: Clone, name: str) -> psutil.Process:
    """Return a node's process, as the stack recorded it."""
    return psutil.Process(int(clone.resources()[name]["pid"]))


def content(file: Path) -> bytes:
    """Return the contents of a file; empty if Ray removed it."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""


def set_nodes(clone: Clone, **settings: int) -> None:
    for key, value in settings.items():
        clone.pulumi("config", "set", "--path", f"rdma-ray:nodes.{key}", str(value))


def alive(clone: Clone) -> set[str]:
    """Return the nodes that Ray reports as alive."""
    ray = clone.outputs().ray
    return set(loopback.alive_nodes(ray.jobs, ray.token.get_secret_value()))


def test_second_preview_and_refresh_find_nothing_to_do(up: Clone) -> None:
    up.pulumi("preview", "--expect-no-changes")
    up.pulumi("refresh", "--yes", "--skip-preview", "--expect-no-changes")


def test_outputs_match_contract_and_cluster(up: Clone) -> None:
    outputs = up.outputs()
    assert (outputs.nodes.min, outputs.nodes.max, outputs.nodes.cpus_per_node) == (2, 2, 2)
    assert outputs.fabric.transport == "socket"
    assert outputs.ray.cluster == "local"
    assert outputs.ray.dashboard.startswith("http://127.0.0.1:")
    assert outputs.storage is not None
    assert outputs.ray.token.get_secret_value() == PLANTED
    assert alive(up) == {"head", "worker-1", "worker-2"}


def test_jobs_api_serves_the_bearer_of_the_token_only(up: Clone) -> None:
    url = f"{up.outputs().ray.jobs}/api/jobs/"
    assert loopback.http_status(url) == 401
    assert loopback.http_status(url, token="0" * 64) == 403
    assert loopback.http_status(url, token=PLANTED) == 200


def test_token_is_nowhere_in_clear_text(up: Clone) -> None:
    """Not in the engine's output and state, in Ray's logs, or in the command line or environment of a process."""
    up.pulumi("preview", "--diff")
    up.pulumi("stack", "output", "--json")
    assert PLANTED not in up.said
    folder = up.folder()
    files = [*(up.path / ".pulumi").rglob("*"), *up.path.glob("Pulumi*.yaml"), *folder.path.rglob("*")]
    searched = [file for file in files if file.is_file() and file != folder.token and "environment" not in file.parts]
    assert len(searched) > 20
    assert [file for file in searched if PLANTED.encode() in content(file)] == []
    assert folder.token.stat().st_mode & 0o777 == 0o600
    # The passphrase of the state in the clone is empty.
    assert (up.path / ".pulumi").stat().st_mode & 0o777 == 0o700
    nodes = list(marked(f"{folder.key}/"))
    assert len(nodes) > 5
    for process in nodes:
        assert PLANTED not in " ".join(process.cmdline())
        assert PLANTED not in str(process.environ())


def test_nodes_do_not_see_the_engines_secrets(up: Clone) -> None:
    environment = guard(up, "ray-head").environ()
    assert [name for name in environment if name.startswith("PULUMI_")] == []
    assert environment[MARK].startswith(up.folder().key)


def test_killed_worker_and_killed_guard_are_drift_and_are_repaired(up: Clone) -> None:
    """A guard is the process that watches a node: after SIGKILL to it, the node's processes still have its mark."""
    before = up.resources()
    dead, lost = guard(up, "ray-worker-1"), guard(up, "ray-worker-2")
    raylet = next(process for process in dead.children(recursive=True) if process.name() == "raylet")
    raylet.send_signal(signal.SIGKILL)
    wait_until(lambda: not dead.is_running() or dead.status() == psutil.STATUS_ZOMBIE, "the node's guard goes too")
    lost.send_signal(signal.SIGKILL)
    drift = up.pulumi("refresh", "--yes", "--skip-preview")
    assert "ray-worker-1" in drift
    assert "ray-worker-2" in drift
    assert up.resources() == {"ray-head": before["ray-head"]}
    up.up()
    after = up.resources()
    assert after["ray-head"] == before["ray-head"]
    for name in ("ray-worker-1", "ray-worker-2"):
        assert after[name]["id"] != before[name]["id"]
        assert list(marked(f"{up.folder().key}/{before[name]['id']}")) == []
    assert alive(up) == {"head", "worker-1", "worker-2"}


def test_worker_count_changes_without_touching_the_head(up: Clone) -> None:
    head = up.resources()["ray-head"]
    first = up.resources()["ray-worker-1"]
    set_nodes(up, count=1)
    up.up()
    wait_until(lambda: alive(up) == {"head", "worker-1"}, "Ray sees the second worker go")
    assert up.resources() == {"ray-head": head, "ray-worker-1": first}
    set_nodes(up, count=2)
    up.up()
    assert alive(up) == {"head", "worker-1", "worker-2"}
    assert up.resources()["ray-head"] == head


def test_cpus_change_restarts_workers_in_place(up: Clone) -> None:
    before = up.resources()
    set_nodes(up, cpus=1)
    assert "replace" not in up.up()
    after = up.resources()
    assert after["ray-head"] == before["ray-head"]
    for name in ("ray-worker-1", "ray-worker-2"):
        assert after[name]["id"] == before[name]["id"]
        assert after[name]["pid"] != before[name]["pid"]
        assert after[name]["cpus"] == 1
    up.pulumi("preview", "--expect-no-changes")


def test_second_stack_runs_in_parallel(up: Clone) -> None:
    before = up.resources()
    (up.path / "Pulumi.second.yaml").write_text("config:\n  rdma-ray:target: local\n  rdma-ray:nodes: {count: 1}\n")
    up.pulumi("stack", "init", "--no-select", stack="second")
    up.up("second")
    ours, theirs = up.outputs().ray, up.outputs("second").ray
    assert theirs.jobs != ours.jobs
    assert loopback.requires_token(theirs.jobs, theirs.token.get_secret_value())
    assert loopback.http_status(f"{theirs.jobs}/api/jobs/", token=PLANTED) == 403
    up.destroy("second")
    assert not up.folder("second").path.exists()
    assert up.resources() == before
    assert alive(up) == {"head", "worker-1", "worker-2"}


def test_killed_head_is_recreated_with_workers(up: Clone) -> None:
    dead = guard(up, "ray-head")
    gcs = next(process for process in dead.children(recursive=True) if process.name() == "gcs_server")
    gcs.send_signal(signal.SIGKILL)
    wait_until(lambda: not dead.is_running() or dead.status() == psutil.STATUS_ZOMBIE, "the head's guard goes too")
    up.up()
    assert alive(up) == {"head", "worker-1", "worker-2"}
    assert {process.environ()[MARK].split("/")[1] for process in marked(f"{up.folder().key}/")} == {
        resource["id"] for resource in up.resources().values()
    }


def test_destroy_leaves_no_process_no_resource_and_no_file(up: Clone) -> None:
    up.destroy()
    assert list(marked(f"{up.folder().key}/")) == []
    assert not up.folder().path.exists()
    assert up.resources() == {}
