"""The simulated clouds by provider package, imported on demand."""

from __future__ import annotations

import importlib

from rehearsal.engine.kind import Cloud
from rehearsal.engine.state import View
from rehearsal.engine.values import merged

PACKAGES = ("aws", "gcp", "kubernetes", "random")


def cloud(package: str) -> Cloud:
    """Return the simulated cloud of a provider package."""
    found: Cloud = importlib.import_module(f"rehearsal.clouds.{package}.cloud").CLOUD
    return found


def drift(state: View) -> int:
    """Apply the drift of every cloud; return how many objects changed."""
    touched = 0
    for type_, id_, live in list(state.all()):
        kind = cloud(type_.partition(":")[0]).kind(type_)
        changes = kind.drift(live, state) if kind else {}
        if changes:
            state.put(type_, id_, merged(live, changes))
            touched += 1
    return touched
