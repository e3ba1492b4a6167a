"""The control plane, whose etcd, API server, controller manager and scheduler are real, and the client of its API."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import psutil
import pytest

from tools.kubernetes.api import ApiError, NotYet
from tools.kubernetes.control_plane import ControlPlane
from tools.process import ProgramEnded


def test_stopped_control_plane_leaves_logs_without_token(plane: ControlPlane, tmp_path: Path) -> None:
    """Another one that runs in parallel stays as it is."""
    with ControlPlane(tmp_path) as other:
        other.api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}})
        assert plane.api.get("v1", "ConfigMap", "mine") is None
        running = other.running()
        assert {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} <= running.keys()
        assert [file.stat().st_mode & 0o077 for file in (other.kubeconfig, other.work)] == [0, 0]
    assert [name for name, pid in running.items() if psutil.pid_exists(pid)] == []
    assert (listens(other.url), listens(plane.url)) == (False, True)
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]
    assert all(other.token not in log.read_text(errors="replace") for log in (tmp_path / "logs").iterdir())


def test_control_plane_that_cannot_start_is_cleaned_up(tmp_path: Path) -> None:
    refused = ControlPlane(tmp_path, server_flags=["--no-such-flag"])
    with pytest.raises(ProgramEnded, match=r"(?s)kube-apiserver ended.*unknown flag: --no-such-flag"), refused:
        pytest.fail("the control plane says that it is ready")
    assert refused.running() == {}
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


def test_waiting_ends_when_a_program_dies(tmp_path: Path) -> None:
    with ControlPlane(tmp_path) as plane:
        os.kill(plane.running()["kube-scheduler"], signal.SIGKILL)
        with pytest.raises(ProgramEnded, match="kube-scheduler ended with status 137"):
            plane.api.until("what never comes", lambda: None, 30)


def test_timeout_reports_last_status(plane: ControlPlane) -> None:
    def look() -> None:
        raise NotYet("two of three")

    with pytest.raises(TimeoutError, match=r"three nodes: not within 0.3 s; last seen: two of three"):
        plane.api.until("three nodes", look, 0.3)


def test_unserved_kind_is_reported(plane: ControlPlane) -> None:
    with pytest.raises(ApiError, match='no matches for kind "Flavour" in version "v1"') as refused:
        plane.api.list("v1", "Flavour")
    assert refused.value.status == 404


def listens(url: str) -> bool:
    """Return whether a URL's host and port accept connections."""
    host, _, port = url.removeprefix("https://").rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0
