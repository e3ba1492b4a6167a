"""Plugin process of a simulated cloud: which engines it serves, and when it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import grpc
import psutil
import pytest
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from rehearsal.clouds import faults
from rehearsal.clouds.faults import Fault
from rehearsal.clouds.state import State
from rehearsal.clouds.values import to_wire
from rehearsal.workspace import FOLDER, ROOT, Workspace
from tests.clone import wait_until

PLUGIN = ROOT / "rehearsal" / "plugins" / "pulumi-resource-random"


def _started(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PLUGIN], env=environment, capture_output=True, text=True, timeout=60, check=False)


def _folder(tmp_path: Path) -> Workspace:
    stack = tmp_path / "Pulumi.test.yaml"
    stack.write_text("config: {}\n")
    workspace = Workspace(tmp_path / "rehearsal")
    workspace.begin("test", stack)
    State(workspace.cloud_state)
    return workspace


def test_plugin_refuses_to_run_outside_rehearsal(tmp_path: Path) -> None:
    plain = {key: value for key, value in os.environ.items() if key != FOLDER and not key.startswith("PULUMI_")}
    outside = _started(plain)
    assert outside.returncode == 1
    assert "it serves `make rehearse` only" in outside.stderr
    assert outside.stdout == ""
    elsewhere = _started({**plain, FOLDER: str(tmp_path)})
    assert elsewhere.returncode == 1
    assert "is not the folder of a rehearsal" in elsewhere.stderr


def test_plugin_refuses_engine_with_other_backend(tmp_path: Path) -> None:
    environment = {**_folder(tmp_path).environment(), "PULUMI_BACKEND_URL": f"file://{tmp_path}"}
    refused = _started(environment)
    assert refused.returncode == 1
    assert "the engine's backend is not that of the rehearsal" in refused.stderr


ENGINE = """
import subprocess, sys, time
plugin = subprocess.Popen([sys.argv[1]], stdout=subprocess.PIPE, text=True)
print(plugin.stdout.readline().strip(), plugin.pid, flush=True)
time.sleep(60)
"""
"""Plays the engine: a fault kills the parent of the plugin."""


@pytest.mark.parametrize("how", ["kill-before", "kill-after"])
def test_kill_ends_engine_and_plugin(tmp_path: Path, how: str) -> None:
    workspace = _folder(tmp_path)
    state = State(workspace.cloud_state)
    with state.transaction() as view:
        faults.schedule(view, [Fault.parse(f"step 1 {how}")])
    engine = subprocess.Popen(
        [sys.executable, "-c", ENGINE, str(PLUGIN)], env=workspace.environment(), stdout=subprocess.PIPE, text=True
    )
    assert engine.stdout is not None
    with engine, engine.stdout:
        port, plugin = engine.stdout.readline().split()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = provider_pb2_grpc.ResourceProviderStub(channel)
            request = provider_pb2.CreateRequest(
                urn="urn:a", type="random:index/randomPassword:RandomPassword", properties=to_wire({"length": 8})
            )
            with pytest.raises(grpc.RpcError):
                stub.Create(request)
        assert engine.wait(timeout=30) == -9
    _wait_until_gone(int(plugin))
    with state.transaction() as view:
        # No process is left to record the outcome of the step.
        assert [step.outcome for step in view.steps("")] == [""]
        assert faults.pending(view) == []


def test_plugin_ends_with_engine(tmp_path: Path) -> None:
    engine = subprocess.Popen(
        [sys.executable, "-c", ENGINE, str(PLUGIN)],
        env=_folder(tmp_path).environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert engine.stdout is not None
    with engine, engine.stdout:
        _, plugin = engine.stdout.readline().split()
        engine.kill()
    _wait_until_gone(int(plugin))


def test_plugin_drops_requests_of_ended_engine(tmp_path: Path) -> None:
    """As after Ctrl-C during a wait: the request would end in a minute, and the plugin with it."""
    workspace = _folder(tmp_path)
    engine = subprocess.Popen(
        [sys.executable, "-c", ENGINE, str(PLUGIN)], env=workspace.environment(), stdout=subprocess.PIPE, text=True
    )
    assert engine.stdout is not None
    with engine, engine.stdout:
        port, name = engine.stdout.readline().split()
        plugin = psutil.Process(int(name))
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = provider_pb2_grpc.ResourceProviderStub(channel)
            stub.GetPluginInfo(empty_pb2.Empty())
            threads = plugin.num_threads()
            request = provider_pb2.CreateRequest(
                urn="urn:a", type="random:index/randomPassword:RandomPassword", properties=to_wire({"length": 8})
            )
            # The open transaction blocks other writers, so both wait, one of them in a new thread.
            with State(workspace.cloud_state).transaction():
                waiting = [stub.Create.future(request) for _ in range(2)]
                wait_until(lambda: plugin.num_threads() > threads, "two requests wait")
                engine.kill()
                _wait_until_gone(plugin.pid)
                assert all(each.exception(timeout=30) for each in waiting)


def _wait_until_gone(process: int) -> None:
    deadline = time.monotonic() + 30
    while _alive(process):
        assert time.monotonic() < deadline, f"the plugin {process} is still there"
        time.sleep(0.05)


def _alive(process: int) -> bool:
    try:
        # No parent may be left to reap it.
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
