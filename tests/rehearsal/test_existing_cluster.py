"""A stack in a cluster that the user has, `cluster.existing`: read, checked first, and never changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.catalog.names import STACK_LABEL
from infra.settings import from_stack_file
from rehearsal import users_cluster
from rehearsal.clouds.aws import tokens
from rehearsal.clouds.gcp.references import CLUSTER, NODE_POOL
from rehearsal.clouds.kubernetes import identity
from rehearsal.clouds.kubernetes.connection import OWNER
from rehearsal.engine.commands import Engine
from rehearsal.engine.faults import Fault
from rehearsal.engine.kind import Json
from rehearsal.engine.workspace import Workspace
from rehearsal.fork_server import ForkServer
from rehearsal.scenario import RehearsalRequest, Scenario
from tests.unit.stacks import written
from tools.recovery import UP

EXISTING: dict[str, dict[str, Any]] = {
    "gke-dranet": {"cluster.existing": "us-central1/theirs"},
    "gke": {"cluster.existing": "us-central1/theirs"},
    "eks": {"cluster.existing": "theirs", "network.subnets": ["subnet-0123456789abcdef0"], "access": {}},
}
"""Settings by which a stack file of the repository uses a cluster of the user's: managed DRANET, and own networks."""
MADE_ELSEWHERE = (
    "gcp:container/cluster:Cluster",
    "rdma-ray:gke:ClusterNetwork",
    "aws:eks/cluster:Cluster",
    "aws:eks/addon:Addon",
    "aws:eks/accessEntry:AccessEntry",
    "rdma-ray:eks:ClusterNetwork",
)


def stack_file(stack: str, folder: Path) -> Path:
    """Write the stack file with the user's cluster."""
    return written(stack, EXISTING[stack], folder)


@pytest.mark.parametrize(
    ("stack", "faults"),
    [
        ("gke-dranet", ("*NodePool create 500", "*NodePool delete 500")),
        ("gke-dranet", ("*NodePool create kill-after",)),
        ("gke-dranet", ("*RayCluster create 500", "*Namespace delete 500")),
        ("gke", ("gcp:compute/network:Network create kill-after",)),
        ("eks", ("*Release create 500", "*SecurityGroup delete 500")),
        ("eks", ("*NodeGroup create kill-after",)),
        ("eks", ("*RayCluster create kill-after", "*Namespace delete 500")),
    ],
    ids=str,
)
def test_users_cluster_is_as_before(
    stack: str, faults: tuple[str, ...], fork_server: ForkServer, tmp_path: Path
) -> None:
    """After refused requests, a change of the stack, drift, or an engine that is killed."""
    file = stack_file(stack, tmp_path)
    request = RehearsalRequest(stack=stack, file=file, changes=("nodes.max=3",), faults=tuple(map(Fault.parse, faults)))
    outcome = Scenario(request, Workspace(tmp_path / "w", fork_server.bin), lambda _name, _phase: None).run()
    assert outcome.ok, "\n".join([*(phase.said for phase in outcome.phases if not phase.ok), *outcome.leftovers])
    assert outcome.leftovers == ()
    assert not {node.type for node in outcome.graph.nodes.values()} & {*MADE_ELSEWHERE}


def begin(stack: str, fork_server: ForkServer, tmp_path: Path) -> tuple[Engine, Path]:
    """Return the engine of a stack without the user's things."""
    file = stack_file(stack, tmp_path)
    workspace = Workspace(tmp_path / "w", fork_server.bin)
    workspace.begin(stack, file)
    engine = Engine(workspace, stack)
    engine.init()
    return engine, file


def test_what_the_cluster_lacks_stops_the_preview(fork_server: ForkServer, tmp_path: Path) -> None:
    """A cluster that is not there; one that lacks much; one that has a thing of the stack's name: nothing is made."""
    engine, file = begin("gke-dranet", fork_server, tmp_path)
    said = engine.run("preview", stack=True)
    assert not said.ok
    assert "cluster.existing: us-central1/theirs" in said.text
    assert "Google Cloud does not show it" in said.text

    with engine.cloud_state.transaction() as state:
        users = users_cluster.prepare(state, from_stack_file(file))
        [(key, live)] = [(key, live) for key, live in users.items() if key[0] == CLUSTER and live is not None]
        state.put(*key, {**live, "datapathProvider": "LEGACY_DATAPATH", "masterVersion": "1.30.1-gke.1"})
    for arguments in (("preview",), UP):
        said = engine.run(*arguments, stack=True)
        assert not said.ok
        for words in ("no Dataplane V2", "1.30.1-gke.1"):
            assert words in said.text, said.text

    kind, metadata = "kubernetes:core/v1:Namespace", {"name": "ray", "labels": {STACK_LABEL: "other"}}
    with engine.cloud_state.transaction() as state:
        state.put(*key, live)
        state.put(kind, "ray", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, OWNER: key[1]})
        state.put(*kuberay(key[1]))
    for arguments in (("preview",), UP):
        said = engine.run(*arguments, stack=True)
        assert not said.ok
        for words in ("a Namespace ray, of the stack other", "add kuberay to cluster.provides"):
            assert words in said.text, said.text
    assert engine.steps() == []


