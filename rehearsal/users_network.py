"""Simulated network that the user has: for `network.subnetwork` on Google Cloud, and for `network.subnets` on AWS.

It has room for the stack and whatever else the stack needs of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from infra.catalog.aws import ANYWHERE, zone_region
from infra.settings import EksSettings, GkeSettings, Settings
from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.machines import zone_id
from rehearsal.clouds.gcp.references import COMPUTE, NETWORK, SUBNETWORK
from rehearsal.engine.kind import Json

VPC = "vpc-0123456789abcdef0"
_NAME = "theirs"


def objects(settings: Settings) -> Iterator[tuple[tuple[str, str], Json]]:
    """Yield what a stack file names and what that is in, as ((type, id), live)."""
    if isinstance(settings, EksSettings):
        yield from _on_aws(settings)
    if not isinstance(settings, GkeSettings) or settings.network.subnetwork is None:
        return
    path = settings.network.subnetwork
    project, region, name = settings.network.subnetwork_parts
    network = f"projects/{project}/global/networks/{_NAME}"
    ranges = {settings.network.pods_range: "10.128.0.0/14", settings.network.services_range: "10.132.0.0/20"}
    common = {"project": project, "autoCreateSubnetworks": False, "mtu": 1460, "routingMode": "GLOBAL"}
    yield (NETWORK, network), {"name": _NAME, "selfLink": f"{COMPUTE}{network}", **common}
    subnetwork = {
        "name": name,
        "project": project,
        "region": region,
        "network": f"{COMPUTE}{network}",
        "ipCidrRange": "10.132.16.0/20",
        "privateIpGoogleAccess": True,
        "secondaryIpRanges": [{"rangeName": name, "ipCidrRange": cidr} for name, cidr in ranges.items()],
        "selfLink": f"{COMPUTE}{path}",
    }
    yield (SUBNETWORK, path), subnetwork


def _on_aws(settings: EksSettings) -> Iterator[tuple[tuple[str, str], Json]]:
    """Yield a VPC with NAT: each subnet with its association, or, the second, with the main route table. A cluster of
    the user's has the first subnet."""
    if not settings.network.subnets:
        return
    vpc, table = VPC, "rtb-0123456789abcdef0"
    names = {"enableDnsSupport": True, "enableDnsHostnames": True}
    yield (tokens.VPC, vpc), {"cidrBlock": "10.200.0.0/16", "mainRouteTableId": table, **names}
    nat = {"cidrBlock": ANYWHERE, "natGatewayId": "nat-0123456789abcdef0"}
    yield (tokens.ROUTE_TABLE, table), {"vpcId": vpc, "routes": [nat]}
    zones = (settings.location, settings.network.second_zone)
    for number, (subnet, zone) in enumerate(zip(settings.network.subnets, zones, strict=False)):
        id_ = zone_id(zone) if zone_region(zone) else zone
        place = {"availabilityZone": zone, "availabilityZoneId": id_, "mapPublicIpOnLaunch": False}
        yield (tokens.SUBNET, subnet), {"vpcId": vpc, "cidrBlock": f"10.200.{128 * number}.0/17", **place}
    association = {"subnetId": settings.network.subnets[0], "routeTableId": table}
    yield (tokens.ASSOCIATION, "rtbassoc-0123456789abcdef0"), association
