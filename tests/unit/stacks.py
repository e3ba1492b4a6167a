"""Valid stack files, and ways to change one setting of them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from infra.catalog.pins import RAY
from infra.settings import EksSettings, GkeSettings, KubernetesSettings, Problem, SettingsError, parse
from infra.settings.load import SETTINGS

ROOT = Path(__file__).parents[2]
GKE: dict[str, Any] = {
    "target": "gke",
    "location": "us-central1-b",
    "nodes": {"machine": "a3-ultragpu-8g"},
    "ray": {"image": f"example/ray:{RAY}-py311-cu128"},
}
EKS: dict[str, Any] = {
    "target": "eks",
    "location": "us-east-1a",
    "nodes": {"machine": "p5en.48xlarge"},
    "ray": {"image": f"example/ray:{RAY}-py311-cu128"},
}
KUBERNETES: dict[str, Any] = {
    "target": "kubernetes",
    "context": "ours",
    "namespace": "team-a",
    "nodes": {"gpus": 8, "cpus": 180, "memoryGib": 1800},
    "fabric": "socket",
    "ray": {"image": f"example/ray:{RAY}-py311-cu128"},
}
LOCAL: dict[str, Any] = {"target": "local"}


def changed(stack: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The stack file with dotted settings set; None takes a setting out."""
    result: dict[str, Any] = copy.deepcopy(dict(stack))
    for path, value in changes.items():
        section, _, name = path.rpartition(".")
        place = result.setdefault(section, {}) if section else result
        if value is None:
            place.pop(name, None)
        else:
            place[name] = value
    return result


def written(stack: str, changes: Mapping[str, Any], folder: Path) -> Path:
    """Write a stack file of the repository with other settings, by their dotted paths."""
    content = yaml.safe_load((ROOT / f"Pulumi.{stack}.yaml").read_text(encoding="utf-8"))
    content["config"] = changed(content["config"], {f"rdma-ray:{path}": value for path, value in changes.items()})
    file = folder / f"Pulumi.{stack}.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


def gke(changes: Mapping[str, Any] | None = None) -> GkeSettings:
    """The settings of the stack file `GKE` with changes."""
    settings = parse(changed(GKE, changes or {}))
    assert isinstance(settings, GkeSettings)
    return settings


def eks(changes: Mapping[str, Any] | None = None) -> EksSettings:
    """The settings of the stack file `EKS` with changes."""
    settings = parse(changed(EKS, changes or {}))
    assert isinstance(settings, EksSettings)
    return settings


def kubernetes(changes: Mapping[str, Any] | None = None) -> KubernetesSettings:
    """The settings of the stack file `KUBERNETES` with changes."""
    settings = parse(changed(KUBERNETES, changes or {}))
    assert isinstance(settings, KubernetesSettings)
    return settings


def names(path: str) -> tuple[str, ...]:
    """Every name that a setting takes on any target."""
    return tuple(dict.fromkeys(name for setting in SETTINGS[path].values() for name in setting.every_name))


def problems_of(raw: Mapping[str, Any], *, stack: str | None = None) -> tuple[Problem, ...]:
    """The problems of a stack file; none if it is valid."""
    try:
        parse(raw, stack=stack)
    except SettingsError as error:
        return error.problems
    return ()
