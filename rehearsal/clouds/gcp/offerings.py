"""What this cloud has on offer: GKE versions, machine types by zone, RDMA network profiles, quotas."""

from __future__ import annotations

import re
from collections.abc import Mapping

from infra.catalog.machines import GKE_CATALOG
from rehearsal.clouds.gcp.references import is_zone
from rehearsal.clouds.gcp.tokens import CLUSTER
from rehearsal.clouds.state import View

# Versions: the simulation's own choice, 2026-11. They look like those of that month; no source lists them.
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
"""What clusters are upgraded to after a while; offered, and every channel's default, once one of them runs it."""

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
    # us-west8-c is not in the catalog; the DRANET documentation ran there.
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
f258477, 2026-08-21. GPU machines that do not stand here (A4X, the other A3) are not simulated, so no zone has them."""
ZONES_SOURCE = "skypilot-org/skypilot-catalog: catalogs/v8/gcp/vms.csv, 006059e0, read 2026-11"

EVERYWHERE = re.compile(r"(e2|n1|n2|n2d|n4|c2|c3|c3d|c4|c4d|t2d)-(standard|highmem|highcpu|medium|small|micro)(-\d+)?")
"""CPU machine types are in every zone here: a simplification (the simulation's own choice, 2026-11)."""

LETTERS: Mapping[str, str] = {"us-central1": "abcf", "us-east1": "bcd", "europe-west1": "bcd"}
"""The zones of regions whose zones are not a, b and c (Compute Engine docs, regions-zones; unverified, 2026-11)."""

QUOTAS: Mapping[str, int] = {
    "NETWORKS": 15,
    "NVIDIA_H200_GPUS": 128,
    "NVIDIA_B200_GPUS": 128,
    "PREEMPTIBLE_NVIDIA_H200_GPUS": 128,
    "PREEMPTIBLE_NVIDIA_B200_GPUS": 128,
}
"""Limits unless the rehearsal's setting "quota" says otherwise. Networks: Google Cloud VPC docs, quotas (unverified,
2026-11). GPUs: the simulation's own choice, since a new project has none; the names follow the pattern in the GKE docs
provisioningrequest, 2026-04-08."""


def key(version: str) -> tuple[int, ...]:
    """A GKE version in an order; what a short one leaves out counts as 0."""
    return (*(int(number) for number in re.findall(r"\d+", version)), 0, 0, 0, 0)[:4]


def versions(state: View) -> tuple[str, ...]:
    """The versions on offer now, newest first."""
    return (LATER, *VERSIONS) if _later(state) else VERSIONS


def channels(state: View) -> dict[str, str]:
    """Each release channel's default version now."""
    return dict.fromkeys(CHANNELS, LATER) if _later(state) else dict(CHANNELS)


def resolve(asked: str | None, channel: str | None, state: View) -> str | None:
    """The version that a request gets: "1.35" means the newest of it, nothing the channel's default; None if none."""
    if not asked or asked == "-":
        return channels(state).get(channel or "REGULAR", channels(state)["REGULAR"])
    if asked == "latest":
        return versions(state)[0]
    for version in versions(state):
        if version == asked or version.startswith((f"{asked}.", f"{asked}-")):
            return version
    # A cluster may keep naming what it was made with, though it is no longer on offer.
    return asked if any(live.get("masterVersion") == asked for _, _, live in state.all(CLUSTER)) else None


def zones(region: str) -> list[str]:
    """The zones of a region."""
    return [f"{region}-{letter}" for letter in LETTERS.get(region, "abc")]


def has_machine(zone: str, machine: str) -> bool:
    """Whether a zone has a machine type."""
    if machine in MACHINE_ZONES:
        return zone in MACHINE_ZONES[machine]
    return is_zone(zone) and EVERYWHERE.fullmatch(machine) is not None


def has_profile(zone: str) -> bool:
    """Whether a zone has an RDMA network profile: where a machine is that needs one (inferred, 2026-11)."""
    return any(zone in there for there in MACHINE_ZONES.values())


def quota(state: View, metric: str) -> int:
    """The limit of a quota metric in this project and region."""
    ordered: Mapping[str, int] = state.setting("quota", {})
    return int(ordered.get(metric, QUOTAS[metric]))


def gpu_metric(machine: str, preemptible: bool) -> str | None:
    """The quota metric that counts the GPUs of a machine type; None for a machine without."""
    row = GKE_CATALOG.get(machine)
    metric = f"{'PREEMPTIBLE_' if preemptible else ''}NVIDIA_{row.gpu}_GPUS" if row else None
    return metric if metric in QUOTAS else None


def _later(state: View) -> bool:
    return any(live.get("masterVersion") == LATER for _, _, live in state.all(CLUSTER))
