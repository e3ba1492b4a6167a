"""Which GKE version the cluster starts with: the channel's own choice, as long as machine and fabric work on it.

Pure. `preflight` asks Google Cloud which versions there are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from infra.catalog.machines import GkeMachine
from infra.settings import GkeSettings as Settings

CHANNEL = "REGULAR"
"""Flex-start pools accept auto-repair off on it (cluster-toolkit: dws-flex-start, 10470803, 2026-06-25)."""


class NoVersionError(ValueError):
    """The location offers no version that the machine works on."""


def version_key(version: str) -> tuple[int, ...]:
    """A GKE version ("1.34.1-gke.1829001", or only "1.34") in an order; missing parts count as 0."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version))
    return (*numbers, 0, 0, 0, 0)[:4]


def minimum_version(settings: Settings, machine: GkeMachine) -> str:
    """The least version for this machine, however it is obtained, under this fabric."""
    capacities = {settings.nodes.capacity, settings.nodes.fallback}
    features = {"nodes", str(settings.fabric)}
    if capacities & {"flex-start", "flex-start-queued"}:
        features.add("flex-start")
    return max((machine.min_versions[name] for name in features & machine.min_versions.keys()), key=version_key)


def control_plane_version(default: str, offered: Sequence[str], minimum: str, location: str) -> str | None:
    """None if the channel's default version is new enough, which GKE then takes; else the oldest offered one that is.

    The default is not written down: a cluster made anew after a year would ask for a version that is no longer offered.
    Raises `NoVersionError`.
    """
    if version_key(default) >= version_key(minimum):
        return None
    enough = [version for version in offered if version_key(version) >= version_key(minimum)]
    if not enough:
        raise NoVersionError(
            f"location: {location} offers GKE up to {max(offered, key=version_key, default='nothing')}, and the "
            f"machine needs {minimum} or later; its nodes would never join. Choose another zone"
        )
    return min(enough, key=version_key)
