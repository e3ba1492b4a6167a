"""Depths of a rehearsal: their independence, and the messages where one of them is not available."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rehearsal.__main__ import NOT_RUN, folder_name, main
from rehearsal.engine.workspace import ROOT
from tools.kubernetes import node_probe
from tools.kubernetes.builds import BuildError
from tools.kubernetes.containers import Missing
from tools.kubernetes.control_plane import ControlPlane


def test_quick_depth_does_not_import_cluster_depth() -> None:
    others = ("rehearsal.cluster", "tools.kubernetes", "requests")
    look = f"print([name for name in sys.modules if name.startswith({others})])"
    program = f"import sys, rehearsal.__main__, rehearsal.plugin, rehearsal.clouds.kubernetes.cloud; {look}"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_missing_compiler_fails_the_rehearsal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(_plane: ControlPlane) -> None:
        raise BuildError("go is not on PATH: kube-apiserver cannot be built. Without it, DEPTH=quick still runs")

    monkeypatch.setattr(ControlPlane, "__enter__", missing)
    folders = ["--workspace", str(tmp_path / "w"), "--results", str(tmp_path / "r")]
    assert main(["--stack", "gke", "--depth", "cluster", *folders]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "kube-apiserver cannot be built. Without it, DEPTH=quick still runs" in said
    assert "Traceback" not in said
    assert not (tmp_path / "r").exists()


def test_depth_pods_reports_not_run_without_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> None:
        raise Missing("Real pods need runc: `apt-get install -y runc`")

    monkeypatch.setattr(node_probe, "ready_to_run", missing)
    folders = ["--workspace", str(tmp_path / "w"), "--results", str(tmp_path / "r")]
    assert main(["--stack", "gke", "--depth", "pods", *folders]) == NOT_RUN
    said = capsys.readouterr().out
    assert "Real pods need runc" in said
    assert "NOT RUN: rehearsal at depth pods" in said
    assert list(tmp_path.iterdir()) == []


def test_not_run_has_its_own_exit_status() -> None:
    assert node_probe.NOT_READY == NOT_RUN


def test_depths_have_separate_report_folders() -> None:
    assert folder_name("gke", "quick") == "gke"
    assert folder_name("gke", "cluster") == "gke-cluster"
    assert folder_name("gke", "pods") == "gke-pods"
