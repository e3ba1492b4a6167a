"""The steps of docs/first-up.md on real Ray in real pods, with the objects of its stack, as for the gke stack.

UPDATE_GOLDENS=1 make test-pods PYTEST=tests/pods/test_first_up_in_pods.py    # writes what they print into the page
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.catalog.gcp import ACCELERATOR_LABEL
from infra.catalog.machines import GKE_CATALOG
from rehearsal.cluster.scaling import Scale
from tests.console import bash, played
from tests.pods.deployed_stack import RDMA_RAY, DeployedStack, user
from tests.pods.pod_cluster import PodCluster

PAGE = RDMA_RAY.parents[1] / "docs" / "first-up.md"
STACK, MACHINE = "gke-first", "g2-standard-8"
_STACK = f" --stack {STACK}"


@pytest.fixture
def first(pod_cluster: PodCluster, tmp_path: Path) -> Iterator[DeployedStack]:
    """The stack of the page, on nodes with the label of its GPUs."""
    pod_cluster.shares()
    (tmp_path / "shared").mkdir()
    nodes = [pod_cluster.nodes[name] for name in ("gpu-0", "gpu-1")]
    before = [pod_cluster.api.get("v1", "Node", node) or {} for node in nodes]
    stack = DeployedStack(pod_cluster, STACK, Scale(shared=tmp_path / "shared", seconds={"idleTimeoutSeconds": 60}), {})
    try:
        for node in nodes:
            label(pod_cluster, node, GKE_CATALOG[MACHINE].accelerator)
        stack.apply()
        yield stack
    finally:
        print(stack.describe())
        stack.delete()
        for node, body in zip(nodes, before, strict=True):
            label(pod_cluster, node, body["metadata"]["labels"].get(ACCELERATOR_LABEL))


def label(pod_cluster: PodCluster, node: str, value: str | None) -> None:
    """Set or remove the label of a node's GPUs."""
    pod_cluster.api.patch("v1", "Node", node, None, {"metadata": {"labels": {ACCELERATOR_LABEL: value}}})


def test_steps_of_the_page(first: DeployedStack, tmp_path: Path) -> None:
    """Each command prints what the page shows. Nodes start from zero, and the training leaves files in the bucket."""
    file = first.outputs(tmp_path / "outputs.json", storage={"path": "/bucket"})
    first.api.until("the head to be ready", first.head, 300)
    assert first.workers() == []
    environment = user(file) | {"COLUMNS": "120"}
    environment["PATH"] = f"{RDMA_RAY.parent}:{environment['PATH']}"
    (folder := tmp_path / "project").mkdir()
    page, ran = PAGE.read_text(encoding="utf-8"), []

    def run(command: str) -> str | None:
        if _STACK not in command:
            return None
        ran.append(command)
        done = bash(command.replace(_STACK, ""), folder, environment, 900)
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"
        return done.stdout.replace(str(folder), "/home/me/project")

    updated = played(page, folder, run)
    assert len(ran) >= 4
    assert any((tmp_path / "shared").rglob("*")), "no checkpoint in the bucket"
    if updated != page:
        PAGE.write_text(updated, encoding="utf-8")
