"""List prices in US dollars, each with its region, date and public source. A price without a source is unknown.

The figures are in prices.yaml. They are an upper limit for whoever has a contract. Spot prices change.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from infra.catalog.aws import region_of, zone_region

OLD_DAYS = 90
"""Age from which a price says how old it is (our choice)."""
SAME = {"flex-start-queued": "flex-start"}
"""Kinds of capacity with the price of another: both are flex-start (GKE docs provisioningrequest, 2026-04-08)."""
EVERYWHERE = "every region"

Row = Mapping[str, Mapping[str, float]]
"""Source -> region -> price."""


@dataclass(frozen=True, kw_only=True)
class Price:
    """A price per hour, US dollars.

    Args:
        dollars: None if it is unknown, and `note` says why.
        at_most: Whether it is an upper limit, and `note` says of what.
    """

    dollars: float | None = None
    at_most: bool = False
    date: str = ""
    source: str = ""
    note: str = ""

    def age_days(self, today: datetime.date) -> int:
        """Return its age; 0 without a date."""
        return (today - datetime.date.fromisoformat(self.date)).days if self.date else 0


def price_of(machine: str, kind: str, region: str) -> Price:
    """Return the list price of a machine with its GPUs and local disks.

    Args:
        kind: A kind of capacity (`infra.catalog.capacity`).
        region: A region of the machine's cloud.
    """
    kinds: Mapping[str, Row] = _table()["machines"].get(machine, {})
    kind = SAME.get(kind, kind)
    if found := _in_region(kinds.get(kind, {}), region):
        return replace(found, note=_table()["notes"].get(kind, ""))
    on_demand = _in_region(kinds.get("on-demand", {}), region)
    if on_demand and (why := _table()["at most on-demand"].get(kind)):
        return replace(on_demand, at_most=True, note=why)
    known = sorted(each for regions in kinds.get(kind, {}).values() for each in regions)
    why = f"; known in {', '.join(known)}" if known else ""
    return Price(note=f"no dated price of {machine} by {kind} in {region or 'this region'} is known here{why}")


def price_of_item(item: str, region: str) -> Price:
    """Return the price of something other than a machine, per hour and unit, by its name in prices.yaml."""
    return _in_region(_table()["items"][item], region) or Price(note=f"no dated price in {region or 'this region'}")


def region_of_zone(target: str, zone: str) -> str:
    """Return the region of a zone by name or, on AWS, by id; empty for an id of a region without a price."""
    if target == "gke":
        return zone.rpartition("-")[0]
    if (region := zone_region(zone)) is not None:
        return region
    rows: list[Row] = [row for kinds in _table()["machines"].values() for row in kinds.values()]
    regions = {each for row in rows for prices in row.values() for each in prices if each.count("-") >= 2}
    return next((each for each in sorted(regions) if region_of(zone, each) == each), "")


def _in_region(row: Row, region: str) -> Price | None:
    for name, prices in row.items():
        if (dollars := prices.get(region, prices.get(EVERYWHERE))) is not None:
            source = _table()["sources"][name]
            return Price(dollars=dollars, date=str(source["date"]), source=source["text"])
    return None


@cache
def _table() -> Mapping[str, Any]:
    table: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_name("prices.yaml").read_text(encoding="utf-8"))
    return table
