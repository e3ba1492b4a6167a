"""A stack in a network that the user has, which is read, checked first, and never changed: `network.subnetwork` of a
Shared VPC on Google Cloud, and `network.subnets` of a VPC on AWS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.settings import from_stack_file
from rehearsal import users_cluster, users_network
from rehearsal.clouds.aws.tokens import SUBNET
from rehearsal.clouds.gcp.references import SUBNETWORK
from rehearsal.engine.commands import Engine
from rehearsal.engine.faults import Fault
from rehearsal.engine.state import State
from rehearsal.engine.workspace import Workspace
from rehearsal.fork_server import ForkServer
from rehearsal.scenario import RehearsalRequest, Scenario
from tests.unit.stacks import written
from tools.recovery import UP

PATH = "projects/host/regions/us-central1/subnetworks/training"
SUBNETS = ["subnet-0123456789abcdef0", "subnet-0fedcba9876543210"]
NETWORKS: dict[str, dict[str, Any]] = {
    "gke-dws": {"network.subnetwork": PATH},
    "eks-capacity-block": {"network.subnets": SUBNETS},
}


def stack_file(stack: str, folder: Path) -> Path:
    """Write the stack file with the user's network."""
    return written(stack, NETWORKS[stack], folder)


@pytest.mark.parametrize(
    ("stack", "faults"),
    [
        ("gke-dws", ("gcp:compute/firewall:Firewall create 500", "*Cluster update 500", "*Network delete 500")),
        ("gke-dws", ("*NodePool create kill-after",)),
        ("eks-capacity-block", ("*SecurityGroup create 500", "*Cluster delete 500")),
        ("eks-capacity-block", ("*NodeGroup create kill-after",)),
    ],
    ids=str,
)
def test_users_network_is_as_before(
    stack: str, faults: tuple[str, ...], fork_server: ForkServer, tmp_path: Path
) -> None:
    """After a change of the stack, refused requests, or an engine that is killed."""
    file, changes = stack_file(stack, tmp_path), ("hardening=true",)
    request = RehearsalRequest(stack=stack, file=file, changes=changes, faults=tuple(map(Fault.parse, faults)))
    outcome = Scenario(request, Workspace(tmp_path / "w", fork_server.bin), lambda _name, _phase: None).run()
    assert outcome.ok, [phase.said for phase in outcome.phases if not phase.ok]
    assert outcome.leftovers == ()
    types = {node.type for node in outcome.graph.nodes.values()}
    assert not types & {"rdma-ray:gke:ClusterNetwork", "rdma-ray:eks:ClusterNetwork", "rdma-ray:eks:AuditedNetwork"}


@pytest.mark.parametrize("stack", NETWORKS)
def test_change_of_the_users_network_is_found(stack: str, tmp_path: Path) -> None:
    settings = from_stack_file(stack_file(stack, tmp_path))
    with State(tmp_path / "clouds.sqlite").transaction() as state:
        users = users_cluster.prepare(state, settings)
        assert list(users_cluster.changed(state, users)) == []
        (type_, id_), (gone, its) = list(users)[:2]
        state.put(type_, id_, {**(users[type_, id_] or {}), "description": "ours"})
        state.remove(gone, its)
        assert list(users_cluster.changed(state, users)) == [
            f"changed, although it is the user's: {type_} {id_}",
            f"deleted, although it is the user's: {gone} {its}",
        ]


LACKING: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "gke-dws": (
        {"secondaryIpRanges": [], "privateIpGoogleAccess": False},
        ("network.podsRange: pods", "network.servicesRange: services", "--enable-private-ip-google-access"),
    ),
    "eks-capacity-block": (
        {"mapPublicIpOnLaunch": True, "availableIpAddressCount": 10},
        ("has 10 free addresses", "--no-map-public-ip-on-launch"),
    ),
}
"""What a subnetwork or subnet is changed to, and words of the problems."""


@pytest.mark.parametrize("stack", NETWORKS)
def test_what_the_network_lacks_stops_the_preview(stack: str, fork_server: ForkServer, tmp_path: Path) -> None:
    """One that does not exist; then one that lacks much: every reason, and nothing is made."""
    file, (change, words) = stack_file(stack, tmp_path), LACKING[stack]
    workspace = Workspace(tmp_path / "w", fork_server.bin)
    workspace.begin(stack, file)
    engine = Engine(workspace, stack)
    engine.init()
    said = engine.run("preview", stack=True)
    assert not said.ok
    assert "network.subnet" in said.text
    assert "Not Found" in said.text or "does not exist" in said.text
    with engine.cloud_state.transaction() as state:
        for (type_, id_), live in users_network.objects(from_stack_file(file)):
            state.put(type_, id_, {**live, **(change if type_ in (SUBNETWORK, SUBNET) else {})})
    for arguments in (("preview",), UP):
        said = engine.run(*arguments, stack=True)
        assert not said.ok
        for each in words:
            assert each in said.text, said.text
    assert engine.steps() == []
