"""Ctrl-C during a rehearsal of depth `cluster`: every process ends, and the cloud state keeps no cluster."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

from rehearsal.engine.workspace import ROOT
from tests.clone import wait_until
from tests.kubernetes.conftest import at_work_in

GONE_S = 60.0


def test_ctrl_c_ends_every_process(tmp_path: Path) -> None:
    """Neither the control plane and its controllers, nor the engine and its plugins."""
    command = [sys.executable, "-m", "rehearsal", "--stack", "gke", "--depth", "cluster"]
    folders = ["--workspace", str(tmp_path / "workspace"), "--results", str(tmp_path / "results")]
    run = subprocess.Popen(
        [*command, *folders], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0
    )
    assert run.stdout is not None
    try:
        said = []
        for line in run.stdout:
            said.append(line)
            if "granted to pool system" in line:
                break
        assert any("apiserver" in line for line in at_work_in(tmp_path)), "".join(said)
        # As a terminal does: to the rehearsal, the engine and the plugins at once.
        os.killpg(run.pid, signal.SIGINT)
        rest, _ = run.communicate(timeout=GONE_S)
    finally:
        run.kill()
        run.wait()
    assert run.returncode == 130, rest
    assert "interrupted; all processes have ended" in rest
    wait_until(lambda: not at_work_in(tmp_path), lambda: at_work_in(tmp_path), GONE_S)
    with sqlite3.connect(tmp_path / "workspace" / "clouds.sqlite") as state:
        assert state.execute("SELECT value FROM settings WHERE name = 'cluster'").fetchall() == [("null",)]
