"""The Kubernetes objects of every cloud stack, as the program hands them to the provider, from Pulumi's mocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from infra.kubernetes.nccl_job import Sweep, nccl_job
from infra.kubernetes.nccl_job_manifest import manifests
from infra.settings import parse
from tests.components.cloud_mocks import deployed
from tools.kubernetes.api import Json

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path for path in ROOT.glob("Pulumi.*.yaml") if "rdma-ray:target: local" not in path.read_text())
_SECRET = "4dabf18193072939515e22adb298388d"
INDEXED_JOB = {"mode": "indexed-job", "entrypoint": "python /app/train.py"}
QUEUED = "flex-start-queued"
RESERVATION = {"capacity": "reservation", "reservation": "ours"}
RAY_JOB = {"mode": "job", "entrypoint": "python /app/train.py"}


def stacks() -> Iterator[tuple[str, Json, dict[str, str]]]:
    """Every cloud stack file, as it stands and in the other ways to run Ray: name, settings, providers' settings."""
    for file in FILES:
        config = yaml.safe_load(file.read_text())["config"]
        ours = {key.removeprefix("rdma-ray:"): value for key, value in config.items() if key.startswith("rdma-ray:")}
        theirs = {key: str(value) for key, value in config.items() if not key.startswith("rdma-ray:")}
        name = file.name.split(".")[1]
        yield name, ours, theirs
        if ours.get("ray", {}).get("mode", "cluster") == "cluster":
            yield f"{name}, Indexed Job", ours | {"ray": ours["ray"] | INDEXED_JOB}, theirs
            yield f"{name}, RayJob", ours | {"ray": ours["ray"] | RAY_JOB}, theirs
        if "queue" not in ours:
            yield f"{name}, queued", ours | {"queue": "kueue"}, theirs
        elif ours["nodes"]["capacity"] == QUEUED:
            nodes = ours["nodes"]
            yield f"{name}, reservation first", ours | {"nodes": nodes | RESERVATION | {"fallback": QUEUED}}, theirs
            # Nodes that are always there are chosen by where they stand.
            there = {key: value for key, value in nodes.items() if key != "maxRunHours"} | {"min": nodes["max"]}
            yield f"{name}, reservation", ours | {"nodes": there | RESERVATION}, theirs


@cache
def of(name: str) -> tuple[Json, ...]:
    """The objects of one of `stacks()`, and of the NCCL Job that its file makes; Helm releases are none."""
    ours, theirs = next((ours, theirs) for each, ours, theirs in stacks() if each == name)
    return (*registered(ours, theirs, name.split(",")[0]), *manifests(nccl_job(parse(ours), Sweep())))


def registered(ours: Json, theirs: Mapping[str, str], stack: str) -> list[Json]:
    """The objects that the program registers for these settings, ours and the providers'; Helm releases are none."""
    made = deployed(ours, stack=stack, config=theirs).made.values()
    return [_plain(one.inputs) for one in made if _is_object(one.type)]


def release(name: str, release: str) -> Json:
    """The values with which one of `stacks()` installs a Helm release, such as `kueue`."""
    ours, theirs = next((ours, theirs) for each, ours, theirs in stacks() if each == name)
    made = deployed(ours, stack=name.split(",")[0], config=theirs).made.values()
    found = (_plain(one.inputs) for one in made if one.type.startswith("kubernetes:helm.sh/"))
    values: Json = next(one["values"] for one in found if one["name"] == release)
    return values


def kind(body: Json) -> str:
    """What an object is: "ray.io/v1 RayCluster"."""
    return f"{body['apiVersion']} {body['kind']}"


def _is_object(type_: str) -> bool:
    return type_.startswith("kubernetes:") and not type_.startswith("kubernetes:helm.sh/")


def _plain(value: Any) -> Any:
    """As the provider sends it: without nulls, and secrets opened (the engine's protocol marks them with a key)."""
    if isinstance(value, Mapping):
        if _SECRET in value:
            return _plain(value["value"])
        return {key: _plain(inner) for key, inner in value.items() if inner is not None}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value