def kuberay(cluster: str) -> tuple[str, str, Json]:
    """Return a KubeRay of the user's, which watches every namespace."""
    type_, live = users_cluster.operator("kuberay-operator", "default", {}, [])
    return type_, "default/kuberay-operator", {**live, OWNER: cluster}


def test_pool_of_another_clone_is_refused(fork_server: ForkServer, tmp_path: Path) -> None:
    """A stack of this name in another clone has made it: its owner is not the one of this state."""
    engine, file = begin("gke-dranet", fork_server, tmp_path)
    with engine.cloud_state.transaction() as state:
        users = users_cluster.prepare(state, from_stack_file(file))
        [(pool, live)] = [(key, live) for key, live in users.items() if key[0] == NODE_POOL and live is not None]
        labels = {"rdma-ray-stack": "gke-dranet", "rdma-ray-owner": "0a1b2c3d"}
        theirs = {**live, "name": "gpu", "nodeConfig": {"resourceLabels": labels}}
        state.put(NODE_POOL, pool[1].replace("default-pool", "gpu"), theirs)
    for arguments in (("preview",), UP):
        said = engine.run(*arguments, stack=True)
        assert not said.ok
        assert "node pool gpu, of a stack of this name with another state" in said.text
    assert [step for step in engine.steps() if "random" not in str(step)] == []


def test_what_an_eks_cluster_lacks_stops_the_preview(fork_server: ForkServer, tmp_path: Path) -> None:
    """One that does not exist; then one that lacks much: every reason, with its fix, and nothing is made."""
    engine, file = begin("eks", fork_server, tmp_path)
    said = engine.run("preview", stack=True)
    assert not said.ok
    assert "No cluster found" in said.text
    with engine.cloud_state.transaction() as state:
        users_cluster.prepare(state, from_stack_file(file))
        cluster = state.get(tokens.CLUSTER, "theirs") or {}
        access = {"authenticationMode": "CONFIG_MAP"}
        state.put(tokens.CLUSTER, "theirs", {**cluster, "version": "1.33", "accessConfig": access})
        group = {"clusterName": "theirs", "nodeGroupName": "gpu", "tags": {"rdma-ray-stack": "other"}}
        state.put(tokens.NODE_GROUP, "theirs:gpu", group)
        for type_, id_, live in [*state.all(identity.DAEMON_SET)]:
            pod = {**live["spec"]["template"]["spec"], "nodeSelector": {}}
            state.put(type_, id_, {**live, "spec": {"template": {"spec": pod}}})
        for _, id_, live in [*state.all(identity.DEPLOYMENT)]:
            if live["metadata"]["name"] == "coredns":
                state.remove(identity.DEPLOYMENT, id_)
    for arguments in (("preview",), UP):
        said = engine.run(*arguments, stack=True)
        assert not said.ok
        for words in (
            "authenticationMode=API_AND_CONFIG_MAP",
            "--kubernetes-version 1.35",
            "node group gpu, of the stack other",
            "--addon-name coredns",
            "add nvidia-device-plugin to cluster.provides",
            "add efa-device-plugin to cluster.provides",
        ):
            assert words in said.text, said.text
    assert engine.steps() == []


def test_node_group_of_another_clone_is_refused(fork_server: ForkServer, tmp_path: Path) -> None:
    """Its node groups and objects have the stack's name and another owner: nothing is made or changed."""
    engine, file = begin("eks", fork_server, tmp_path)
    with engine.cloud_state.transaction() as state:
        users_cluster.prepare(state, from_stack_file(file))
        mark = {"rdma-ray-stack": "eks", "rdma-ray-owner": "0a1b2c3d"}
        group = {"clusterName": "theirs", "nodeGroupName": "gpu", "tags": mark}
        state.put(tokens.NODE_GROUP, "theirs:gpu", group)
    for arguments in (("preview",), UP):
        said = engine.run(*arguments, stack=True)
        assert not said.ok
        assert "there is node group gpu, of a stack of this name with another state" in said.text
    assert {type_ for type_, _ in engine.objects()} & {"aws:iam/role:Role", tokens.LAUNCH_TEMPLATE} == set()
