"""Offerings of Google Cloud: GKE versions, machine types by zone, RDMA network profiles, quotas."""

from __future__ import annotations

import re
from collections.abc import Mapping

from infra.catalog.machines import GKE_CATALOG
from rehearsal.clouds.gcp.references import is_zone
from rehearsal.clouds.gcp.tokens import CLUSTER
from rehearsal.clouds.state import View

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

MACHINE_ZONES: Mapping[str, frozenset[str]] = {
    "a3-ultragpu-8g": frozenset(
        [
            "asia-south1-b",
            "asia-south2-c",
            "europe-west1-b",
            "europe-west4-a",
            "us-central1-b",
            "us-east4-b",
            "us-east5-a",
            "us-south1-b",
            "us-west1-c",
        ]
    ),
    # us-west8-c is not in the catalog; the DRANET documentation used it.
    "a4-highgpu-8g": frozenset(
        [
            "asia-northeast1-b",
            "asia-southeast1-b",
            "europe-north1-b",
            "europe-west4-b",
            "us-central1-b",
            "us-east1-b",
            "us-east4-b",
            "us-south1-b",
            "us-west2-c",
            "us-west3-b",
            "us-west3-c",
            "us-west8-c",
        ]
    ),
}
"""skypilot-org/skypilot-catalog: catalogs/v8/gcp/vms.csv, 006059e0, read 2026-11; kubernetes-sigs/dranet: gke-rdma.md,
f258477, 2026-08-21. Other GPU machines (A4X, the other A3) are not simulated, so no zone has them."""
ZONES_SOURCE = "skypilot-org/skypilot-catalog: catalogs/v8/gcp/vms.csv, 006059e0, read 2026-11"

EVERYWHERE = re.compile(r"(e2|n1|n2|n2d|n4|c2|c3|c3d|c4|c4d|t2d)-(standard|highmem|highcpu|medium|small|micro)(-\d+)?")
"""CPU machine types are in every zone: a simplification of the simulation, 2026-11."""

LETTERS: Mapping[str, str] = {"us-central1": "abcf", "us-east1": "bcd", "europe-west1": "bcd"}
"""Zones of regions whose zones are not a, b and c (Compute Engine docs, regions-zones; unverified, 2026-11)."""

QUOTAS: Mapping[str, int] = {
    "NETWORKS": 15,
    "NVIDIA_H200_GPUS": 128,
    "NVIDIA_B200_GPUS": 128,
    "PREEMPTIBLE_NVIDIA_H200_GPUS": 128,
    "PREEMPTIBLE_NVIDIA_B200_GPUS": 128,
}
"""Default limits; the rehearsal's setting "quota" overrides them. Networks: Google Cloud VPC docs, quotas (unverified,
2026-11). GPUs: chosen by the simulation, since a new project has none; the names follow the pattern in the GKE docs
provisioningrequest, 2026-04-08."""


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
    if not asked or asked == "-":
        return channels(state).get(channel or "REGULAR", channels(state)["REGULAR"])
    if asked == "latest":
        return versions(state)[0]
    for version in versions(state):
        if version == asked or version.startswith((f"{asked}.", f"{asked}-")):
            return version
    # A cluster may keep its initial version after it is no longer offered.
    return asked if any(live.get("masterVersion") == asked for _, _, live in state.all(CLUSTER)) else None


def zones(region: str) -> list[str]:
    """Return the zones of a region."""
    return [f"{region}-{letter}" for letter in LETTERS.get(region, "abc")]


def has_machine(zone: str, machine: str) -> bool:
    """Return whether a zone has a machine type."""
    if machine in MACHINE_ZONES:
        return zone in MACHINE_ZONES[machine]
    return is_zone(zone) and EVERYWHERE.fullmatch(machine) is not None


def has_profile(zone: str) -> bool:
    """Return whether a zone has an RDMA network profile: it has a machine that needs one (inferred, 2026-11)."""
    return any(zone in there for there in MACHINE_ZONES.values())


def quota(state: View, metric: str) -> int:
    """Return the limit of a quota metric in this project and region."""
    ordered: Mapping[str, int] = state.setting("quota", {})
    return int(ordered.get(metric, QUOTAS[metric]))


def gpu_metric(machine: str, preemptible: bool) -> str | None:
    """Return the quota metric of a machine type's GPUs; None for a machine without."""
    row = GKE_CATALOG.get(machine)
    metric = f"{'PREEMPTIBLE_' if preemptible else ''}NVIDIA_{row.gpu}_GPUS" if row else None
    return metric if metric in QUOTAS else None


def _later(state: View) -> bool:
    return any(live.get("masterVersion") == LATER for _, _, live in state.all(CLUSTER))
