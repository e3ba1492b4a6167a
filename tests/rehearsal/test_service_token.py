"""A new token for the requests of a service, with the real engine: docs/serving.md has the commands."""

from __future__ import annotations

import json
from pathlib import Path

from infra.outputs import Outputs
from rehearsal.engine.commands import Engine
from rehearsal.engine.workspace import ROOT, Workspace
from rehearsal.fork_server import ForkServer


def outputs(engine: Engine) -> Outputs:
    text = engine.must("stack", "output", "--json", "--show-secrets", stack=True).text
    return Outputs.model_validate(json.loads(text))


def test_new_token_replaces_itself_and_its_secret_alone(fork_server: ForkServer, tmp_path: Path) -> None:
    """The RayService stays as it is, and with it every pod; protection must be off."""
    workspace = Workspace(tmp_path / "rehearsal", fork_server.bin)
    engine = Engine.deployed(workspace, "gke-service", ROOT / "Pulumi.gke-service.yaml")
    before = outputs(engine).ray
    assert before.serve_token not in (None, before.token)
    refused = engine.up("--replace", "**RandomPassword::ray-serve-token")
    assert not refused.ok
    assert "protect" in refused.text
    assert outputs(engine).ray == before
    engine.must("config", "set", "rdma-ray:protect", "false", stack=True)
    engine.must("up", "--yes", "--skip-preview", stack=True)
    done = engine.up("--replace", "**RandomPassword::ray-serve-token")
    assert done.ok, done.text
    changed = {step.urn.rpartition("::")[2] for step in engine.steps()}
    assert changed == {"ray-serve-token"}
    after = outputs(engine).ray
    assert after.serve_token not in (None, before.serve_token)
    assert after.model_copy(update={"serve_token": before.serve_token}) == before
