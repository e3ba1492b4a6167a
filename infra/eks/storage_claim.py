"""The claim on the shared folder's volume, as plain Kubernetes JSON. The volume itself is `storage`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pulumi

NAME = "shared"


def claim(volume: pulumi.Input[str], size_gib: int) -> Mapping[str, Any]:
    """A claim on the volume of this name and size (GiB), for the namespace of whoever uses it."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": NAME},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            # Empty, as on the volume: a claim without the field gets the default class, and never binds.
            "storageClassName": "",
            "volumeName": volume,
            "resources": {"requests": {"storage": f"{size_gib}Gi"}},
        },
    }
