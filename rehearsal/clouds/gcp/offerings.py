"""Offerings of Google Cloud: GKE versions, machine types by zone, quotas."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from rehearsal.clouds.facts import machines
from rehearsal.clouds.gcp.references import CLUSTER, region_of_location
from rehearsal.engine.state import View

FACTS = Path(__file__).with_name("facts.json")
MACHINES = machines(FACTS)
_SERIES = {name.rpartition("-")[0] for name in MACHINES}

# Versions: chosen by the simulation, 2026-11, in the format of that month; no source lists them.
VERSIONS = (
    "1.35.3-gke.1389000",
    "1.35.2-gke.1485000",
    "1.34.4-gke.1193000",
    "1.34.3-gke.1318000",
    "1.33.8-gke.1112000",
    "1.32.11-gke.1076000",
)
"""Newest first."""
CHANNELS: Mapping[str, str] = {
    "RAPID": "1.35.3-gke.1389000",
    "REGULAR": "1.35.2-gke.1485000",
    "STABLE": "1.34.4-gke.1193000",
    "EXTENDED": "1.32.11-gke.1076000",
}
LATER = "1.35.5-gke.1206000"
"""Later version of clusters; once a cluster runs it, it is offered and every channel's default."""

LETTERS: Mapping[str, str] = {"us-central1": "abcf", "us-east1": "bcd", "europe-west1": "bcd"}
"""Zones of regions whose zones are not a, b and c (Compute Engine docs, regions-zones; unverified, 2026-11)."""

GPU_QUOTA = 128
"""Limit of GPUs in a region, chosen by the simulation: a new project has none."""


def key(version: str) -> tuple[int, ...]:
    """Return the sort key of a GKE version; missing parts count as 0."""
    return (*(int(number) for number in re.findall(r"\d+", version)), 0, 0, 0, 0)[:4]


def versions(state: View) -> tuple[str, ...]:
    """Return the offered versions, newest first."""
    return (LATER, *VERSIONS) if _later(state) else VERSIONS


def channels(state: View) -> dict[str, str]:
    """Return each release channel's default version."""
    return dict.fromkeys(CHANNELS, LATER) if _later(state) else dict(CHANNELS)


def resolve(asked: str | None, channel: str | None, state: View) -> str | None:
    """Return the version for a request: "1.35" is its newest patch, "" the channel's default; None if there is none."""
    if not asked:
        return channels(state).get(channel or "REGULAR", channels(state)["REGULAR"])
    for version in versions(state):
        if version == asked or version.startswith((f"{asked}.", f"{asked}-")):
            return version
    # A cluster may keep its initial version after it is no longer offered.
    return asked if any(live.get("masterVersion") == asked for _, _, live in state.all(CLUSTER)) else None


def zones(region: str) -> list[str]:
    """Return the zones of a region."""
    return [f"{region}-{letter}" for letter in LETTERS.get(region, "abc")]


def has_machine(zone: str, machine: str) -> bool:
    """Return whether a zone has a machine type.

    The facts know the zones of machines with RDMA NICs only; other types are in every zone, and types of series that
    the facts do not list exist.
    """
    known = MACHINES.get(machine)
    if known is None:
        return machine.rpartition("-")[0] not in _SERIES
    region = region_of_location(zone)
    return "zones" not in known or zone.removeprefix(f"{region}-") in known["zones"].get(region, "")


def gpu_metric(machine: str, *, preemptible: bool) -> str | None:
    """Return the quota metric of a machine type's GPUs (GKE docs provisioningrequest, 2026-04-08), or None."""
    gpu = MACHINES.get(machine, {}).get("gpu")
    return f"{'PREEMPTIBLE_' if preemptible else ''}NVIDIA_{gpu}_GPUS" if gpu else None


def _later(state: View) -> bool:
    return any(live.get("masterVersion") == LATER for _, _, live in state.all(CLUSTER))
