"""Availability zones of AWS by their names and ids: the region and the partition they belong to, and a second one.

Pure. A zone's name (us-east-1a) means another place in every account, its id (use1-az1) the same one everywhere; which
of them an account sees, only the cloud knows.
"""

from __future__ import annotations

import re

PARTITIONS = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}
"""Regions outside the partition aws, by their beginning (IAM docs, ARNs; from memory, 2026-11)."""

WITHOUT_EKS = frozenset({"use1-az3", "usw1-az2", "cac1-az3"})
"""Zones whose ids EKS takes no subnets of (EKS docs network-reqs; from memory, 2026-11)."""


def is_zone_id(zone: str) -> bool:
    """Whether the zone is written as an id, the same place in every account, and not as a name."""
    return re.search(r"-az\d+$", zone) is not None


def zone_region(zone: str) -> str | None:
    """The region of a zone's name, also of a local zone's; None for an id, which abbreviates it."""
    found = re.match(r"([a-z]{2}(?:-[a-z]+)+-\d+)(?:-[a-z]{3}-\d)?[a-z]$", zone)
    return found[1] if found else None


def partition(region: str) -> str:
    """The partition of ARNs in a region."""
    return next((name for start, name in PARTITIONS.items() if region.startswith(start)), "aws")


def second_zone(location: str | None) -> str | None:
    """A zone of the same region, written like `location`: the first of the region, or the one after it.

    A guess from names alone, so that a preview asks no cloud. Where an account has no such zone, AWS refuses the subnet
    within the first minute and lists those that there are; `network.secondZone` then names one. None without a zone.
    """
    if location is None:
        return None
    if is_zone_id(location):
        region, _, number = location.rpartition("-az")
        others = (f"{region}-az{other}" for other in (1, 2, 4, 3, 5, 6) if other != int(number))
        return next(zone for zone in others if zone not in WITHOUT_EKS)
    region_name = zone_region(location)
    if region_name is None:
        return None
    return f"{region_name}{'b' if location == f'{region_name}a' else 'a'}"
