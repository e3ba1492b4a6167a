"""A stack in a subnetwork of a Shared VPC (`network.subnetwork`), which is read, checked first, and never changed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from infra.settings import from_stack_file
from rehearsal import users_network
from rehearsal.clouds.gcp.references import SUBNETWORK
from rehearsal.engine.commands import Engine
from rehearsal.engine.faults import Fault
from rehearsal.engine.state import State
from rehearsal.engine.workspace import ROOT, Workspace
from rehearsal.fork_server import ForkServer
from rehearsal.scenario import RehearsalRequest, Scenario
from tools.recovery import UP

PATH = "projects/host/regions/us-central1/subnetworks/training"
STACK = "gke-dws"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The stack file with the subnetwork."""
    content = yaml.safe_load((ROOT / f"Pulumi.{STACK}.yaml").read_text(encoding="utf-8"))
    content["config"]["rdma-ray:network"] = {"subnetwork": PATH}
    file = tmp_path / f"Pulumi.{STACK}.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    "faults",
    [
        (),
        ("gcp:compute/firewall:Firewall create 500", "*Cluster update 500", "*Network delete 500"),
        ("*NodePool create kill-after",),
    ],
    ids=["none", "refusals", "a killed engine"],
)
def test_subnetwork_and_its_network_are_as_before(
    file: Path, fork_server: ForkServer, tmp_path: Path, faults: tuple[str, ...]
) -> None:
    changes = ("hardening=true",)
    request = RehearsalRequest(stack=STACK, file=file, changes=changes, faults=tuple(map(Fault.parse, faults)))
    outcome = Scenario(request, Workspace(tmp_path / "w", fork_server.bin), lambda _name, _phase: None).run()
    assert outcome.ok, [phase.said for phase in outcome.phases if not phase.ok]
    assert outcome.leftovers == ()
    assert "rdma-ray:gke:ClusterNetwork" not in {node.type for node in outcome.graph.nodes.values()}


def test_change_of_the_users_network_is_found(file: Path, tmp_path: Path) -> None:
    settings = from_stack_file(file)
    with State(tmp_path / "clouds.sqlite").transaction() as state:
        for (type_, id_), live in users_network.objects(settings):
            state.put(type_, id_, live)
        assert list(users_network.changed(state, settings)) == []
        before = dict(users_network.objects(settings))[SUBNETWORK, PATH]
        state.put(SUBNETWORK, PATH, {**before, "description": "ours"})
        assert list(users_network.changed(state, settings)) == [
            f"changed, although it is the user's: {SUBNETWORK} {PATH}"
        ]


def test_what_the_subnetwork_lacks_stops_the_preview(file: Path, fork_server: ForkServer, tmp_path: Path) -> None:
    """One that does not exist; then one without ranges and Private Google Access: every reason, and nothing is made."""
    workspace = Workspace(tmp_path / "w", fork_server.bin)
    workspace.begin(STACK, file)
    engine = Engine(workspace, STACK)
    engine.init()
    said = engine.run("preview", stack=True)
    assert (said.ok, "Subnetwork Not Found" in said.text, "network.subnetwork: " + PATH in said.text) == (
        False,
        True,
        True,
    )
    with engine.cloud_state.transaction() as state:
        for (type_, id_), live in users_network.objects(from_stack_file(file)):
            state.put(type_, id_, {**live, "secondaryIpRanges": [], "privateIpGoogleAccess": False})
    for arguments in (("preview",), UP):
        said = engine.run(*arguments, stack=True)
        assert not said.ok
        for words in (
            "network.podsRange: pods",
            "network.servicesRange: services",
            "--enable-private-ip-google-access",
        ):
            assert words in said.text, said.text
    assert engine.steps() == []
