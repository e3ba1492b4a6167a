"""State of a stack: who may read its secrets, and what a lock of another engine means. No engine runs here."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest

from rehearsal.engine.workspace import ROOT
from tests.clone import executable
from tools import stack as make
from tools.recovery import DESTROY, UP
from workloads.feedback.engine_runs import recorded

PASSPHRASE, FILE = "PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"
ENGINE = f'#!/bin/sh\necho "${{{PASSPHRASE}-unset}} ${{{FILE}-unset}}"\n'
"""An engine that prints what it would encrypt secrets with."""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with `bin/pulumi`, the stack files and that engine."""
    for file in ("bin/pulumi", "Pulumi.local.yaml", "Pulumi.gke.yaml"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    executable(tmp_path / ".tools" / "bin" / "pulumi", ENGINE)
    return tmp_path


def select(clone: Path, stack: str) -> None:
    """Select a stack as the engine does."""
    folder = clone / ".pulumi" / "home" / "workspaces"
    folder.mkdir(parents=True)
    selected = f'"file://{clone}/.pulumi/state": "organization/rdma-ray/{stack}"'
    (folder / "rdma-ray-1-workspace.json").write_text(f'{{\n    "stacks": {{\n        {selected}\n    }}\n}}')


@pytest.mark.parametrize("own", [{}, {PASSPHRASE: "mine"}, {FILE: "/mine"}, {PASSPHRASE: ""}], ids=str)
@pytest.mark.parametrize(
    ("selected", "command"),
    [
        ("", "up --stack gke"),
        ("local", "stack select --create --stack=gke"),
        ("", "stack init gke"),
        ("local", "-s organization/rdma-ray/gke up"),
        ("gke", "up --yes"),
        ("", "up --stack local"),
        ("gke", "stack output ray --show-secrets --stack local"),
        ("local", "up"),
        ("gke", "stack select local"),
    ],
)
def test_only_local_stacks_get_an_empty_passphrase(
    clone: Path, own: dict[str, str], selected: str, command: str
) -> None:
    if selected:
        select(clone, selected)
    environment = {"PATH": os.environ["PATH"], **own}
    said = subprocess.run([clone / "bin" / "pulumi", *command.split()], env=environment, capture_output=True, text=True)
    local = "local" in (command if "local" in command or "gke" in command else selected)
    users = f"{own.get(PASSPHRASE, 'unset')} {own.get(FILE, 'unset')}\n"
    assert said.stdout == (" unset\n" if local else users), said.stderr


def test_cloud_stack_requires_a_passphrase_of_the_user(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the engine runs, since the first use of a stack writes the salt of its passphrase into the stack file."""
    for name in (PASSPHRASE, FILE, "PULUMI_BACKEND_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(make, "ROOT", clone)
    monkeypatch.setattr(make, "PULUMI", str(clone / "no engine"))
    refused = r"(?s)token.*set PULUMI_CONFIG_PASSPHRASE.*--stack\s+gke"
    with pytest.raises(SystemExit, match=refused):
        make.Stack("gke").up([])
    with pytest.raises(SystemExit, match=refused):
        make.Stack("gke").preview()
    for stack, own in (("gke", PASSPHRASE), ("gke", FILE), ("gke", "PULUMI_BACKEND_URL"), ("local", "OTHER")):
        with monkeypatch.context() as context:
            context.setenv(own, "mine")
            with pytest.raises(FileNotFoundError, match="no engine"):
                make.Stack(stack).preview()
    file = clone / "Pulumi.gke.yaml"
    file.write_text(f"secretsprovider: gcpkms://x\n{file.read_text()}")
    with pytest.raises(FileNotFoundError, match="no engine"):
        make.Stack("gke").preview()


def locked(by: str) -> str:
    """The engine's error about a lock."""
    return (
        "error: the stack is currently locked by 1 lock(s). Either wait for the other process(es) to end or delete the"
        f" lock file with `pulumi cancel`.\n  gs://b/.pulumi/locks/1.json: created by {by} at 2026-11-23T04:12:42Z"
    )


@pytest.mark.parametrize(
    ("host", "pid", "says"),
    [
        ("elsewhere", os.getpid(), "ask there whether"),
        (socket.gethostname(), os.getpid(), "that process runs; wait"),
        (socket.gethostname(), 2**22 + 1, "no such process runs on this machine"),
    ],
)
def test_lock_is_explained_and_kept(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], host: str, pid: int, says: str
) -> None:
    """A lock of a backend that is no folder, as the engine reports it: only its owner can say that it is stale."""
    calls = clone / "calls"
    text = f"#!/bin/sh\necho $1 >> {calls}\ncat >&2 <<'END'\n{locked(f'ann@{host} (pid {pid})')}\nEND\nexit 255"
    engine = executable(clone / "engine", text)
    monkeypatch.setenv("PULUMI_BACKEND_URL", "gs://b")
    monkeypatch.setattr(make, "ROOT", clone)
    monkeypatch.setattr(make, "PULUMI", str(engine))
    with pytest.raises(make.CommandFailedError):
        make.Stack("gke").pulumi("up")
    said = capfd.readouterr().err
    assert (f"Stack gke is locked by ann on {host}, process {pid}, since 2026-11-23T04:12:42Z: {says}") in said
    assert "Only if it was killed: bin/pulumi cancel --stack gke" in said
    assert calls.read_text() == "up\n"


def test_lock_of_a_dead_engine_in_a_shared_folder_is_removed(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only if the engine was on this machine."""
    state = clone / "shared"
    locks = state / ".pulumi" / "locks" / "organization" / "rdma-ray" / "gke"
    locks.mkdir(parents=True)
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{state}")
    monkeypatch.setattr(make, "ROOT", clone)
    monkeypatch.setattr(make, "PULUMI", str(clone / "no engine"))
    for host, removed in ((socket.gethostname(), True), ("elsewhere", False)):
        (locks / "1.json").write_text(json.dumps({"pid": 2**22 + 1, "hostname": host}))
        with pytest.raises(FileNotFoundError, match="no engine") if removed else nullcontext():
            make.Stack("gke")._release_lock_of_dead_engine()


@pytest.mark.parametrize("status", [0, 255])
def test_run_of_the_engine_is_recorded_for_evidence(clone: Path, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """Also of one that fails. Other commands are not recorded, and an engine without events is no error."""
    what = {"op": "create", "urn": "urn", "type": "gcp:compute/network:Network", "new": {"custom": True}}
    events = [{"timestamp": 1, "resourcePreEvent": {"metadata": what}}]
    events += [{"timestamp": 8, "resOutputsEvent": {"metadata": what}}]
    (clone / "events").write_text("\n".join(map(json.dumps, events)))
    text = f"""#!/bin/sh
while [ $# -gt 0 ]; do [ "$1" = --event-log ] && cp {clone}/events "$2"; shift; done
exit {status}"""
    engine = executable(clone / "engine", text)
    monkeypatch.setattr(make, "ROOT", clone)
    monkeypatch.setattr(make, "PULUMI", str(engine))
    for arguments in (UP, ("preview", "--diff"), DESTROY):
        with pytest.raises(make.CommandFailedError) if status else nullcontext():
            make.Stack("gke").pulumi(*arguments, quiet=True)
    (clone / "events").write_text("")
    with pytest.raises(make.CommandFailedError) if status else nullcontext():
        make.Stack("gke").pulumi(*UP, quiet=True)
    runs = recorded(clone, "gke")
    assert [(run.command, [each.seconds for each in run.operations]) for run in runs] == [("up", [7]), ("destroy", [7])]
