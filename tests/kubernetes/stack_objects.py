"""Kubernetes objects of every cloud stack, as the program passes them to the provider, from Pulumi's mocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from infra.nccl_job import Sweep, nccl_job
from infra.settings import CloudSettings, parse
from tests.kubernetes.cloud_mocks import deployed
from tools.kubernetes.api import Json
from workloads.nccl.job_manifest import manifests

ROOT = Path(__file__).resolve().parents[2]
CLOUDS = ("rdma-ray:target: gke", "rdma-ray:target: eks")
FILES = sorted(path for path in ROOT.glob("Pulumi.*.yaml") if any(each in path.read_text() for each in CLOUDS))
_SECRET = "4dabf18193072939515e22adb298388d"
INDEXED_JOB = {"mode": "indexed-job", "entrypoint": "python /app/train.py"}
QUEUED = "flex-start-queued"
RESERVATION = {"capacity": "reservation", "reservation": "ours"}
RAY_JOB = {"mode": "job", "entrypoint": "python /app/train.py"}


def stacks() -> Iterator[tuple[str, Json, dict[str, str]]]:
    """Yield every cloud stack file, unchanged and with the other Ray modes: name, settings, providers' settings."""
    for file in FILES:
        config = yaml.safe_load(file.read_text())["config"]
        ours = {key.removeprefix("rdma-ray:"): value for key, value in config.items() if key.startswith("rdma-ray:")}
        theirs = {key: str(value) for key, value in config.items() if not key.startswith("rdma-ray:")}
        name = file.name.split(".")[1]
        yield name, ours, theirs
        if ours.get("ray", {}).get("mode", "cluster") == "cluster":
            yield f"{name}, Indexed Job", ours | {"ray": ours["ray"] | INDEXED_JOB}, theirs
            yield f"{name}, RayJob", ours | {"ray": ours["ray"] | RAY_JOB}, theirs
        # Kueue would not admit the second cluster of an upgrade.
        if "queue" not in ours and ours["ray"].get("mode") != "service":
            yield f"{name}, queued", ours | {"queue": "kueue"}, theirs
        elif ours["nodes"]["capacity"] == QUEUED:
            nodes = ours["nodes"]
            yield f"{name}, reservation first", ours | {"nodes": nodes | RESERVATION | {"fallback": QUEUED}}, theirs
            # Permanent nodes are placed by topology.
            there = {key: value for key, value in nodes.items() if key != "maxRunHours"} | {"min": nodes["max"]}
            yield f"{name}, reservation", ours | {"nodes": there | RESERVATION}, theirs


@cache
def of(name: str) -> tuple[Json, ...]:
    """Return the objects of one of `stacks()` and of its NCCL Job, if it has RDMA NICs, without Helm releases."""
    ours, theirs = next((ours, theirs) for each, ours, theirs in stacks() if each == name)
    settings = parse(ours)
    assert isinstance(settings, CloudSettings)
    job = manifests(nccl_job(settings, Sweep())) if settings.machine.rdma else ()
    return (*registered(ours, theirs, name.split(",")[0]), *job)


def registered(ours: Json, theirs: Mapping[str, str], stack: str) -> list[Json]:
    """Return the objects that the program registers for these settings, without Helm releases."""
    made = deployed(ours, stack=stack, config=theirs)
    return [_plain(one.inputs) for one in made if _is_object(one.type)]


def release(name: str, release: str) -> Json:
    """Return the values with which one of `stacks()` installs a Helm release, such as `kueue`."""
    ours, theirs = next((ours, theirs) for each, ours, theirs in stacks() if each == name)
    made = deployed(ours, stack=name.split(",")[0], config=theirs)
    found = (_plain(one.inputs) for one in made if one.type.startswith("kubernetes:helm.sh/"))
    values: Json = next(one["values"] for one in found if one["name"] == release)
    return values


def kind(body: Json) -> str:
    """Return the type of an object: "ray.io/v1 RayCluster"."""
    return f"{body['apiVersion']} {body['kind']}"


def _is_object(type_: str) -> bool:
    return type_.startswith("kubernetes:") and not type_.startswith("kubernetes:helm.sh/")


def _plain(value: Any) -> Any:
    """Return a value as the provider sends it: without nulls and the engine's marks of secrets."""
    if isinstance(value, Mapping):
        if _SECRET in value:
            return _plain(value["value"])
        return {key: _plain(inner) for key, inner in value.items() if inner is not None}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value
