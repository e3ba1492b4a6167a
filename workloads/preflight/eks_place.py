"""Questions about where a stack on AWS is: its zones, what EC2 offers there, and the user's network and bucket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from infra.addresses import (
    ADDRESSES_PER_CPU_NODE,
    ADDRESSES_PER_GPU_NODE,
    CONTROL_PLANE_ADDRESSES,
)
from infra.catalog.aws import WITHOUT_EKS, is_zone_id
from infra.settings import EksSettings
from workloads.preflight.answers import Asked, Cause, PreflightAnswer, PreflightCheck, refused
from workloads.preflight.aws_cli import ABSENT, Aws
from workloads.preflight.cli import NoAnswerError
from workloads.preflight.fields import flag, number, short, text

ZONES = ("ec2", "describe-availability-zones")


def place_checks(aws: Aws, settings: EksSettings) -> Iterator[PreflightCheck]:
    """Yield the questions about zones, machines, subnets and the bucket."""
    location, second = settings.location, settings.network.second_zone
    yield PreflightCheck(f"zone {location}", lambda: [zone(aws, location, control_plane=not settings.on_users_network)])
    if not settings.on_users_network:
        yield PreflightCheck(f"zone {second}", lambda: [zone(aws, second, control_plane=True, other=location)])
    for machine in dict.fromkeys((settings.nodes.machine, settings.cluster.system_machine)):
        yield _machine_check(aws, settings, machine)
    if settings.on_users_network:
        yield PreflightCheck("subnets", lambda: subnets(aws, settings))
    if settings.storage.bucket is not None:
        yield PreflightCheck(f"bucket {settings.storage.bucket}", lambda: [bucket(aws, str(settings.storage.bucket))])


def _machine_check(aws: Aws, settings: EksSettings, machine: str) -> PreflightCheck:
    name = f"machine {machine} in {settings.location}"
    return PreflightCheck(name, lambda: [offered(aws, settings, machine, name)])


def zones_of(aws: Aws) -> list[Mapping[str, Any]]:
    """Return the zones that the account has in its region. Raises NoAnswerError."""
    return aws.rows("AvailabilityZones", *ZONES)


def zone(aws: Aws, name: str, *, control_plane: bool, other: str = "") -> PreflightAnswer:
    """Judge a zone: the account has it, EC2 has it up, and EKS takes a subnet in it.

    Args:
        other: Zone that must be another one.
    """
    rows, check, said = zones_of(aws), f"zone {name}", aws.asked(*ZONES)

    def not_ok(cause: Cause, found: str, fix: str) -> PreflightAnswer:
        return said.not_ok(check, cause, found, fix)

    key, setting = "ZoneId" if is_zone_id(name) else "ZoneName", "network.secondZone" if other else "location"
    row = next((row for row in rows if row.get(key) == name), None)
    if row is None:
        # Only what this pattern accepts may be repeated in a command or a setting.
        names = [each for row in rows if (each := text(row, key))]
        listed = ", ".join(names[:8]) or "none"
        return not_ok("mismatch", f"the account does not have it; it has {listed}", f"set {setting} to one of them")
    state, number_ = text(row, "State"), text(row, "ZoneId")
    if state is None or number_ is None:
        raise aws.unclear("the answer lacks the state or the id of the zone", *ZONES)
    if state != "available":
        return not_ok("stock-out", f"its state is {state}", f"set {setting} to another zone")
    if control_plane and number_ in WITHOUT_EKS:
        return not_ok("mismatch", f"it is {number_}, where EKS rejects subnets", f"set {setting} to another zone")
    if other and other in (row.get("ZoneName"), row.get("ZoneId")):
        return not_ok("mismatch", f"it is {other}, the zone of the nodes", f"set {setting} to another zone")
    return said.ok(check, f"{text(row, 'ZoneName')} is {number_}: {state}")


def offerings(aws: Aws, *machines: str, ids: bool) -> tuple[list[Mapping[str, Any]], str]:
    """Return where EC2 has machine types, by name or id of zones, and the command. Raises NoAnswerError."""
    asked = (
        "ec2",
        "describe-instance-type-offerings",
        f"--location-type=availability-zone{'-id' if ids else ''}",
        f"--filters=Name=instance-type,Values={','.join(machines)}",
    )
    return aws.rows("InstanceTypeOfferings", *asked), aws.line(*asked)


def offered(aws: Aws, settings: EksSettings, machine: str, check: str) -> PreflightAnswer:
    """Judge whether EC2 offers a machine type in the zone. That none is free now is another matter."""
    machines = tuple(dict.fromkeys((settings.nodes.machine, settings.cluster.system_machine)))
    rows, asked = offerings(aws, *machines, ids=is_zone_id(settings.location))
    zones = sorted({str(text(row, "Location")) for row in rows if row.get("InstanceType") == machine})
    if settings.location in zones:
        return Asked(asked).ok(check, "offered; whether one is free is not told")
    has = f"offered in {', '.join(zones[:8])} only" if zones else f"not offered in {aws.region}"
    setting = "nodes.machine" if machine == settings.nodes.machine else "cluster.systemMachine"
    fix = f"set location to {zones[0]}, or {setting} to another machine" if zones else "choose a zone of another region"
    return Asked(asked).not_ok(check, "mismatch", has, fix)


def subnets(aws: Aws, settings: EksSettings) -> Iterator[PreflightAnswer]:
    """Judge the user's subnets: zone, addresses for the largest size, no public addresses. `up` checks their routes."""
    names = settings.network.subnets
    asked = ("ec2", "describe-subnets", "--subnet-ids", *names)
    try:
        rows, said = aws.rows("Subnets", *asked), aws.asked(*asked)
    except NoAnswerError as error:
        yield refused(error, ABSENT).not_ok(
            "subnets", "setup", error.reason, f"list them: {aws.line('ec2', 'describe-subnets')}"
        )
        return
    found = {text(row, "SubnetId"): row for row in rows}
    nodes = settings.nodes.max * ADDRESSES_PER_GPU_NODE + settings.cluster.system_nodes * ADDRESSES_PER_CPU_NODE
    plane = CONTROL_PLANE_ADDRESSES if settings.own_cluster else 0
    vpcs = [text(found.get(name), "VpcId") for name in names]
    for index, name in enumerate(names):
        row, check = found.get(name), f"subnet {name}"
        if row is None:
            raise aws.unclear(f"the answer does not have {name}", *asked)
        needs = plane + (0 if index else nodes)
        problem = _subnet_problem(settings, row, needs, of_nodes=index == 0)
        if problem is None and len({*vpcs}) > 1:
            problem = "mismatch", f"it is in {vpcs[index]}, the other one in {vpcs[1 - index]}", "name two of one VPC"
        if problem is None:
            free = number(row, "AvailableIpAddressCount")
            zone_, public = text(row, "AvailabilityZone"), flag(row, "MapPublicIpOnLaunch")
            if free is None or zone_ is None or public is None or vpcs[index] is None:
                raise aws.unclear(f"the answer lacks zone, VPC, addresses or kind of {name}", *asked)
            has = f"needs {needs:,} addresses; {free:,.0f} are free in {zone_}"
            yield said.ok(check, has)
        else:
            cause, has, fix = problem
            yield said.not_ok(check, cause, has, fix)


