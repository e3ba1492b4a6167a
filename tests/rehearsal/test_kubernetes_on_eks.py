"""The simulated Kubernetes API of an EKS cluster: connection, served kinds, nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.kind import Call, Json, Refusal
from rehearsal.clouds.kubernetes.charts import find
from rehearsal.clouds.kubernetes.cloud import CLOUD
from rehearsal.clouds.kubernetes.connection import cluster, pools, reaches, version
from rehearsal.clouds.kubernetes.drift import claim
from rehearsal.clouds.kubernetes.identity import RELEASE
from rehearsal.clouds.state import State, View
from tests.rehearsal import aws_supporting as land
from tests.rehearsal.kubernetes_objects import kubeconfig

SYSTEM = {"eks.amazonaws.com/nodegroup": "system"}
OPERATOR: Json = {
    "name": "kuberay",
    "chart": "kuberay-operator",
    "version": "1.6.2",
    "namespace": "default",
    "repositoryOpts": {"repo": "https://ray-project.github.io/kuberay-helm"},
    "values": {"nodeSelector": SYSTEM},
}


@pytest.fixture
def state(tmp_path: Path) -> Iterator[View]:
    with State(tmp_path / "clouds.sqlite").transaction() as view:
        land.landscape(view)
        yield view


@pytest.fixture
def config(state: View) -> dict[str, Any]:
    live = state.get(tokens.CLUSTER, "ray") or {}
    return {"kubeconfig": kubeconfig(str(live["endpoint"]).removeprefix("https://"))}


def _call(state: View, config: dict[str, Any], type_: str, inputs: Json) -> Call:
    kind = CLOUD.kind(type_)
    assert kind is not None
    id_ = kind.identify(inputs, config)
    return Call(verb="create", type=type_, id=id_, inputs=inputs, live={}, config=config, state=state, now=inputs)


def _refusals(call: Call) -> list[Refusal]:
    kind = CLOUD.kind(call.type)
    assert kind is not None
    return [refusal for rule in kind.rules if (refusal := rule(call)) is not None]


def test_endpoint_selects_eks_cluster(state: View, config: dict[str, Any]) -> None:
    found = cluster(config, state)
    assert found is not None
    assert (found[0], version(found[1])) == ("ray", (1, 35))
    assert reaches(config, state) is None
    state.remove(tokens.CLUSTER, "ray")
    assert "no cluster of this rehearsal" in str(reaches(config, state))


def test_access_requires_access_entry(state: View, config: dict[str, Any]) -> None:
    for _, id_, _ in list(state.all(tokens.ACCESS_POLICY)):
        state.remove(tokens.ACCESS_POLICY, id_)
    assert "401" in str(reaches(config, state))


def test_untainted_nonempty_node_groups_are_open(state: View, config: dict[str, Any]) -> None:
    land.make(state, tokens.NODE_GROUP, land.GPU_GROUP)
    empty = {**land.SYSTEM_GROUP, "nodeGroupName": "empty"}
    land.make(state, tokens.NODE_GROUP, land.changed(empty, {"scalingConfig.desiredSize": 0}))
    found = {pool.name: pool.open for pool in pools(_call(state, config, RELEASE, OPERATOR))}
    assert found == {"system": True, "fresh": False, "empty": False}


@pytest.mark.parametrize(("group", "silent"), [("system", True), ("fresh", False), ("none", False)])
def test_operator_pod_fits_a_node(group: str, silent: bool, state: View, config: dict[str, Any]) -> None:
    state.put("kubernetes:core/v1:Namespace", "default", {"metadata": {"name": "default"}, "__cluster": "ray"})
    land.make(state, tokens.NODE_GROUP, land.GPU_GROUP)
    asked = land.changed(OPERATOR, {"values": {"nodeSelector": {"eks.amazonaws.com/nodegroup": group}}})
    said = [refusal.message for refusal in _refusals(_call(state, config, RELEASE, asked))]
    assert (said == []) is silent, said


def test_gke_kinds_are_not_served(state: View, config: dict[str, Any]) -> None:
    asked: Json = {"metadata": {"name": "a"}, "spec": {"priorities": [{"spot": True}]}}
    call = _call(state, config, "kubernetes:cloud.google.com/v1:ComputeClass", asked)
    assert any("no matches for kind" in refusal.message for refusal in _refusals(call))


@pytest.mark.parametrize(
    ("chart", "repository", "versions"),
    [
        ("nvidia-device-plugin", "https://nvidia.github.io/k8s-device-plugin", "0.20.0"),
        ("aws-efa-k8s-device-plugin", "https://aws.github.io/eks-charts", "v0.5.30"),
        ("aws-dranet", "https://aws.github.io/eks-charts", "1.0.0"),
        ("cluster-autoscaler", "https://kubernetes.github.io/autoscaler", "9.59.0"),
    ],
)
def test_eks_charts_are_known(chart: str, repository: str, versions: str) -> None:
    found = find(chart, repository)
    assert found is not None
    assert versions in found.versions


def test_claim_stays_bound_to_named_volume(state: View) -> None:
    assert claim({"spec": {"volumeName": "ray-shared"}}, state)["spec"] == {"volumeName": "ray-shared"}
