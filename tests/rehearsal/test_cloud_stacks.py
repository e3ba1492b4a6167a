"""Full rehearsals of every cloud stack file: the real engine and program against simulated clouds."""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from rehearsal.all_stacks import cloud_stacks
from rehearsal.clouds.faults import Fault
from rehearsal.engine import Engine
from rehearsal.fork_server import ForkServer
from rehearsal.mutations import deploy, mutate
from rehearsal.report.golden import golden
from rehearsal.report.markdown import markdown
from rehearsal.report.outcome import Outcome
from rehearsal.report.terminal import show
from rehearsal.scenario import RehearsalRequest, Scenario
from rehearsal.workspace import ROOT, NotOursError, Workspace

STACKS = list(cloud_stacks())
GOLDEN = Path(__file__).parent / "golden"
Rehearse = Callable[..., Outcome]


@pytest.fixture(scope="module")
def rehearse(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Rehearse:
    """Rehearse a stack, with changes or faults; all tests share one plain rehearsal per stack."""
    plain: dict[str, Outcome] = {}

    def run(stack: str, changes: tuple[str, ...] = (), faults: tuple[str, ...] = ()) -> Outcome:
        if not changes and not faults and stack in plain:
            return plain[stack]
        request = RehearsalRequest(
            stack=stack,
            file=ROOT / f"Pulumi.{stack}.yaml",
            changes=changes,
            faults=tuple(map(Fault.parse, faults)),
        )
        folder = tmp_path_factory.mktemp("rehearsals") / stack
        outcome = Scenario(request, Workspace(folder, fork_server.bin), lambda _name, _phase: None).run()
        if not changes and not faults:
            plain[stack] = outcome
        return outcome

    return run


def terminal_output(outcome: Outcome) -> str:
    """Return the terminal output."""
    console = Console(width=120, file=io.StringIO(), force_terminal=True, color_system="standard", highlight=False)
    with console.capture() as shown:
        show(outcome, console)
    return shown.get()


def test_there_are_stacks_to_rehearse() -> None:
    assert {"gke", "gke-ccc", "gke-dranet", "gke-dws"} <= set(STACKS)


@pytest.mark.parametrize("stack", STACKS)
def test_stack_goes_up_and_down_without_leftovers(rehearse: Rehearse, stack: str) -> None:
    outcome = rehearse(stack)
    assert [phase.said for phase in outcome.phases if not phase.ok] == []
    assert [phase.name for phase in outcome.phases] == [
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
def test_stack_has_no_unexplained_waits(rehearse: Rehearse, stack: str) -> None:
    prediction = rehearse(stack).prediction
    assert [f"{edge.waits.name} waits for {edge.until.name}" for edge in prediction.unexplained] == []
    assert prediction.ratio <= 1.05


@pytest.mark.parametrize("stack", STACKS)
def test_resources_match_golden_list(rehearse: Rehearse, stack: str) -> None:
    """`make golden` rewrites the files; a reviewer reads the difference."""
    text = golden(rehearse(stack).graph)
    file = GOLDEN / f"{stack}.txt"
    if os.environ.get("UPDATE_GOLDENS"):
        file.write_text(text)
    assert text == file.read_text(), f"{file.name} differs; if that is meant: make golden"


def test_golden_files_match_stack_files() -> None:
    assert sorted(file.stem for file in GOLDEN.glob("*.txt")) == sorted(STACKS)


# Of AWS' two stacks the larger one: with the file system and the end of its block.
@pytest.mark.parametrize("stack", ["gke", "eks-capacity-block"])
def test_removal_of_any_input_is_noticed(fork_server: ForkServer, tmp_path: Path, stack: str) -> None:
    found = deploy(stack, Workspace(tmp_path / stack, fork_server.bin))
    mutations = list(mutate(found.graph, found, found.settings.target))
    assert [mutation.where for mutation in mutations if mutation.by == "unnoticed"] == []
    assert len(mutations) > 500
    assert sum(mutation.by == "refusal" for mutation in mutations) > 50


def test_removal_of_any_queue_input_is_noticed(fork_server: ForkServer, tmp_path: Path) -> None:
    """Inputs that only a stack with queued machines and a RayJob has."""
    found = deploy("gke-dws", Workspace(tmp_path / "gke-dws", fork_server.bin))
    types = {node.type for node in found.graph.managed if re.search(r"kueue|RayJob|Release|NodePool", node.type)}
    mutations = list(mutate(found.graph, found, "gke", types))
    assert [mutation.where for mutation in mutations if mutation.by == "unnoticed"] == []
    assert len(types) == 8
    assert len(mutations) > 400


def test_replacement_of_gpu_nodes_is_red(rehearse: Rehearse) -> None:
    outcome = rehearse("gke", changes=("nodes.maxRunHours=24",))
    assert outcome.ok, [phase.said for phase in outcome.phases if not phase.ok]
    (change,) = (phase for phase in outcome.phases if phase.name == "change")
    assert change.said == "1 to replace; refused while rdma-ray:protect is true"
    (replaced,) = outcome.changes
    assert (replaced.op, replaced.name, replaced.reasons) == ("replace", "pool-gpu", ("nodeConfig.maxRunDuration",))
    text = terminal_output(outcome)
    assert "REHEARSAL" in text
    assert any("pool-gpu" in line and "\x1b[1;31m" in line for line in text.splitlines())
    assert "takes down its nodes (at most 4) and every pod on them" in markdown(outcome)
    assert "takes down its nodes (at most 4) and every pod on them" in text


def test_upgrade_from_other_version_is_rehearsed(fork_server: ForkServer, tmp_path: Path) -> None:
    """As for a pull request: the stack is created by the other version's program and stack file, then updated by this
    one's."""
    name, other = "Pulumi.gke-dranet.yaml", tmp_path / "other version"
    shutil.copytree(ROOT, other, ignore=shutil.ignore_patterns(".*", "tests", "results", "docs", "__pycache__"))
    (other / name).write_text((ROOT / name).read_text().replace("max: 2", "max: 1"))
    request = RehearsalRequest(stack="gke-dranet", file=ROOT / name, before=other)
    outcome = Scenario(request, Workspace(tmp_path / "rehearsal", fork_server.bin), lambda _name, _phase: None).run()
    assert outcome.ok, [phase.said for phase in outcome.phases if not phase.ok]
    # The limit of the pool, and that of the worker group.
    assert sorted((change.op, change.name) for change in outcome.changes) == [("update", "pool-gpu"), ("update", "ray")]


def test_queue_is_removed_from_running_stack(fork_server: ForkServer, tmp_path: Path) -> None:
    """Kueue protects its objects by finalizers, which the simulated cloud enforces: they are deleted in order."""
    file = tmp_path / "Pulumi.gke-dranet.yaml"
    text = (ROOT / file.name).read_text().replace("protect: true", "protect: false")
    file.write_text(f"{text}  rdma-ray:queue: kueue\n")
    request = RehearsalRequest(stack="gke-dranet", file=file, changes=("queue=none",))
    outcome = Scenario(request, Workspace(tmp_path / "rehearsal", fork_server.bin), lambda _name, _phase: None).run()
    assert outcome.ok, [phase.said for phase in outcome.phases if not phase.ok]
    gone = {change.name for change in outcome.changes if change.op == "delete"}
    assert {"kueue", "queue-cluster-queue", "queue-flavor-gpu", "ray-queue"} <= gone


def test_change_without_replacement_is_reported(rehearse: Rehearse) -> None:
    outcome = rehearse("gke", changes=("nodes.max=8",))
    assert outcome.ok, [phase.said for phase in outcome.phases if not phase.ok]
    assert {change.op for change in outcome.changes} == {"update"}


@pytest.mark.parametrize(
    "fault",
    [
        "gcp:container/nodePool:NodePool create stockout",
        "gcp:container/cluster:Cluster create timeout",
        "gcp:compute/subnetwork:Subnetwork create quota",
    ],
)
def test_fault_is_recovered_and_reported(rehearse: Rehearse, fault: str) -> None:
    outcome = rehearse("gke-dranet", faults=(fault,))
    assert outcome.ok, [phase.said for phase in outcome.phases if not phase.ok]
    assert [phase.name for phase in outcome.phases][:2] == ["up, with faults", "up again"]
    assert outcome.phases[0].said.startswith("failed as injected")


def test_fault_without_matching_request_fails(rehearse: Rehearse) -> None:
    outcome = rehearse("gke-dranet", faults=("gcp:compute/firewall:Firewall create 500",))
    assert not outcome.ok
    assert "not injected" in outcome.phases[0].said


@pytest.mark.parametrize("stack", STACKS)
def test_rehearsal_reports_contain_no_secrets(rehearse: Rehearse, stack: str) -> None:
    outcome = rehearse(stack)
    passwords = [node for node in outcome.graph.nodes.values() if node.type.endswith(":RandomPassword")]
    assert passwords
    for text in (terminal_output(outcome), markdown(outcome), golden(outcome.graph)):
        assert "gke-gcloud-auth-plugin" not in text
        assert "BEGIN CERTIFICATE" not in text
        for node in passwords:
            assert str(node.outputs.get("result")) not in text


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
