"""Questions about the reservation, Capacity Block or placement group that a stack on AWS names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from infra.catalog.aws import BLOCK_DRAIN_MINUTES
from infra.settings import EksSettings
from workloads.preflight.answers import Asked, Cause, PreflightAnswer, PreflightCheck
from workloads.preflight.aws_cli import Aws
from workloads.preflight.eks_quotas import RESERVATIONS, quotas, raise_command
from workloads.preflight.fields import moment, number, text

GROUPS = ("ec2", "describe-placement-groups")
OF_NODES = {"InstancePlatform": "Linux/UNIX", "Tenancy": "default"}
"""What a reservation of EKS nodes has (EC2 API, CapacityReservation, read 2026-11-28)."""
WAITING = ("scheduled", "pending", "payment-pending", "assessing", "delayed")
"""States of a Capacity Block that is bought and has not begun (EC2 API, CapacityReservation, read 2026-11-28)."""
BUY = "rdma-ray capacity lists the blocks on offer; buy one, and set nodes.reservation and nodes.blockEnds"


def reservation_checks(aws: Aws, settings: EksSettings) -> Iterator[PreflightCheck]:
    """Yield the questions about what the stack file names."""
    name, nodes = settings.nodes.reservation, settings.nodes
    if name is not None and name.startswith("cr-"):
        yield PreflightCheck(f"reservation {name}", lambda: [reservation(aws, settings, name)])
    elif name is not None:
        yield PreflightCheck("reservation group", lambda: [reservation_group(aws, settings, name)])
    if name is not None and nodes.capacity == "capacity-block":
        yield PreflightCheck("quota of Capacity Blocks", lambda: [block_quota(aws, settings, name)])
    if nodes.placement_group is not None:
        yield PreflightCheck(f"placement group {nodes.placement_group}", lambda: [placement_group(aws, settings)])


def reservation(aws: Aws, settings: EksSettings, name: str) -> PreflightAnswer:
    """Judge whether the reservation fits the stack: machine, zone, kind, state, count, placement group and window."""
    nodes = settings.nodes
    row = _named(aws, name)
    if row is None:
        fix = BUY if nodes.capacity == "capacity-block" else "list them: " + aws.line(*RESERVATIONS)
        return _answer(aws, name, "mismatch", f"there is no {name} in {aws.region}", fix)
    machine, state = text(row, "InstanceType"), text(row, "State")
    places = [text(row, key) for key in ("AvailabilityZone", "AvailabilityZoneId")]
    # A reservation of the default kind has the type "default", or, in older answers, none.
    kind = "capacity-block" if row.get("ReservationType") == "capacity-block" else "reservation"
    free, total = number(row, "AvailableInstanceCount"), number(row, "TotalInstanceCount")
    if machine is None or state is None or total is None or free is None or not any(places):
        raise aws.unclear(f"the answer lacks the machine, the zone, the state or the count of {name}", *RESERVATIONS)
    if machine != nodes.machine:
        return _answer(aws, name, "mismatch", f"it holds {machine}", f"set nodes.machine to {machine}")
    if settings.location not in places:
        zone = next(filter(None, places))
        return _answer(aws, name, "mismatch", f"it is in {zone}", f"set location to {zone}")
    if kind != nodes.capacity:
        words = {"capacity-block": "a Capacity Block", "reservation": "an On-Demand Capacity Reservation"}
        return _answer(aws, name, "mismatch", f"it is {words[kind]}", f"set nodes.capacity to {kind}")
    for key, expected in OF_NODES.items():
        if (value := text(row, key)) != expected:
            fix = f"make one with {key} {expected}"
            return _answer(aws, name, "mismatch", f"its {key} is {value or 'not told'}", fix, unknown=value is None)
    if wrong := _wrong_group(aws, settings, name, row):
        return wrong
    return _of_block(aws, settings, name, row) if kind == "capacity-block" else _held(aws, settings, name, row)


def _held(aws: Aws, settings: EksSettings, name: str, row: Mapping[str, Any]) -> PreflightAnswer:
    """Judge what an active reservation still holds."""
    free, total, most = number(row, "AvailableInstanceCount"), number(row, "TotalInstanceCount"), settings.nodes.max
    state = text(row, "State")
    if state != "active":
        return _answer(aws, name, "mismatch", f"its state is {state}", "name an active one: " + aws.line(*RESERVATIONS))
    if free is None or total is None:
        raise aws.unclear(f"the answer does not count the machines of {name}", *RESERVATIONS)
    left = f"{free:,.0f} of its {total:,.0f} machines are free"
    if free < most:
        fix = f"set nodes.max to {free:.0f}" if free >= 1 else "free machines of it"
        if total < most:
            fix += f", or request {most}: " + aws.line(
                "ec2", "modify-capacity-reservation", f"--capacity-reservation-id={name}", f"--instance-count={most}"
            )
        # Machines in use may be of this stack.
        return _answer(aws, name, "mismatch" if total < most else "stock-out", f"needs {most}; {left}", fix)
    return aws.asked(*RESERVATIONS).ok(f"reservation {name}", f"needs {most}; {left}")


def _of_block(aws: Aws, settings: EksSettings, name: str, row: Mapping[str, Any]) -> PreflightAnswer:
    """Judge a Capacity Block: its window, and its machines, which are there from its beginning on."""
    now, nodes = datetime.now(UTC), settings.nodes
    begin, end, state = moment(row.get("StartDate")), moment(row.get("EndDate")), text(row, "State")
    if begin is None or end is None:
        raise aws.unclear(f"the answer does not tell when {name} begins and ends", *RESERVATIONS)
    if state not in (*WAITING, "active"):
        return _answer(aws, name, "mismatch", f"its state is {state}", BUY)
    last = end - timedelta(minutes=BLOCK_DRAIN_MINUTES)
    if last <= now:
        return _answer(aws, name, "mismatch", f"it ends at {end:{MINUTE}}, its nodes at {last:{MINUTE}}", BUY)
    if nodes.block_ends is not None and datetime.fromisoformat(nodes.block_ends) != end.replace(
        second=0, microsecond=0
    ):
        fix = f'set nodes.blockEnds to "{end:{MINUTE}}"'
        found = f"it ends at {end:{MINUTE}}, and nodes.blockEnds is {nodes.block_ends}"
        return _answer(aws, name, "mismatch", found, fix)
    if state != "active":
        # Its counts are 0 until then (aws-parallelcluster: capacity-block test data, read 2026-11-28).
        size = _bought(row) or number(row, "TotalInstanceCount")
        if not size:
            raise aws.unclear(f"the answer does not tell the size of {name}, which has not begun", *RESERVATIONS)
        if size < nodes.max:
            return _answer(
                aws, name, "mismatch", f"needs {nodes.max}; it has {size:.0f}", f"set nodes.max to {size:.0f}"
            )
        found = f"needs {nodes.max}; {size:.0f} machines from {begin:{MINUTE}} to {end:{MINUTE}}, when nodes can start"
        return aws.asked(*RESERVATIONS).ok(f"reservation {name}", found)
    held = _held(aws, settings, name, row)
    if held.state != "ok":
        return held
    found = f"{held.found} until {last:{MINUTE}}, {BLOCK_DRAIN_MINUTES} minutes before its end"
    return Asked(held.asked).ok(held.check, found)


MINUTE = "%Y-%m-%dT%H:%M:00Z"


def _bought(row: Mapping[str, Any]) -> float | None:
    """Return the size in the tag that EC2 gives a Capacity Block that has not begun."""
    tags = row.get("Tags")
    for tag in tags if isinstance(tags, list) else ():
        if text(tag, "Key") == "aws:ec2capacityreservation:incrementalRequestedQuantity":
            return number(tag, "Value")
    return None


def _wrong_group(aws: Aws, settings: EksSettings, name: str, row: Mapping[str, Any]) -> PreflightAnswer | None:
    """Find that the reservation was made inside another placement group than that of the nodes."""
    arn, own = text(row, "PlacementGroupArn"), settings.nodes.placement_group
    group = arn.rpartition("/")[2] if arn else None
    # A group that is named by its id cannot be compared with a name.
    if group is None or group == own or (own or "").startswith("pg-"):
        return None
    found = f"it was made in placement group {group}, and can be used from that group only"
    return _answer(aws, name, "mismatch", found, f"set nodes.placementGroup to {group}")


def reservation_group(aws: Aws, settings: EksSettings, arn: str) -> PreflightAnswer:
    """Judge the free machines of a resource group of reservations: the others would be on demand."""
    asked = ("resource-groups", "list-group-resources", f"--group={arn}")
    found = aws.rows("Resources", *asked)
    ids = {str(text(row, "Identifier", "ResourceArn")).rpartition("/")[2] for row in found}
    needs = {"InstanceType": settings.nodes.machine, "State": "active", **OF_NODES}
    free, fits = 0.0, 0
    for row in aws.rows("CapacityReservations", *RESERVATIONS):
        name, count = text(row, "CapacityReservationId"), number(row, "AvailableInstanceCount")
        zone = settings.location in (text(row, "AvailabilityZone"), text(row, "AvailabilityZoneId"))
        fit = zone and all(text(row, key) == value for key, value in needs.items())
        if name in ids and fit and count is not None and count >= 0:
            free, fits = free + count, fits + 1
    most, said = settings.nodes.max, aws.asked(*asked)
    has = f"{fits} of its {len(ids)} reservations fit, with {free:,.0f} free machines"
    if free < most:
        return said.not_ok(
            "reservation group",
            "mismatch",
            f"needs {most}; {has}: the other nodes would be on demand",
            f"add reservations of {settings.nodes.machine} in {settings.location}, or lower nodes.max",
        )
    return said.ok("reservation group", f"needs {most}; {has}")


def block_quota(aws: Aws, settings: EksSettings, name: str) -> PreflightAnswer:
    """Judge whether a block can be bought, where the one of the stack file is none: its quota is 0 by default.

    Source: EC2 docs, ec2-instance-quotas, Capacity Blocks quotas: "Concurrent P5en Capacity Blocks per account"; it has
    no row of P6, which is compared by the same name (read 2026-11-28).
    """
    check, row = "quota of Capacity Blocks", _named(aws, name)
    if row is not None and text(row, "State") in (*WAITING, "active"):
        return aws.asked(*RESERVATIONS).ok(check, f"{name} is bought")
    family, asked = settings.nodes.machine.partition(".")[0], quotas("ec2")
    pattern = re.compile(rf"Concurrent {re.escape(family)}( instance)? Capacity Blocks per account", re.IGNORECASE)
    for quota in aws.rows("Quotas", *asked):
        limit, code = number(quota, "Value"), quota.get("QuotaCode")
        if limit is not None and limit >= 0 and pattern.fullmatch(text(quota, "QuotaName") or ""):
            valid = isinstance(code, str) and re.fullmatch(r"L-[0-9A-F]{8}", code, re.ASCII)
            request = raise_command(aws, "ec2", str(code), 1) if valid else "request one in the Service Quotas console"
            found = f"needs 1; {family} blocks at a time: {limit:.0f}"
            said = aws.asked(*asked)
            return said.ok(check, found) if limit >= 1 else said.not_ok(check, "quota", found, request)
    page = "look for Capacity Blocks in https://console.aws.amazon.com/servicequotas/home/services/ec2/quotas"
    found = f"the answer has no quota of {family} blocks"
    return aws.asked(*asked).unknown(check, found, page)


def placement_group(aws: Aws, settings: EksSettings) -> PreflightAnswer:
    """Judge whether the placement group exists and keeps machines close together."""
    named = str(settings.nodes.placement_group)
    check, said = f"placement group {named}", aws.asked(*GROUPS)
    for row in aws.rows("PlacementGroups", *GROUPS):
        if named not in (row.get("GroupName"), row.get("GroupId")):
            continue
        strategy, state = text(row, "Strategy"), text(row, "State")
        if strategy is None or state is None:
            raise aws.unclear("the answer has neither strategy nor state of it", *GROUPS)
        if (strategy, state) == ("cluster", "available"):
            return said.ok(check, "its strategy is cluster")
        found = f"its strategy is {strategy}, its state {state}"
        fix = "name one with strategy cluster, or remove nodes.placementGroup"
        return said.not_ok(check, "mismatch", found, fix)
    if named.startswith("pg-"):
        found, fix = "it may be another account's, which this does not list", "ask its account"
        return said.unknown(check, found, fix)
    fix = aws.line("ec2", "create-placement-group", f"--group-name={named}", "--strategy=cluster")
    found = f"there is none in {aws.region}"
    return said.not_ok(check, "setup", found, fix)


def _named(aws: Aws, name: str) -> Mapping[str, Any] | None:
    rows = aws.rows("CapacityReservations", *RESERVATIONS)
    return next((row for row in rows if row.get("CapacityReservationId") == name), None)


def _answer(aws: Aws, name: str, cause: Cause, found: str, fix: str, *, unknown: bool = False) -> PreflightAnswer:
    check, said = f"reservation {name}", aws.asked(*RESERVATIONS)
    return said.unknown(check, found, fix) if unknown else said.not_ok(check, cause, found, fix)
