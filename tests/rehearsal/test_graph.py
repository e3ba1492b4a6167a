"""Graphs of hand-written deployments; no engine runs."""

from __future__ import annotations

import pytest

from rehearsal.graph import Graph, GraphError
from tests.rehearsal.deployments import Deployment, gke

CLUSTER, POOL = "gcp:container/cluster:Cluster", "gcp:container/nodePool:NodePool"
NETWORK, SUBNETWORK = "gcp:compute/network:Network", "gcp:compute/subnetwork:Subnetwork"


def urn(type_: str, name: str) -> str:
    return f"urn:pulumi:gke::rdma-ray::{type_}::{name}"


def test_dependencies_are_split_into_data_and_ordering() -> None:
    graph = Graph.from_deployment(gke().exported())
    pool = graph[urn(POOL, "system")]
    assert urn(CLUSTER, "cluster") in pool.data
    assert pool.ordering == {urn("gcp:projects/iAMMember:IAMMember", "nodes-logs")}
    operator = graph[urn("kubernetes:helm.sh/v3:Release", "kuberay-operator")]
    assert operator.provider == urn("pulumi:providers:kubernetes", "cluster")
    assert operator.deleted_with == urn(CLUSTER, "cluster")
    assert graph.managed_before(operator.urn) == {urn(CLUSTER, "cluster"): True, pool.urn: False}


def test_dependencies_pass_through_instant_nodes() -> None:
    made = Deployment()
    first = made.resource(NETWORK, "first")
    part = made.component("a:b:Part", "part")
    made.resources[-1]["dependencies"] = [first]
    inside = made.resource(NETWORK, "inside", parent=part)
    last = made.resource(NETWORK, "last", after=[part])
    graph = Graph.from_deployment(made.exported())
    assert graph.managed_before(inside) == {first: False}
    assert graph.managed_before(last) == {first: False, inside: False}


def test_graph_is_independent_of_registration_order() -> None:
    forwards, backwards = gke(), gke()
    backwards.resources.reverse()
    assert list(Graph.from_deployment(forwards.exported()).nodes) == list(
        Graph.from_deployment(backwards.exported()).nodes
    )


def test_urns_with_colons_and_parent_types_are_parsed() -> None:
    made = Deployment()
    made.resources.append(
        {"urn": "urn:pulumi:s::p::a:b:C$gcp:compute/network:Network::x::y", "type": NETWORK, "custom": True}
    )
    assert [node.name for node in Graph.from_deployment(made.exported()).managed] == ["x::y"]


def test_pending_deletes_and_reads_are_not_created() -> None:
    made = Deployment()
    made.resource(NETWORK, "new")
    made.resources.append(dict(made.resources[-1], delete=True))
    made.resource(NETWORK, "read")
    made.resources[-1]["external"] = True
    assert [node.name for node in Graph.from_deployment(made.exported()).managed] == ["new"]


def test_broken_references_are_reported() -> None:
    lost = Deployment()
    lost.resource(SUBNETWORK, "lost", data=["urn:pulumi:s::p::t::gone"])
    with pytest.raises(GraphError, match=r"Subnetwork lost refers to urn:pulumi:s::p::t::gone"):
        Graph.from_deployment(lost.exported())
    circle = Deployment()
    circle.resource(NETWORK, "a", after=[urn(NETWORK, "b")])
    circle.resource(NETWORK, "b", after=[urn(NETWORK, "a")])
    with pytest.raises(GraphError, match="wait for each other: a, b"):
        Graph.from_deployment(circle.exported())
