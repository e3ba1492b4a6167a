"""What `rdma-ray render` prints, with the schemas of the real API server, KubeRay's CRD and Kueue's webhooks.

Every cloud stack file with an image that has the command: each command as a RayJob and as an Indexed Job, by
server-side dry runs with strict validation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
import yaml

from infra.catalog.pins import RAY
from rehearsal.clouds.kubernetes.schemas import WRITTEN
from tests.kubernetes.queries import RAY as NAMESPACE
from tests.kubernetes.stack_objects import FILES, kind
from tools.kubernetes import kubectl
from tools.kubernetes.api import Api, ApiError
from tools.kubernetes.control_plane import ControlPlane
from workloads.render.commands import ManifestOptions, manifests
from workloads.render.request import Request

COMMANDS = (
    ("run", "--nodes", "2", "--secret", "HF_TOKEN", "--", "torchrun", "/app/train.py"),
    ("bench", "nccl", "--preset", "acceptance"),
    ("train", "convnext", "--checkpoint-dir", "gs://mine/checkpoints"),
)


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Api:
    kubectl.install(plane.api, kubectl.read(*WRITTEN.values()))
    plane.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    return plane.api


@pytest.mark.parametrize("mode", ["job", "indexed-job"])
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_rendered_objects_are_accepted(
    api: Api, file: Path, mode: Literal["job", "indexed-job"], tmp_path: Path
) -> None:
    stack = yaml.safe_load(file.read_text())
    stack["config"]["rdma-ray:ray"]["image"] = f"example/ray:{RAY}-py311-cu130"
    (copy := tmp_path / file.name).write_text(yaml.safe_dump(stack))
    refused = []
    for command in COMMANDS:
        for body in manifests(mode, Request.of(command), ManifestOptions(stack_file=copy)):
            try:
                api.apply(body, dry_run=True)
            except ApiError as problem:
                refused.append(f"{command[0]}, {kind(body)}: {problem.message}")
    assert refused == []
