"""Where and how a machine of AWS can be had now: zones of the stack's region by kinds of capacity."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

from infra.catalog.aws import is_zone_id
from infra.settings import EksSettings
from workloads.preflight.aws_cli import Aws
from workloads.preflight.cli import NoAnswerError
from workloads.preflight.eks import account_of, region_answer
from workloads.preflight.eks_place import offerings, zones_of
from workloads.preflight.eks_quotas import RESERVATIONS
from workloads.preflight.eks_reservation import MINUTE
from workloads.preflight.fields import amount, moment, number, text
from workloads.preflight.offers import NO, UNKNOWN, Offer, OfferQuestion, price

BLOCK_HOURS = 24
"""Length of the Capacity Blocks that are looked for: the shortest (EC2 API, DescribeCapacityBlockOfferings)."""
BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Machines of a Capacity Block (EC2 docs, capacity-blocks: up to 64, in powers of two; unverified, 2026-11)."""
LOW = "AWS scores a single machine type low, whatever its stock (EC2 API, GetSpotPlacementScores)."


def offers(settings: EksSettings, config: Mapping[str, Any]) -> Sequence[OfferQuestion]:
    """Return the questions about offers, one for each kind of capacity that the machine has."""
    aws, machine = account_of(settings, config), settings.machine
    if aws is None:
        return [OfferQuestion(where=settings.location, kind="any", ask=partial(_no_region, settings, config))]
    asks = {"on-demand": on_demand, "spot": spot, "reservation": reservations, "capacity-block": blocks}
    return [
        OfferQuestion(
            where=aws.region,
            kind=kind,
            ask=partial(ask, aws, settings, config),
            price=price(machine.name, kind, aws.region),
        )
        for kind, ask in asks.items()
        if kind in machine.capacities
    ]


def _no_region(settings: EksSettings, config: Mapping[str, Any]) -> Iterator[Offer]:
    answer = region_answer(settings, config)
    raise NoAnswerError("broken", answer.found, answer.fix or "set aws:region", answer.asked)
    yield  # pragma: no cover  # a generator, as the others


def on_demand(aws: Aws, settings: EksSettings, config: Mapping[str, Any]) -> Iterator[Offer]:
    """Yield the zones that offer the machine. AWS does not tell how many of them are free."""
    machine = settings.nodes.machine
    rows, asked = offerings(aws, machine, ids=is_zone_id(settings.location))
    cost = price(machine, "on-demand", aws.region)
    zones = sorted({zone for row in rows if row.get("InstanceType") == machine and (zone := text(row, "Location"))})
    for zone in zones:
        yield Offer(
            where=zone,
            kind="on-demand",
            available=UNKNOWN,
            price=cost,
            lines=lines_of(settings, config, zone, "on-demand"),
            asked=asked,
            note="The zone offers the machine; AWS does not tell how many are free.",
        )
    if not zones:
        note = f"{aws.region} does not offer the machine."
        yield Offer(where=aws.region, kind="on-demand", available=NO, price=cost, asked=asked, note=note)


def spot(aws: Aws, settings: EksSettings, config: Mapping[str, Any]) -> Iterator[Offer]:
    """Yield AWS' score of each zone for all of the stack's nodes at once, with today's spot price."""
    machine, most = settings.nodes.machine, settings.nodes.max
    asked = (
        "ec2",
        "get-spot-placement-scores",
        f"--instance-types={machine}",
        f"--target-capacity={most}",
        "--target-capacity-unit-type=units",
        "--single-availability-zone",
        f"--region-names={aws.region}",
    )
    rows, names, costs = aws.rows("SpotPlacementScores", *asked), {}, {}
    # What is printed beside a score is not worth losing it.
    with suppress(NoAnswerError):
        names = {text(row, "ZoneId"): text(row, "ZoneName") for row in zones_of(aws)}
    with suppress(NoAnswerError):
        costs = spot_prices(aws, machine)
    for row in rows:
        zone, score = text(row, "AvailabilityZoneId"), number(row, "Score")
        if zone is None or score is None or not 1 <= score <= 10:
            raise aws.unclear("the answer has a score without a zone, or out of 1 to 10", *asked)
        name = zone if is_zone_id(settings.location) else names.get(zone)
        yield Offer(
            where=name or zone,
            kind="spot",
            available=f"{score:.0f} of 10 for {most} nodes",
            score=score / 10,
            price=costs.get(names.get(zone)),
            lines=lines_of(settings, config, name, "spot") if name else (),
            asked=aws.line(*asked),
            note=LOW,
        )


def spot_prices(aws: Aws, machine: str) -> dict[str | None, float]:
    """Return today's spot prices by the name of the zone, US dollars an hour. Raises NoAnswerError."""
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    asked = (
        "ec2",
        "describe-spot-price-history",
        f"--instance-types={machine}",
        "--product-descriptions=Linux/UNIX",
        f"--start-time={now}",
    )
    # From now on, the answer has the last price of each zone (EC2 API, DescribeSpotPriceHistory, read 2026-11-28).
    found: dict[str | None, float] = {}
    for row in sorted(aws.rows("SpotPriceHistory", *asked), key=lambda row: str(row.get("Timestamp"))):
        zone, cost = text(row, "AvailabilityZone"), money(row.get("SpotPrice"))
        if zone is not None and cost is not None and row.get("InstanceType") == machine:
            found[zone] = cost
    return found