def _subnet_problem(
    settings: EksSettings, row: Mapping[str, Any], needs: int, *, of_nodes: bool
) -> tuple[Cause, str, str] | None:
    """Return cause, finding and fix of what is wrong with a subnet; None if nothing in the answer is."""
    zones, free = (
        (text(row, "AvailabilityZone"), text(row, "AvailabilityZoneId")),
        number(row, "AvailableIpAddressCount"),
    )
    if of_nodes and any(zones) and settings.location not in zones:
        return "mismatch", f"it is in {zones[0]} ({zones[1]})", f"name a subnet in {settings.location} first"
    if not of_nodes and settings.location in zones:
        return "mismatch", f"it is in {zones[0]}, as the first one", "name a second subnet in another zone"
    if free is not None and free < needs:
        fix = "name a larger subnet, or lower nodes.max or cluster.systemNodes"
        return "quota", f"needs {needs:,} addresses; {free:,.0f} are free", fix
    if of_nodes and flag(row, "MapPublicIpOnLaunch"):
        fix = f"aws ec2 modify-subnet-attribute --subnet-id={settings.network.subnets[0]} --no-map-public-ip-on-launch"
        return "mismatch", "it gives nodes a public address", fix
    return None


def bucket(aws: Aws, name: str) -> PreflightAnswer:
    """Judge whether the bucket exists, may be read, and is in the region, as FSx for Lustre requires."""
    asked, check = ("s3api", "head-bucket", f"--bucket={name}"), f"bucket {name}"
    try:
        answer = aws.ask(*asked)
    except NoAnswerError as error:
        # HEAD has no body: 404 is all that S3 says, and 400 or 301 of a bucket elsewhere (S3 API, HeadBucket).
        fix = f"create it: {aws.line('s3', 'mb', f's3://{name}')}"
        return refused(error, ABSENT).not_ok(check, "setup", "there is no such bucket", fix)
    region = text(answer, "BucketRegion")
    if region is None:
        raise aws.unclear("the answer does not tell its region: the AWS CLI may be old", *asked)
    if region != aws.region:
        fix = f"name a bucket in {aws.region}, or set location to a zone of {short(region)}"
        found = f"it is in {region}, and FSx for Lustre needs it in {aws.region}"
        return aws.asked(*asked).not_ok(check, "mismatch", found, fix)
    return aws.asked(*asked).ok(check, f"it is in {region}")
