"""Full rehearsals of every cloud stack file: the real engine and program against simulated clouds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.naming import STACK
from infra.outputs import Outputs
from rehearsal.__main__ import cloud_stacks
from rehearsal.changes import copy_program
from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.command_line import resources
from rehearsal.clouds.kubernetes import identity
from rehearsal.clouds.registry import kind_of
from rehearsal.engine.commands import Engine
from rehearsal.engine.faults import FaultError
from rehearsal.engine.state import State
from rehearsal.engine.workspace import ROOT, NotOursError, Workspace
from rehearsal.fork_server import ForkServer
from rehearsal.report.golden import golden
from rehearsal.report.markdown import markdown
from rehearsal.report.outcome import Outcome
from rehearsal.scenario import RehearsalRequest, Scenario
from tests.rehearsal.differences import differences
from tools.recovery import FOUND_BY_TAGS, PendingCreate, Place, Tagged, found, import_id

STACKS = cloud_stacks()
GOLDEN = Path(__file__).parent / "golden"
Rehearse = Callable[..., Outcome]


@pytest.mark.parametrize("stack", STACKS)
def test_stack_goes_up_and_down_without_leftovers(rehearse: Rehearse, stack: str) -> None:
    outcome = rehearse(stack)
    assert [phase.said for phase in outcome.phases if not phase.ok] == []
    assert [phase.name for phase in outcome.phases] == [
        "preview of the empty stack",
        "up",
        "invariants hold",
        "preview is empty",
        "preview is empty after drift",
        "destroy is refused while protected",
        "protection off",
        "destroy",
    ]
    assert outcome.leftovers == ()
    assert outcome.ok


@pytest.mark.parametrize("stack", STACKS)
def test_resources_match_golden_list(rehearse: Rehearse, stack: str) -> None:
    """`make golden` rewrites the files; a reviewer reads the difference. The list of `gke-dws` is one from `gke`'s."""
    text, file, like = golden(rehearse(stack).graph), GOLDEN / f"{stack}.txt", stack.partition("-")[0]
    if like != stack:
        lines = differences(golden(rehearse(like).graph), text)
        text = "\n".join((f"Differences from {like}:", *lines)) + "\n"
    if os.environ.get("UPDATE_GOLDENS"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"{file.name} differs; if that is meant: make golden"


@pytest.mark.parametrize("stack", STACKS)
def test_recovery_finds_every_resource(rehearse: Rehearse, stack: str, tmp_path: Path) -> None:
    """By its inputs, or by its tags among those of all others: the import id leads to the resource's id."""
    place, nodes = Place.of(stack, ROOT / f"Pulumi.{stack}.yaml"), rehearse(stack).graph.managed
    with State(tmp_path / "clouds.sqlite").transaction() as view:
        for node in nodes:
            view.put(node.type, node.id, dict(node.outputs))
        tags = resources(view, place.region or "", STACK, stack)
    listed = [Tagged.of(each) for each in tags]
    for node in nodes:
        create = PendingCreate(node.urn, node.type, node.inputs)
        written = found(create, listed, ()) if node.type in FOUND_BY_TAGS else import_id(create, place.project)
        kind = kind_of(node.type)
        assert kind is not None
        if not node.type.startswith("random:"):
            assert kind.from_import(str(written), {"project": place.project}) == node.id, node.urn


def test_golden_files_match_stack_files() -> None:
    assert sorted(file.stem for file in GOLDEN.glob("*.txt")) == sorted(STACKS)


def test_replacement_of_gpu_nodes_is_red(rehearse: Rehearse) -> None:
    outcome = rehearse("gke-dranet", changes=("nodes.capacity=flex-start",))
    assert outcome.ok, [phase.said for phase in outcome.phases if not phase.ok]
    (change,) = (phase for phase in outcome.phases if phase.name == "change")
    assert change.said.endswith("1 to replace; refused while rdma-ray:protect is true")
    (replaced,) = (change for change in outcome.changes if change.op == "replace")
    assert (replaced.name, replaced.reasons) == (
        "pool-gpu",
        ("nodeConfig.flexStart", "nodeConfig.maxRunDuration", "nodeConfig.spot", "placementPolicy.policyName"),
    )
    text = markdown(outcome)
    assert "🔴 **REPLACE** | `GPU NodePool pool-gpu`" in text
    assert "takes down its nodes (at most 2) and every pod on them" in text


def test_larger_maximum_drains_no_node_that_the_autoscaler_added(rehearse: Rehearse) -> None:
    """The phase after the drift, which has added a node, fails if a node group gets smaller."""
    outcome = rehearse("eks", changes=("nodes.max=6", "ray.maxWorkers=6"))
    assert outcome.ok, [phase.said for phase in outcome.phases if not phase.ok]
    assert ("update", "gpu") in {(change.op, change.name) for change in outcome.changes}


def test_another_launch_template_keeps_the_node_image(rehearse: Rehearse) -> None:
    """The last preview refreshes: it shows the image that EKS chooses if an update of the group names none."""
    outcome = rehearse("eks-capacity-block", changes=("nodes.reservation=cr-0fedcba9876543210",))
    assert outcome.ok, [phase.said for phase in outcome.phases if not phase.ok]
    replaced = {change.name: change.reasons for change in outcome.changes if change.op == "replace"}
    assert replaced["gpu"] == ("launchTemplate.version",)


def test_shared_folder_grows_and_no_smaller_one_replaces_it(fork_server: ForkServer, tmp_path: Path) -> None:
    """The claim keeps its request, since the API server resizes no claim on an existing volume."""
    workspace = Workspace(tmp_path / "rehearsal", fork_server.bin)
    engine = Engine.deployed(workspace, "eks-capacity-block", ROOT / "Pulumi.eks-capacity-block.yaml")
    engine.must("config", "set", "--path", "rdma-ray:storage.capacityGib", "4800", stack=True)
    grown = engine.up()
    assert grown.ok, grown.text
    assert {(step.verb, step.type) for step in engine.steps()} == {
        ("update", tokens.SECURITY_GROUP),
        ("update", tokens.FILE_SYSTEM),
        ("update", identity.VOLUME),
    }
    engine.must("config", "set", "rdma-ray:protect", "false", stack=True)
    engine.must("up", "--yes", "--skip-preview", stack=True)
    engine.must("config", "set", "--path", "rdma-ray:storage.capacityGib", "2400", stack=True)
    for said in (engine.run("preview", stack=True), engine.up()):
        assert not said.ok
        assert "storage.capacityGib is 2400, and the file system has 4800 GiB" in " ".join(said.text.split())
        assert not engine.steps()


def test_upgrade_from_other_version_is_rehearsed(fork_server: ForkServer, tmp_path: Path) -> None:
    """As for a pull request: the stack is created by the other version's program and stack file, then updated by this
    one's.

    This version has no queue: Kueue protects its objects by finalizers, so they are deleted in order.
    """
    name, other = "Pulumi.gke-dranet.yaml", tmp_path / "other version"
    copy_program(other)
    (other / name).write_text((ROOT / name).read_text().replace("max: 2", "max: 3") + "  rdma-ray:queue: kueue\n")
    component = other / "infra" / "gke" / "network.py"
    text = component.read_text().replace('"filter": "ERRORS_ONLY"', '"filter": "ALL"')
    # Its stacks have no owner, which an immutable input names: no network is replaced.
    assert "description=text, " in text
    component.write_text(text.replace("description=text, ", ""))
    request = RehearsalRequest(stack="gke-dranet", file=ROOT / name, before=other)
    outcome = Scenario(request, Workspace(tmp_path / "rehearsal", fork_server.bin), lambda _name, _phase: None).run()
    assert outcome.ok, [phase.said for phase in outcome.phases if not phase.ok]
    changed = {op: {change.name for change in outcome.changes if change.op == op} for op in ("update", "delete")}
    # The program changes the log of the NAT; the stack file, the limit of the pool.
    assert changed["update"] == {"cluster", "pool-gpu"}
    # The label of the queue is immutable in effect.
    assert [change.name for change in outcome.changes if change.op == "replace"] == ["ray"]
    assert {"kueue", "queue-cluster-queue", "queue-flavor-gpu", "ray-queue"} <= changed["delete"]


def test_faults_hit_the_commands_of_their_verbs_and_are_recovered(rehearse: Rehearse) -> None:
    faults = ("*NodePool delete 500", "*Cluster update 500", "*Cluster create timeout")
    outcome = rehearse("gke-dranet", changes=("hardening=true",), faults=faults)
    assert outcome.ok, [phase.said for phase in outcome.phases if not phase.ok]
    assert outcome.leftovers == ()
    phases = {phase.name: phase.said for phase in outcome.phases}
    names = list(phases)
    for command in ("up", "up, changed", "destroy"):
        assert phases[f"{command}, with faults"].startswith("failed as injected")
        assert names.index(f"{command} again") == names.index(f"{command}, with faults") + 1


def test_fault_of_an_update_needs_a_change(rehearse: Rehearse) -> None:
    with pytest.raises(FaultError, match="--change"):
        rehearse("gke-dranet", faults=("*Cluster update 500",))


def test_fault_of_a_delete_without_matching_request_fails(rehearse: Rehearse) -> None:
    outcome = rehearse("gke-dranet", faults=("*Vpc delete 500",))
    assert not outcome.ok
    assert "not injected" in outcome.phases[-1].said


def test_fault_without_matching_request_fails(rehearse: Rehearse) -> None:
    outcome = rehearse("gke-dranet", faults=("gcp:compute/firewall:Firewall create 500",))
    assert not outcome.ok
    assert "not injected" in outcome.phases[1].said


@pytest.mark.parametrize("stack", STACKS)
def test_rehearsal_reports_contain_no_secrets(rehearse: Rehearse, stack: str) -> None:
    outcome = rehearse(stack)
    passwords = [node for node in outcome.graph.nodes.values() if node.type.endswith(":RandomPassword")]
    assert passwords
    for text in (markdown(outcome), golden(outcome.graph)):
        assert "gke-gcloud-auth-plugin" not in text
        assert "BEGIN CERTIFICATE" not in text
        for node in passwords:
            assert str(node.outputs.get("result")) not in text


def test_new_token_replaces_itself_and_its_secret_alone(fork_server: ForkServer, tmp_path: Path) -> None:
    """By the commands of docs/serving.md. The RayService stays as it is, and with it every pod."""
    workspace = Workspace(tmp_path / "rehearsal", fork_server.bin)
    engine = Engine.deployed(workspace, "gke-service", ROOT / "Pulumi.gke-service.yaml")
    before = _outputs(engine).ray
    assert before.serve_token not in (None, before.token)
    refused = engine.up("--replace", "**RandomPassword::ray-serve-token")
    assert not refused.ok
    assert "protect" in refused.text
    assert _outputs(engine).ray == before
    engine.must("config", "set", "rdma-ray:protect", "false", stack=True)
    engine.must("up", "--yes", "--skip-preview", stack=True)
    done = engine.up("--replace", "**RandomPassword::ray-serve-token")
    assert done.ok, done.text
    changed = {step.urn.rpartition("::")[2] for step in engine.steps()}
    assert changed == {"ray-serve-token"}
    after = _outputs(engine).ray
    assert after.serve_token not in (None, before.serve_token)
    assert after.model_copy(update={"serve_token": before.serve_token}) == before


def _outputs(engine: Engine) -> Outputs:
    return Outputs.model_validate_json(engine.must("stack", "output", "--json", "--show-secrets", stack=True).text)


def test_foreign_folder_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(NotOursError, match="nothing was changed"):
        Workspace(tmp_path).begin("gke", ROOT / "Pulumi.gke.yaml")
    assert (tmp_path / "precious").read_text() == "mine"


def test_user_backend_is_never_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", "s3://production")
    monkeypatch.setenv("PULUMI_ACCESS_TOKEN", "mine")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "mine")
    workspace = Workspace(tmp_path / "rehearsal")
    workspace.begin("gke", ROOT / "Pulumi.gke.yaml")
    Engine(workspace, "gke").init()
    assert list((tmp_path / "rehearsal" / "state").rglob("gke.json"))
    assert "mine" not in workspace.environment().values()
