"""Zones of AWS by name and id: region, and the second zone of the same region."""

from __future__ import annotations

import pytest
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

from infra.catalog.aws import WITHOUT_EKS, is_local_zone, is_zone_id, region_of, second_zone, zone_region


@pytest.mark.parametrize(
    ("zone", "region"),
    [("us-east-1a", "us-east-1"), ("ap-southeast-2b", "ap-southeast-2"), ("us-west-2-lax-1a", "us-west-2")],
)
def test_zone_region_of_name(zone: str, region: str) -> None:
    assert not is_zone_id(zone)
    assert zone_region(zone) == region


def test_zones_are_in_their_region_and_in_no_other() -> None:
    """All zones that moto has of AWS, by name and id."""
    regions = RegionsAndZonesBackend.zones
    for region, zones in regions.items():
        for name in (name for zone in zones for name in (zone.name, zone.zone_id)):
            assert not is_local_zone(name)
            assert [each for each in regions if region_of(name, each) == each] == [region], name


@pytest.mark.parametrize("zone", ["us-east-1-dfw-2a", "us-west-2-lax-1b", "use1-dfw2-az1", "usw2-lax1-az2"])
def test_local_zones_are_told_apart(zone: str) -> None:
    assert is_local_zone(zone)
    assert region_of(zone, "eu-west-1") != "eu-west-1"


def test_zone_region_of_id_is_none() -> None:
    assert is_zone_id("use1-az1")
    assert zone_region("use1-az1") is None


@pytest.mark.parametrize("location", [f"us-east-1{letter}" for letter in "abcdef"] + ["us-west-2-lax-1a"])
def test_second_zone_by_name_is_another_of_the_region(location: str) -> None:
    second = second_zone(location)
    assert second != location
    assert zone_region(second) == zone_region(location)


@pytest.mark.parametrize("location", [f"use1-az{number}" for number in range(1, 7)])
def test_second_zone_by_id_supports_eks(location: str) -> None:
    second = second_zone(location)
    assert second != location
    assert second.startswith("use1-az")
    assert second not in WITHOUT_EKS


def test_what_is_not_a_zone_has_no_second_zone() -> None:
    assert second_zone("us-east-1") == "us-east-1"
