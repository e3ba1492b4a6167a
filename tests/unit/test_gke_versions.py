"""First version of a GKE cluster."""

from __future__ import annotations

import pytest

from infra.catalog.gcp import version_key
from infra.catalog.machines import GKE_CATALOG
from infra.gke.site import NoVersionError, control_plane_version, minimum_version
from tests.unit.stacks import gke

OFFERED = ("1.33.9-gke.1000000", "1.34.1-gke.1829001", "1.34.10-gke.1", "1.35.0-gke.5")


def test_versions_are_ordered_by_number() -> None:
    assert sorted({*OFFERED}, key=version_key) == list(OFFERED)
    assert version_key("1.34") < version_key("1.34.1-gke.1829001")


@pytest.mark.parametrize(
    ("changes", "minimum"),
    [
        ({}, "1.32.2-gke.1652000"),
        ({"nodes.capacity": "spot"}, "1.31.4-gke.1183000"),
        ({"nodes.capacity": "spot", "computeClass": True, "nodes.fallback": "flex-start"}, "1.32.2-gke.1652000"),
        ({"nodes.machine": "a4-highgpu-8g", "nodes.capacity": "spot"}, "1.32.2-gke.1475000"),
        ({"fabric": "dranet"}, "1.34"),
        ({"fabric": "managed-dranet"}, "1.34.1-gke.1829001"),
    ],
)
def test_minimum_depends_on_machine_capacity_and_fabric(changes: dict[str, object], minimum: str) -> None:
    settings = gke(changes)
    assert minimum_version(settings, GKE_CATALOG[settings.nodes.machine]) == minimum


def test_default_of_the_channel_is_used_if_new_enough() -> None:
    assert control_plane_version("1.34.10-gke.1", OFFERED, "1.34", "us-central1") is None


def test_oldest_new_enough_version_is_used_otherwise() -> None:
    found = control_plane_version("1.33.9-gke.1000000", OFFERED, "1.34.1-gke.1829001", "us-central1")
    assert found == "1.34.1-gke.1829001"


def test_missing_version_is_an_error_with_location_and_minimum() -> None:
    with pytest.raises(NoVersionError, match=r"us-central1 offers GKE up to 1\.35\.0-gke\.5.*needs 1\.36"):
        control_plane_version("1.33.9-gke.1000000", OFFERED, "1.36", "us-central1")
