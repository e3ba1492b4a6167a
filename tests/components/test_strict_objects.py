"""Every object that a stack registers or a command prints, judged by its API's schema, in which an unknown field is an
error: the API server's OpenAPI description and the CRDs, from the pinned Go modules.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pulumi
import pytest
import yaml
from pulumi_kubernetes import apps

from infra.catalog.pins import RAY
from infra.kubernetes.resources import kubernetes_object, type_token
from rehearsal.clouds.kubernetes import schemas
from rehearsal.clouds.kubernetes.identity import api
from tests.kubernetes import stack_objects
from tests.kubernetes.cloud_mocks import recorded
from tests.kubernetes.mistakes import typos
from tests.kubernetes.stack_objects import FILES, kind
from tools.kubernetes.api import Json
from workloads.render.commands import ManifestOptions, manifests
from workloads.render.request import Request

UNCHECKED = schemas.unchecked()
pytestmark = pytest.mark.skipif(UNCHECKED is not None, reason=str(UNCHECKED))
WRONG = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "lables": {}}, "specs": {}}
SPEC: Any = {
    "repilcas": 3,
    "selector": {"matchLables": {}},
    "template": {"spec": {"containers": [{"name": "a", "imgae": "b", "resources": {"limit": {}}}]}},
}


def problems(body: Json) -> list[str]:
    """Return what the API server would say."""
    token = type_token(body)
    missing = [f"{token} is unknown"] if schemas.unknown(api(token)) else []
    return missing + [failure.reason for failure in schemas.failures(token, body)]


@cache
def limited() -> dict[str, tuple[Json, dict[str, str]]]:
    """Return the variants of `stacks()` with a time limit, which adds a CronJob, its rights and a policy."""
    return {
        f"{name}, time limit": (ours | {"nodes": ours["nodes"] | {"maxHours": 12}}, theirs)
        for name, ours, theirs in stack_objects.stacks()
        if ours["ray"].get("mode", "cluster") in ("cluster", "job") and not ours["nodes"].get("min")
    }


def objects(name: str) -> list[Json]:
    if name not in limited():
        return list(stack_objects.of(name))
    return stack_objects.registered(*limited()[name], name.split(",")[0])


NAMES = [*(name for name, _, _ in stack_objects.stacks()), *limited()]


@pytest.mark.parametrize("stack", NAMES)
def test_every_registered_object_has_only_known_fields(stack: str) -> None:
    """Also of its NCCL Job, which `rdma-ray bench job` prints."""
    assert [(kind(body), found) for body in objects(stack) if (found := problems(body))] == []


@pytest.mark.parametrize("mode", ["job", "indexed-job"])
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_rendered_object_has_only_known_fields(
    file: Path, mode: Literal["job", "indexed-job"], tmp_path: Path
) -> None:
    stack = yaml.safe_load(file.read_text())
    stack["config"]["rdma-ray:ray"]["image"] = f"example/ray:{RAY}-py311-cu130"
    (copy := tmp_path / file.name).write_text(yaml.safe_dump(stack))
    command = ("run", "--nodes", "2", "--secret", "HF_TOKEN", "--", "torchrun", "/app/train.py")
    bodies = json.loads(json.dumps(manifests(mode, Request.of(command), ManifestOptions(stack_file=copy))))
    assert [(kind(body), found) for body in bodies if (found := problems(body))] == []


def test_wrong_key_is_refused_at_each_level_of_each_kind() -> None:
    """Along the longest path of the largest object of each kind."""
    largest: dict[str, Json] = {}
    for body in (body for stack in NAMES for body in objects(stack)):
        largest[kind(body)] = max(largest.get(kind(body), {}), body, key=lambda each: len(str(each)))
    assert len(largest) > 25
    missed = []
    for name, body in largest.items():
        wrong = dict(typos(body))
        deepest = max(wrong, key=len)
        levels = [place for place in wrong if place[:-1] == deepest[: len(place) - 1]]
        assert () in {place[:-1] for place in levels}
        assert name == "v1 Namespace" or len(levels) > 1
        for place in levels:
            text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)[1:]
            if not any(f'unknown field "{text}"' in why for why in problems(wrong[place])):
                missed.append((name, text))
    assert missed == []


def sdk_class() -> None:
    # Untyped: for its message about the wrong key, mypy 2.4.1 writes out every type of a pod, which takes 22 GiB.
    deployment: Any = apps.v1.Deployment
    deployment("a", metadata={"name": "a", "lables": {}}, spec=SPEC)


def manifest() -> None:
    kubernetes_object("a", {**WRONG, "spec": SPEC}, pulumi.ResourceOptions())


@pytest.mark.parametrize("program", [sdk_class, manifest])
def test_sdk_passes_a_wrong_key_on_and_the_schema_refuses_it(program: Any) -> None:
    (made,) = recorded(program)
    below = "template.spec.containers[0]"
    expected = {
        "metadata.lables",
        "spec.repilcas",
        "spec.selector.matchLables",
        f"spec.{below}.imgae",
        f"spec.{below}.resources.limit",
        # The class has no such parameter.
        *(["specs"] if program is manifest else []),
    }
    found = {failure.path for failure in schemas.failures(made.type, dict(made.inputs))}
    assert found == expected
