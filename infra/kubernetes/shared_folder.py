"""A folder that every Ray pod sees under the same path, as the cloud mounts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class SharedFolder:
    """mount_path: where pods see it; annotations: what pods must carry; volume: the volume without its name.

    objects: manifests that must exist in the pods' namespace, such as a claim. prepare: a command that the head runs as
    root before it starts, None where the folder is ready as it is mounted.
    """

    mount_path: str
    annotations: Mapping[str, str]
    volume: Mapping[str, Any]
    objects: Sequence[Mapping[str, Any]] = ()
    prepare: Sequence[str] | None = None


def preparation(folder: SharedFolder, image: str) -> dict[str, Any]:
    """The pod spec's part that gets the folder ready: an init container, or nothing.

    One pod alone needs it, the one that is there before the others: the head.
    """
    if folder.prepare is None:
        return {}
    container = {
        "name": "prepare-shared-folder",
        "image": image,
        "command": list(folder.prepare),
        # The folder's root belongs to root; the pod's other containers stay who they are.
        "securityContext": {"runAsUser": 0},
        "volumeMounts": [{"name": "shared", "mountPath": folder.mount_path}],
    }
    return {"initContainers": [container]}
