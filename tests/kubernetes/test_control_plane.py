"""The control plane: start and end of the real etcd, API server, controller manager and scheduler."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tools.kubernetes import builds
from tools.kubernetes.control_plane import ControlPlane
from tools.process import ProgramEnded

ROOT = Path(__file__).resolve().parents[2]
# Ready in four seconds on two idle cores; other processes share them during the tests.
READY_S = 45.0
GONE_S = 20.0
_OWNER = """
import json, sys, time
from pathlib import Path
from tools.kubernetes.control_plane import ControlPlane
try:
    with ControlPlane(Path(sys.argv[1])) as plane:
        print(json.dumps([plane.url, plane.running()]), flush=True)
        time.sleep(600)
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_two_control_planes_run_in_parallel(plane: ControlPlane, tmp_path: Path) -> None:
    """Two control planes are independent; a stopped one leaves only its logs."""
    builds.programs("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    began = time.monotonic()
    with ControlPlane(tmp_path) as other:
        assert time.monotonic() - began < READY_S
        assert other.url != plane.url
        other.api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}})
        assert plane.api.get("v1", "ConfigMap", "mine") is None
        running = other.running()
        assert {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} <= running.keys()
        kept = [(file, file.stat().st_mode & 0o077) for file in (other.kubeconfig, other.work)]
        assert all(mode == 0 for _, mode in kept), kept
    assert [name for name, pid in running.items() if psutil.pid_exists(pid)] == []
    assert not listens(other.url)
    assert listens(plane.url)
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]
    assert all(other.token not in log.read_text(errors="replace") for log in (tmp_path / "logs").iterdir())


@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGKILL])
def test_control_plane_ends_with_owner(tmp_path: Path, way: signal.Signals) -> None:
    """After Ctrl-C the owner cleans up; after SIGKILL the guards do."""
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True, process_group=0
    )
    try:
        assert owner.stdout is not None
        url, running = json.loads(owner.stdout.readline())
        assert len(running) == 5
        assert all(psutil.pid_exists(pid) for pid in running.values())
        os.kill(owner.pid, way)
        owner.wait(GONE_S)
    finally:
        owner.kill()
        owner.wait()
    until(lambda: not any(psutil.pid_exists(pid) for pid in running.values()))
    assert not listens(url)


def test_failed_program_is_reported_with_log(tmp_path: Path) -> None:
    refused = ControlPlane(tmp_path, server_flags=["--no-such-flag"])
    with (
        pytest.raises(ProgramEnded, match=r"(?s)kube-apiserver ended with status 1.*unknown flag: --no-such-flag"),
        refused,
    ):
        pytest.fail("the control plane says that it is ready")
    assert refused.running() == {}
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


def test_waiting_ends_when_a_program_dies(tmp_path: Path) -> None:
    with ControlPlane(tmp_path) as plane:
        os.kill(plane.running()["kube-scheduler"], signal.SIGKILL)
        with pytest.raises(ProgramEnded, match="kube-scheduler ended with status 137"):
            plane.api.until("what never comes", lambda: None, 30)
        plane.stop("kube-scheduler")
        plane.check()
        assert "kube-scheduler" not in plane.running()


def listens(url: str) -> bool:
    """Return whether a URL's host and port accept connections."""
    host, _, port = url.removeprefix("https://").rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def until(true: Callable[[], bool]) -> None:
    """Wait for a condition, up to a deadline."""
    deadline = time.monotonic() + GONE_S
    while not true():
        assert time.monotonic() < deadline, "a program of the control plane still runs"
        time.sleep(0.1)
