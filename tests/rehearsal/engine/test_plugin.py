"""Plugin process of a simulated cloud: which engines it serves, and when it ends; and the end of a language host."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from rehearsal.engine import faults
from rehearsal.engine.faults import Fault
from rehearsal.engine.state import State
from rehearsal.engine.values import to_wire
from rehearsal.engine.workspace import FOLDER, ROOT, Workspace
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
plugin = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True)
print(plugin.stdout.readline().strip(), plugin.pid, flush=True)
time.sleep(60)
"""
"""Plays the engine: a fault kills the parent of the plugin."""


PASSWORD = provider_pb2.CreateRequest(
    urn="urn:a", type="random:index/randomPassword:RandomPassword", properties=to_wire({"length": 8})
)


@contextmanager
def engine(workspace: Workspace) -> Iterator[tuple[subprocess.Popen[str], psutil.Process, Any]]:
    """Start an engine and a plugin; yield both, and a client of the plugin."""
    process = subprocess.Popen(
        [sys.executable, "-c", ENGINE, str(PLUGIN)], env=workspace.environment(), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process, process.stdout:
        port, plugin = process.stdout.readline().split()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield process, psutil.Process(int(plugin)), provider_pb2_grpc.ResourceProviderStub(channel)


@pytest.mark.parametrize("how", ["kill-before", "kill-after"])
def test_kill_ends_engine_and_plugin(tmp_path: Path, how: str) -> None:
    workspace = _folder(tmp_path)
    state = State(workspace.cloud_state)
    with state.transaction() as view:
        faults.schedule(view, [Fault.parse(f"step 1 {how}")])
    with engine(workspace) as (process, plugin, stub):
        with pytest.raises(grpc.RpcError):
            stub.Create(PASSWORD)
        assert process.wait(timeout=30) == -9
    _wait_until_gone(plugin)
    with state.transaction() as view:
        # No process is left to record the outcome of the step.
        assert [step.outcome for step in view.steps("")] == [""]
        assert faults.pending(view) == []


def test_plugin_ends_with_engine_and_drops_its_requests(tmp_path: Path) -> None:
    """As after Ctrl-C during a wait: the request would end in a minute, and the plugin with it."""
    workspace = _folder(tmp_path)
    with engine(workspace) as (process, plugin, stub):
        stub.GetPluginInfo(empty_pb2.Empty())
        threads = plugin.num_threads()
        # The open transaction blocks other writers, so both wait, one of them in a new thread.
        with State(workspace.cloud_state).transaction():
            waiting = [stub.Create.future(PASSWORD) for _ in range(2)]
            wait_until(lambda: plugin.num_threads() > threads, "two requests wait")
            process.kill()
            _wait_until_gone(plugin)
            assert all(each.exception(timeout=30) for each in waiting)


def test_language_host_ends_with_engine() -> None:
    """The host for machines without the real one."""
    host = ROOT / "tools" / "host" / "pulumi-language-python"
    command = [sys.executable, "-c", ENGINE, str(host), "127.0.0.1:1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline().split()[1]))
        process.kill()
        process.wait()
        _wait_until_gone(child)


def _wait_until_gone(process: psutil.Process) -> None:
    wait_until(lambda: _ended(process), "the plugin has ended", 30)


def _ended(process: psutil.Process) -> bool:
    try:
        # No parent may be left to reap it.
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