def money(value: object) -> float | None:
    """Return an amount of money, which the AWS CLI prints as a string such as 0.087000; None if it is none."""
    matches = isinstance(value, str) and re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", value, re.ASCII)
    return float(str(value)) if matches else None


def reservations(aws: Aws, settings: EksSettings, config: Mapping[str, Any]) -> Iterator[Offer]:
    """Yield the account's reservations of the machine that have free ones."""
    asked, most, cost = (
        aws.line(*RESERVATIONS),
        settings.nodes.max,
        price(settings.nodes.machine, "on-demand", aws.region),
    )
    there = False
    for row in aws.rows("CapacityReservations", *RESERVATIONS):
        zone = text(row, "AvailabilityZoneId" if is_zone_id(settings.location) else "AvailabilityZone")
        name, free = row.get("CapacityReservationId"), number(row, "AvailableInstanceCount")
        own = row.get("InstanceType") == settings.nodes.machine and row.get("State") == "active"
        named = isinstance(name, str) and re.fullmatch(r"cr-[0-9a-f]{8,17}", name, re.ASCII)
        if own and named and zone and free is not None and free >= 0:
            kind = "capacity-block" if row.get("ReservationType") == "capacity-block" else "reservation"
            there = True
            yield Offer(
                where=zone,
                kind=kind,
                available=f"{amount(min(free, most))} of {most} nodes" if free else NO,
                price=cost if kind == "reservation" else None,
                lines=lines_of(settings, config, zone, kind, str(name)),
                asked=asked,
                note="It is paid for already." if free else f"All machines of {name} are in use.",
            )
    if not there:
        note = "The account has no active reservation of the machine."
        yield Offer(where=aws.region, kind="reservation", available=NO, price=cost, asked=asked, note=note)


def blocks(aws: Aws, settings: EksSettings, config: Mapping[str, Any]) -> Iterator[Offer]:
    """Yield the Capacity Blocks on offer for all of the stack's nodes, each with its price for a node by the hour."""
    machine, most = settings.nodes.machine, settings.nodes.max
    size = next((size for size in BLOCK_SIZES if size >= most), BLOCK_SIZES[-1])
    asked = (
        "ec2",
        "describe-capacity-block-offerings",
        f"--instance-type={machine}",
        f"--instance-count={size}",
        f"--capacity-duration-hours={BLOCK_HOURS}",
    )
    rows, line = aws.rows("CapacityBlockOfferings", *asked), aws.line(*asked)
    for row in rows:
        zone, begin, end = text(row, "AvailabilityZone"), moment(row.get("StartDate")), moment(row.get("EndDate"))
        offering, fee, count = (
            row.get("CapacityBlockOfferingId"),
            money(row.get("UpfrontFee")),
            number(row, "InstanceCount"),
        )
        named = isinstance(offering, str) and re.fullmatch(r"cbo?-[0-9a-z]{8,32}", offering, re.ASCII)
        if not (zone and begin and named and count and count > 0):
            raise aws.unclear("the answer has an offering without its zone, time, size or id", *asked)
        hours = (end - begin).total_seconds() / 3600 if end and end > begin else None
        buy = aws.line(
            "ec2",
            "purchase-capacity-block",
            f"--capacity-block-offering-id={offering}",
            "--instance-platform=Linux/UNIX",
        )
        paid = f"${fee:,.2f} for {count:.0f} machines" if fee is not None and row.get("CurrencyCode") == "USD" else ""
        yield Offer(
            where=zone,
            kind="capacity-block",
            available=f"{count:.0f} nodes from {begin:{MINUTE}}",
            price=fee / count / hours if paid and fee is not None and hours else None,
            lines=(
                *lines_of(settings, config, zone, "capacity-block", "the id cr-… of the block that you buy"),
                *([f'nodes.blockEnds: "{end:{MINUTE}}"'] if end else []),
            ),
            asked=line,
            note=f"{paid or 'Its price is not told'}; to buy it: {buy}",
        )
    if not rows:
        note = f"AWS has no block of {size} machines for {BLOCK_HOURS} hours on offer."
        yield Offer(where=aws.region, kind="capacity-block", available=NO, asked=line, note=note)


def lines_of(settings: EksSettings, config: Mapping[str, Any], zone: str, kind: str, name: str = "") -> tuple[str, ...]:
    """Return the lines of the stack file that choose a zone and a kind of capacity, and a reservation by its id."""
    nodes = config.get("rdma-ray:nodes")
    written = nodes if isinstance(nodes, Mapping) else {}
    network = config.get("rdma-ray:network")
    lines = [f"location: {zone}"] if zone != settings.location else []
    if lines and isinstance(network, Mapping):
        lines += [f"correct network.{key}, for the new zone" for key in ("secondZone", "subnets") if key in network]
    if kind != settings.nodes.capacity:
        lines.append(f"nodes.capacity: {kind}")
    if name:
        lines += [f"nodes.reservation: {name}"] if name != settings.nodes.reservation else []
    elif settings.nodes.reservation is not None:
        lines.append("remove nodes.reservation")
    unused = {"blockEnds": kind != "capacity-block", "placementGroup": kind == "capacity-block"}
    lines += [f"remove nodes.{key}" for key, remove in unused.items() if remove and key in written]
    if kind == "capacity-block" and settings.nodes.min > 0:
        lines.append("nodes.min: 0")
    return tuple(lines)
