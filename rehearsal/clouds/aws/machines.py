"""Instance types and zones of EC2, as its API describes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rehearsal.clouds import facts

FACTS = Path(__file__).with_name("facts.json")


def machine(name: str) -> Mapping[str, Any] | None:
    """Return the facts of an instance type: vCPUs, processors, interfaces per network card, EFAs, zones."""
    return facts.machines(FACTS).get(name)


def zones(region: str) -> list[str]:
    """Return the zones of a region. One without facts has three, as most have."""
    return [f"{region}{letter}" for letter in facts.zones(FACTS).get(region, "abc")]


def offers(zone: str, name: str) -> bool:
    """Return whether a zone offers an instance type. Only accelerated types have zones in the facts."""
    places = (machine(name) or {}).get("zones")
    return places is None or zone[-1] in places.get(zone[:-1], "")


def zone_id(zone: str) -> str:
    """Return the id of a zone ("usw2-az2"); the mapping of names to ids differs between accounts."""
    region, letter = zone[:-1], zone[-1]
    area, direction, number = region.rsplit("-", 2)
    short = {"northeast": "ne", "northwest": "nw", "southeast": "se", "southwest": "sw"}.get(direction, direction[0])
    return f"{area.replace('-', '')}{short}{number}-az{ord(letter) - ord('a') + 1}"
