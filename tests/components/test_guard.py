"""Guard of a node, with a test command instead of Ray: which processes end, and which files remain."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from infra.local import guard, processes
from infra.local.node import LocalNode
from tests.clone import PROJECT, wait_until

# A node that starts a helper which ignores SIGTERM and leaves the process group of its parent.
STUBBORN = """
import subprocess, sys, time
child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
time.sleep(600)
"""


@pytest.fixture
def mark() -> Iterator[str]:
    mark = f"test-{os.getpid()}/{os.urandom(4).hex()}"
    yield mark
    processes.end_marked(mark)


def start(folder: Path, mark: str, code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "infra.local.guard", str(folder), sys.executable, "-c", code],
        cwd=PROJECT,
        env=os.environ | {processes.MARK: mark},
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


def started(mark: str, count: int) -> list[psutil.Process]:
    wait_until(lambda: len(list(processes.marked(mark))) >= count, "the node's processes start", 20)
    return list(processes.marked(mark))


def test_closed_pipe_before_the_commit_ends_the_node(tmp_path: Path, mark: str) -> None:
    folder = tmp_path / "node"
    folder.mkdir()
    watcher = start(folder, mark, STUBBORN)
    started(mark, 3)
    assert watcher.stdin is not None
    watcher.stdin.close()
    assert watcher.wait(30) == 1
    assert list(processes.marked(mark)) == []
    assert not folder.exists()


def test_closed_pipe_after_the_commit_has_no_effect(tmp_path: Path, mark: str) -> None:
    watcher = start(tmp_path, mark, STUBBORN)
    started(mark, 3)
    assert watcher.stdin is not None
    watcher.stdin.write(guard.COMMIT)
    watcher.stdin.close()
    with pytest.raises(subprocess.TimeoutExpired):
        watcher.wait(1.5)
    watcher.terminate()
    assert watcher.wait(30) == 0
    assert list(processes.marked(mark)) == []
    assert tmp_path.exists()


def test_node_that_fails_to_start_keeps_its_log(tmp_path: Path, mark: str) -> None:
    watcher = start(tmp_path, mark, "raise SystemExit('port 6379 is taken')")
    assert watcher.wait(30) == 1
    assert "port 6379 is taken" in (tmp_path / "ray.log").read_text()


def test_processes_of_a_dead_node_end(tmp_path: Path, mark: str) -> None:
    watcher = start(tmp_path, mark, STUBBORN)
    assert watcher.stdin is not None
    watcher.stdin.write(guard.COMMIT)
    watcher.stdin.flush()
    node = next(process for process in started(mark, 3) if process.ppid() == watcher.pid)
    node.kill()
    assert watcher.wait(30) == 0
    assert list(processes.marked(mark)) == []


def test_process_id_includes_the_start_time() -> None:
    own = psutil.Process()
    assert LocalNode("own", own.pid, own.create_time()).guard() == own
    assert LocalNode("own", own.pid, own.create_time() - 60).guard() is None


def test_processes_of_other_nodes_keep_running(tmp_path: Path, mark: str) -> None:
    """`worker-1` does not match `worker-10`: a prefix ends at the dash before the node's random suffix."""
    other = start(tmp_path, f"{mark}/worker-10-aaaa", "import time; time.sleep(600)")
    try:
        started(f"{mark}/worker-10-", 2)
        processes.end_marked(f"{mark}/worker-1-")
        assert other.poll() is None
    finally:
        other.terminate()
        other.wait(30)
