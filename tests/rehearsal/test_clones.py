"""Two clones of the project, or two people: what one of them does to the state and the resources of the other."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rehearsal.engine.commands import PULUMI, Engine
from rehearsal.engine.workspace import ROOT, Workspace
from rehearsal.fork_server import ForkServer


def begun(fork_server: ForkServer, folder: Path, stack: str = "gke") -> Engine:
    """An engine with the new state of a stack."""
    workspace = Workspace(folder, fork_server.bin)
    workspace.begin(stack, ROOT / f"Pulumi.{stack}.yaml")
    return Engine(workspace, stack)


def test_empty_passphrase_is_refused_and_can_be_changed(
    fork_server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a bare `pulumi up`, and also in a stack that exists; its state is not lost."""
    engine = begun(fork_server, tmp_path / "a")
    environment = engine.workspace.environment()
    with monkeypatch.context() as context:
        context.setattr(engine.workspace, "environment", lambda: {**environment, "PULUMI_CONFIG_PASSPHRASE": ""})
        engine.init()
        engine.must("preview", stack=True)
        refused = engine.up()
        assert not refused.ok
        assert engine.steps() == []
        assert "change-secrets-provider passphrase --stack gke" in " ".join(refused.text.split())
        change = [str(PULUMI), "stack", "change-secrets-provider", "passphrase", "--stack", "gke"]
        subprocess.run(
            change, cwd=engine.workspace.folder, env=engine.workspace.environment(), input="rehearsal\n", text=True
        ).check_returncode()
    said = engine.up()
    assert said.ok, said.text
