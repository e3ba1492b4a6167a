"""Two clones of the project, or two people: what one of them does to the state and the resources of the other."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rehearsal.engine import faults
from rehearsal.engine.commands import PULUMI, CommandResult, Engine, EngineError, recover
from rehearsal.engine.faults import Fault, How
from rehearsal.engine.workspace import ROOT, Workspace
from rehearsal.fork_server import ForkServer
from rehearsal.sweep import EngineState, Thing
from tools.recovery import UP, Place, UnclearError, mend_state_folder, settle
from tools.stack import explain_locks

NETWORK = "gcp:compute/network:Network"


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


def in_clouds(found: frozenset[Thing]) -> frozenset[Thing]:
    """Return the things outside the clusters and the engine."""
    return frozenset(thing for thing in found if thing[0].startswith(("gcp:", "aws:")))


def kill(engine: Engine, how: How, type_: str) -> None:
    """Run `up`, and kill the engine during the first create of a type."""
    with engine.cloud_state.transaction() as state:
        faults.schedule(state, [Fault(how, type=type_, verb="create")])
    # One create at a time, so that no other is pending; refusals of other names in use do not end the engine before.
    assert engine.run(*UP, "--continue-on-error", "--parallel", "1", stack=True).status == -9
    # The engine may have died while it wrote a file.
    mend_state_folder(engine.workspace.folder / "state")


def test_recovery_replaces_no_newer_state(
    fork_server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two people run `make up` after the same crash: while one recovers, the other recovers and brings the stack up."""
    engine = begun(fork_server, tmp_path / "a")
    engine.init()
    kill(engine, "kill-after", NETWORK)
    run, other = Engine.must, Engine(engine.workspace, "gke")

    def must(self: Engine, *arguments: str, stack: bool = False) -> CommandResult:
        said = run(self, *arguments, stack=stack)
        if self is engine and arguments == ("stack", "export"):
            monkeypatch.setattr(Engine, "must", run)
            assert recover(other) > 0
            assert other.up().ok
        return said

    monkeypatch.setattr(Engine, "must", must)
    with pytest.raises(UnclearError, match="Another run changed the state of stack gke"):
        recover(engine)
    assert in_clouds(engine.objects()) == in_clouds(EngineState.of(engine.workspace, "gke").things)
    assert engine.preview().ok


def test_lock_of_another_machine_ends_recovery_and_is_explained(fork_server: ForkServer, tmp_path: Path) -> None:
    engine = begun(fork_server, tmp_path / "a")
    engine.init()
    kill(engine, "kill-after", NETWORK)
    state = engine.workspace.folder / "state"
    (lock,) = (state / ".pulumi" / "locks").rglob("*.json")
    lock.write_text(json.dumps({**json.loads(lock.read_text()), "hostname": "elsewhere", "pid": 1, "username": "ann"}))
    before = engine.deployment()
    with pytest.raises(EngineError) as refused:
        settle(
            Place("gke", project="my-project"),
            lambda *arguments: engine.must(*arguments, stack=True),
            lambda *arguments: engine.must(*arguments, stack=True).text,
        )
    assert engine.deployment() == before
    said = explain_locks("gke", refused.value.said.text)
    assert "locked by ann on elsewhere, process 1, since 20" in said
    assert "bin/pulumi cancel --stack gke" in said


@pytest.fixture(scope="module")
def clones(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Engine, Engine]]:
    """A stack that clone A has brought up, and clone B's stack of the same name, with the same clouds and no state."""
    made: dict[str, tuple[Engine, Engine]] = {}

    def of(stack: str) -> tuple[Engine, Engine]:
        if stack not in made:
            folder = tmp_path_factory.mktemp("clones")
            a, b = begun(fork_server, folder / "a", stack), begun(fork_server, folder / "b", stack)
            a.init()
            assert a.up().ok
            (folder / "b" / "clouds.sqlite").unlink()
            (folder / "b" / "clouds.sqlite").symlink_to(folder / "a" / "clouds.sqlite")
            with b.cloud_state.transaction() as state:
                state.set("clone", 2)
            shutil.copy(folder / "a" / "clouds.sqlite", folder / "clouds.sqlite")
            made[stack] = a, b
        a, b = made[stack]
        shutil.copy(a.workspace.folder.parent / "clouds.sqlite", a.workspace.cloud_state)
        shutil.rmtree(b.workspace.folder / "state")
        (b.workspace.folder / "state").mkdir()
        b.init()
        return a, b

    return of


@pytest.mark.parametrize(
    ("stack", "type_", "adopted"),
    [
        ("gke", NETWORK, "projects/my-project/global/networks/gke"),
        ("eks", "aws:iam/role:Role", "eks-us-east-2-"),
    ],
)
def test_recovery_adopts_nothing_of_another_clone(
    clones: Callable[[str], tuple[Engine, Engine]], stack: str, type_: str, adopted: str
) -> None:
    """Its engine was killed during the create of something that clone A has, before the cloud could refuse it."""
    a, b = clones(stack)
    as_theirs = in_clouds(a.objects())
    kill(b, "kill-before", type_)
    before = b.deployment()
    with pytest.raises(UnclearError, match=f"(?s)another owner.*{adopted}.* of "):
        recover(b)
    assert b.deployment()["resources"] == before["resources"]
    assert not EngineState.of(b.workspace, stack).things & as_theirs
    # As the message says: remove it from the pending operations, and take the stack down.
    b.must("config", "set", "rdma-ray:protect", "false", stack=True)
    state = b.exported()
    state["deployment"] = {**state["deployment"], "pending_operations": []}
    (b.workspace.folder / "edited.json").write_text(json.dumps(state))
    b.must("stack", "import", "--file", str(b.workspace.folder / "edited.json"), stack=True)
    b.must("state", "unprotect", "--all", "--yes", stack=True)
    assert b.destroy().ok
    assert as_theirs <= b.objects()
    assert a.preview().ok


def test_resources_with_generated_ids_of_another_clone_are_not_adopted(
    clones: Callable[[str], tuple[Engine, Engine]],
) -> None:
    """AWS allows a second VPC with the same name: recovery creates clone B's own, and `destroy` ends no other."""
    a, b = clones("eks")
    as_theirs = in_clouds(a.objects())
    kill(b, "kill-before", "aws:ec2/vpc:Vpc")
    recover(b)
    assert not EngineState.of(b.workspace, "eks").things & as_theirs
    said = b.up()
    assert not said.ok
    assert "already exists" in said.text
    assert not EngineState.of(b.workspace, "eks").things & as_theirs
    b.must("state", "unprotect", "--all", "--yes", stack=True)
    assert b.destroy().ok
    assert as_theirs <= b.objects()
    assert a.preview().ok


def test_second_clone_fails_with_names_in_use(clones: Callable[[str], tuple[Engine, Engine]]) -> None:
    a, b = clones("gke")
    as_theirs = in_clouds(a.objects())
    said = b.up()
    assert not said.ok
    assert "already exists" in said.text
    assert in_clouds(a.objects()) == as_theirs
