"""Pod templates of an object, at any path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rehearsal.clouds.kind import Json, value_at
from rehearsal.clouds.kubernetes.identity import api

_TEMPLATES = {
    "DaemonSet": ("spec.template",),
    "Deployment": ("spec.template",),
    "StatefulSet": ("spec.template",),
    "ReplicaSet": ("spec.template",),
    "Job": ("spec.template",),
    "CronJob": ("spec.jobTemplate.spec.template",),
    "RayCluster": ("spec.headGroupSpec.template", "spec.workerGroupSpecs"),
    "RayJob": (
        "spec.rayClusterSpec.headGroupSpec.template",
        "spec.rayClusterSpec.workerGroupSpecs",
        "spec.submitterPodTemplate",
    ),
}


@dataclass(frozen=True)
class Template:
    """Pod template and its path ("spec.workerGroupSpecs[0].template")."""

    path: str
    metadata: Json
    spec: Json

    def containers(self) -> Iterator[tuple[str, Json]]:
        """The containers as (path, container); init containers first."""
        for sort in ("initContainers", "containers"):
            for index, container in enumerate(self.spec.get(sort) or ()):
                yield self.at(f"{sort}[{index}]"), container

    def at(self, path: str) -> str:
        """Return a path below the pod's spec, from the object's root."""
        return f"{self.path}.spec.{path}".removeprefix(".")


def templates(type_: str, inputs: Json) -> list[Template]:
    """Return the pod templates of an object; a Pod is its own."""
    kind = api(type_).kind
    if kind == "Pod" and not api(type_).group:
        # The path of a Pod's own fields starts at its root.
        return [Template("", inputs.get("metadata") or {}, inputs.get("spec") or {})]
    found: list[Template] = []
    for path in _TEMPLATES.get(kind, ()):
        value = value_at(inputs, path)
        groups: list[tuple[str, Any]] = [(path, value)]
        if isinstance(value, list):
            groups = [(f"{path}[{index}].template", value_at(group, "template")) for index, group in enumerate(value)]
        for where, template in groups:
            if isinstance(template, dict):
                found.append(Template(where, template.get("metadata") or {}, template.get("spec") or {}))
    return found
