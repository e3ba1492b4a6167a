"""Outputs of a stack, for tests without a cluster: nothing listens at the addresses."""

from __future__ import annotations

from typing import Any

from infra.catalog.pins import RAY
from infra.outputs import Outputs

TOKEN = "t0ken-that-must-stay-secret"
LOCAL: dict[str, Any] = {
    "target": "local",
    "nodes": {"min": 2, "max": 2, "gpusPerNode": 0, "cpusPerNode": 2},
    "fabric": {"transport": "socket", "nics": None, "gbpsPerNic": None, "floors": []},
    "ray": {
        "cluster": "local",
        "version": RAY,
        "dashboard": "http://127.0.0.1:1",
        "jobs": "http://127.0.0.1:1",
        "client": "ray://127.0.0.1:1",
        "token": TOKEN,
    },
}
"""As the engine prints them, nulls left out."""
GKE: dict[str, Any] = LOCAL | {
    "target": "gke",
    "location": "us-central1-b",
    "machine": "a3-ultragpu-8g",
    "nodes": {"min": 0, "max": 4, "gpusPerNode": 8, "cpusPerNode": 220},
    "fabric": {"transport": "gib", "nics": 8, "gbpsPerNic": 400, "floors": []},
    "kubeconfig": TOKEN,
    "namespace": "ray",
    "ray": LOCAL["ray"] | {"cluster": "a3u"},
    "storage": None,
    "queue": None,
}


def outputs(*, gpus: int = 0, most: int = 2, **changes: Any) -> Outputs:
    """Return the outputs of a stack of two to `most` nodes with these GPUs each."""
    nodes = {"min": 2, "max": most, "gpusPerNode": gpus, "cpusPerNode": 2}
    return Outputs.model_validate(LOCAL | {"target": "gke" if gpus else "local", "nodes": nodes} | changes)
