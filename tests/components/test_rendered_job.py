"""A rendered job against the stack's own of the same settings: what differs is what docs/render.md explains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.catalog.names import NAMESPACE
from tests.kubernetes import stack_objects
from tests.unit.stacks import EKS, GKE, changed
from tools.kubernetes.api import Json
from workloads.render.commands import ManifestOptions, manifests
from workloads.render.request import Request

QUEUED = {"queue": "kueue", "nodes.capacity": "flex-start-queued", "nodes.maxRunHours": 24}
COMMAND = ("bench", "nccl", "--nodes", "2")
SHARED = {"Namespace ray", "ServiceAccount ray-head", "ServiceAccount ray-worker", "Secret mine-ray-token"}
"""Objects of every stack's namespace that a rendered job uses."""


def key(body: Json) -> str:
    return f"{body['kind']} {body['metadata']['name']}"


@pytest.mark.parametrize("mode", ["job", "indexed-job"])
@pytest.mark.parametrize(
    ("stack", "changes", "provider", "shared"),
    [
        (GKE, {"storage.bucket": "mine", **QUEUED}, {"gcp:project": "mine"}, {"LocalQueue gpu"}),
        (GKE, {"fabric": "managed-dranet"}, {"gcp:project": "mine"}, {"ResourceClaimTemplate all-mrdma"}),
        (
            EKS,
            {"storage.bucket": "mine", "queue": "kueue"},
            {"aws:region": "us-east-1"},
            {"PersistentVolumeClaim shared", "LocalQueue gpu"},
        ),
    ],
    ids=["gke-queued", "gke-managed-dranet", "eks"],
)
def test_rendered_job_is_the_stack_s_own(
    stack: Json, changes: Json, provider: Json, shared: set[str], mode: Any, tmp_path: Path
) -> None:
    settings = changed(stack, {"nodes.max": 4, "nodes.maxHours": 12, **changes})
    file = tmp_path / "Pulumi.mine.yaml"
    file.write_text(yaml.safe_dump({"config": {f"rdma-ray:{name}": value for name, value in settings.items()}}))
    objects = manifests(mode, Request.of(COMMAND), ManifestOptions(stack_file=file, name="job-q"))

    entry_point = {"ray.mode": mode, "ray.entrypoint": "rdma-ray bench nccl --nodes 2", "ray.maxWorkers": 2}
    made = [
        body
        for body in stack_objects.registered(changed(settings, entry_point), provider, "mine")
        if body["metadata"].get("namespace") == NAMESPACE or body["kind"] == "Namespace"
    ]
    for body in made:
        # Pulumi's own.
        marks = {name: mark for name, mark in body["metadata"].pop("annotations", {}).items() if "pulumi" not in name}
        body["metadata"] |= {"annotations": marks} if marks else {}
    own = {key(body): body for body in made}
    rendered = {key(body): body for body in json.loads(json.dumps(objects).replace("job-q", "mine-ray"))}
    assert rendered == {name: own[name] for name in rendered}
    headless = {"ServiceAccount ray-head"} if mode == "indexed-job" else set[str]()
    assert own.keys() - rendered.keys() == (SHARED | shared) - headless
