"""The place of a worker's node in the network: who reads it, with which right, and what Ray gets."""

from __future__ import annotations

import sys
import urllib.error
from pathlib import Path
from typing import Any

import pytest
from ray._private.label_utils import parse_node_labels_from_yaml_file

from infra.catalog.aws import TOPOLOGY as EC2_LAYERS
from infra.catalog.gcp import TOPOLOGY as GCE_LEVELS
from infra.kubernetes import init_pod
from infra.kubernetes.api_access import PLACE, node_rights
from infra.kubernetes.pods import ACCOUNT_FOLDER
from infra.kubernetes.ray_cluster import ray_cluster_spec
from infra.plan import ray_args
from infra.settings import ClusterSettings, parse
from infra.settings.kubernetes import LEVELS
from tests.unit.kubernetes.test_start_once import answer_init_pod
from tests.unit.stacks import EKS, GKE, KUBERNETES, changed
from workloads.gang.placement import LABELS

RACKS = changed(KUBERNETES, {"nodes.topology": ["example.com/hall", "example.com/rack"]})
STACKS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "gke": (GKE, [*GCE_LEVELS[:3]]),
    "eks": (EKS, [*EC2_LAYERS[:3]]),
    "eks-p6": (changed(EKS, {"nodes.machine": "p6-b200.48xlarge"}), [*EC2_LAYERS]),
    "kubernetes": (RACKS, ["example.com/hall", "example.com/rack"]),
}


def group_of(stack: dict[str, Any]) -> dict[str, Any]:
    settings = parse(stack)
    assert isinstance(settings, ClusterSettings)
    groups: list[dict[str, Any]] = ray_cluster_spec(ray_args(settings, "a-ray"))["workerGroupSpecs"]
    return groups[0]


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("answer", ["whole", "no labels", 404, 403, "down"])
def test_ray_gets_the_place_or_an_empty_one(
    name: str, answer: str | int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's own parser reads what the init container writes, whatever the API server answers: the worker starts."""
    stack, names = STACKS[name]
    group = group_of(stack)
    [container] = group["template"]["spec"]["initContainers"]
    assert group["rayStartParams"] == {"labels-file": PLACE}
    assert container["env"] == [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    labels = {label: f"{number:032x}" for number, label in enumerate(names)}

    node = {"metadata": {"labels": labels if answer == "whole" else {}}}
    answers = urllib.error.URLError("unreachable") if answer == "down" else node
    path = "/api/v1/nodes/node-7"
    waited = answer_init_pod(monkeypatch, tmp_path, path, answer if isinstance(answer, int) else answers)
    here = {"$(NODE_NAME)": "node-7", PLACE: str(tmp_path / "place"), ACCOUNT_FOLDER: str(tmp_path)}
    words = container["args"]
    for there, replacement in here.items():
        words = [word.replace(there, replacement) for word in words]
    monkeypatch.setattr(sys, "argv", ["x", *words])
    init_pod.main()
    found = parse_node_labels_from_yaml_file(str(tmp_path / "place"))
    assert [*found] == [f"rdma-ray/topology-{level}" for level in range(1, len(names) + 1)]
    assert {*found} <= {*LABELS}
    assert LABELS[-1] == f"rdma-ray/topology-{LEVELS}"
    # A refusal is final: without the right, no worker waits.
    assert bool(waited) is (answer == "down")
    assert [*found.values()] == ([*labels.values()] if answer == "whole" else [""] * len(names))


@pytest.mark.parametrize("name", STACKS)
def test_no_container_of_user_code_has_the_token_of_the_account(name: str) -> None:
    pod = group_of(STACKS[name][0])["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    [volume] = [each["name"] for each in pod["volumes"] if "projected" in each]
    assert volume in [each["name"] for each in pod["initContainers"][0]["volumeMounts"]]
    assert volume not in [each["name"] for each in pod["containers"][0]["volumeMounts"]]


@pytest.mark.parametrize("mode", ["cluster", "indexed-job"])
@pytest.mark.parametrize("name", STACKS)
def test_right_is_to_get_nodes_and_no_other(name: str, mode: str) -> None:
    """A user's cluster gets no object of cluster scope: its administrator grants the right."""
    more = {"ray.mode": mode, **({"ray.entrypoint": "true"} if mode == "indexed-job" else {})}
    settings = parse(changed(STACKS[name][0], more))
    assert isinstance(settings, ClusterSettings)
    rights = node_rights(ray_args(settings, "a-ray"))
    if name == "kubernetes" or mode == "indexed-job":
        assert rights == []
        return
    role, binding = rights
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    assert [each["name"] for each in binding["subjects"]] == ["ray-worker"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]


def test_users_cluster_without_labels_has_nothing_of_it() -> None:
    group = group_of(KUBERNETES)
    assert group["rayStartParams"] == {}
    assert "initContainers" not in group["template"]["spec"]
    assert "projected" not in str(group)
