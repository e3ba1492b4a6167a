"""The file of `ray.podFile`: init containers, sidecars and volumes that Ray's pods have besides the stack's own."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from infra.project import PROJECT
from infra.settings.problems import Finding, Findings

LARGEST = 2**18
"""Bytes of the file; etcd takes objects of 1.5 MiB."""
KEYS = ("initContainers", "volumes", "volumeMounts")
SIDECARS = "Kubernetes docs, concepts/workloads/pods/sidecar-containers, stable since 1.33, read 2026-11-27"
TAKEN = re.compile(
    r"ray-.*|shared|shm|scripts|kubernetes-api|serve-token|nvidia|gib|user-\d+|prepare-shared-folder|start-once|node-place|wait-gcs-ready|autoscaler"
)
"""Names of the containers and volumes of the stack and of KubeRay."""


@dataclass(frozen=True)
class PodFile:
    """Parts of a pod's spec: its volumes, init containers, and volume mounts of Ray's container."""

    containers: list[dict[str, Any]] = field(default_factory=list)
    volumes: list[dict[str, Any]] = field(default_factory=list)
    mounts: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, path: str | None) -> PodFile:
        """Read a file of this project; None is an empty one. Raises ValueError with a sentence about its fault."""
        if path is None:
            return cls()
        file = (PROJECT / path).resolve()
        if not file.is_relative_to(PROJECT):
            raise ValueError("The file is outside of this project.")
        try:
            if file.stat().st_size > LARGEST:
                raise ValueError(f"The file is larger than {LARGEST >> 10} KiB.")
            body = yaml.safe_load(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise ValueError(f"The file cannot be read: {error.strerror}.") from None
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
            raise ValueError("The file is not YAML.") from None
        if not isinstance(body, dict) or not body or not {*body} <= {*KEYS}:
            raise ValueError(f"The file is not a map of {', '.join(KEYS)}.")
        for key, entries in body.items():
            named = isinstance(entries, list) and all(
                isinstance(each, dict) and isinstance(each.get("name"), str) for each in entries
            )
            if not named:
                raise ValueError(f"{key} is not a list of maps with a name.")
        return cls(*(body.get(key, []) for key in KEYS))


def pod_file_problems(path: str | None) -> Findings:
    """Find that Ray's pods cannot have what the file says."""
    try:
        parts = PodFile.read(path)
    except ValueError as error:
        yield Finding(str(error), f"write a YAML file of this project with {', '.join(KEYS)}, as in a pod's spec")
        return
    for kind, entries in (("container", parts.containers), ("volume", parts.volumes)):
        names = [each["name"] for each in entries]
        for name in names:
            if TAKEN.fullmatch(name) or names.count(name) > 1:
                yield Finding(f"The pods already have a {kind} {name}.", f"give the {kind} another name")
    for container in parts.containers:
        if container.get("restartPolicy") == "Always" and container.get("resources"):
            name = container["name"]
            yield Finding(
                f"Sidecar {name} requests resources, but a worker takes its whole node, so no node has room for both.",
                f"remove resources from {name}",
                SIDECARS,
            )
