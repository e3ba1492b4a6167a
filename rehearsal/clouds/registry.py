"""The simulated clouds by provider package; a cloud is imported when it is asked for."""

from __future__ import annotations

import importlib

from rehearsal.clouds.kind import Cloud
from rehearsal.clouds.values import merged
from rehearsal.clouds.world import View

PACKAGES = ("aws", "gcp", "kubernetes", "random")


def cloud(package: str) -> Cloud:
    """The simulated cloud behind a provider package."""
    found: Cloud = importlib.import_module(f"rehearsal.clouds.{package}.cloud").CLOUD
    return found


def drift(world: View) -> int:
    """Let every cloud change what it changes by itself after a while; returns how many objects it touched."""
    touched = 0
    for type_, id_, live in list(world.all()):
        kind = cloud(type_.partition(":")[0]).kind(type_)
        changes = kind.drift(live, world) if kind else {}
        if changes:
            world.put(type_, id_, merged(live, changes))
            touched += 1
    return touched
