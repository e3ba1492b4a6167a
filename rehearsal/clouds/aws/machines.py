"""Placement groups, launch templates and capacity reservations: ids, computed outputs and replacement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.aws.outputs import ACCOUNT, arn, name_of, regional
from rehearsal.clouds.kind import Call, Json
from rehearsal.clouds.values import blocks, digest, kept

# ForceNew of the provider, unverified, 2026-11 (`refusals.PROVIDER_OTHERS`).
PLACEMENT_GROUP_REPLACES = frozenset({"region", "name", "strategy", "partitionCount", "spreadLevel"})
LAUNCH_TEMPLATE_REPLACES = frozenset({"region", "name", "namePrefix"})
RESERVATION_REPLACES = frozenset(
    {
        *("region", "availabilityZone", "instanceType", "instancePlatform", "ebsOptimized", "ephemeralStorage"),
        *("instanceMatchCriteria", "outpostArn", "placementGroupArn", "tenancy"),
    }
)


def identify_placement_group(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return the name."""
    return name_of(inputs)


def compute_placement_group(call: Call) -> Json:
    """Return the id and ARN."""
    return {
        **regional(call),
        "arn": arn(call, "ec2", f"placement-group/{call.id}"),
        "placementGroupId": f"pg-0{digest(call.id, 16)}",
        "name": call.id,
        **kept(call, {"partitionCount": 0, "spreadLevel": "", "strategy": "cluster"}),
    }


def compute_launch_template(call: Call) -> Json:
    """Create a version for every change; the default version moves only if the inputs request it."""
    words = {"tags", "tagsAll", "updateDefaultVersion", "defaultVersion", "name", "region"}
    latest = int(call.live.get("latestVersion") or 1)
    if call.verb == "update" and any(
        call.live.get(key) != call.now.get(key) for key in call.now.keys() - words if key in call.inputs
    ):
        latest += 1
    follows = bool(call.inputs.get("updateDefaultVersion"))
    default = latest if follows else int(call.inputs.get("defaultVersion") or call.live.get("defaultVersion") or 1)
    return {
        **regional(call),
        "arn": arn(call, "ec2", f"launch-template/{call.id}"),
        "latestVersion": latest,
        "defaultVersion": default,
        **kept(call, {"name": name_of(call.inputs), "namePrefix": ""}),
        **blocks(
            call,
            {
                "metadataOptions": {
                    "httpEndpoint": "",
                    "httpTokens": "",
                    "httpPutResponseHopLimit": 0,
                    "httpProtocolIpv6": "",
                    "instanceMetadataTags": "",
                }
            }
            if call.inputs.get("metadataOptions")
            else {},
        ),
    }


def compute_reservation(call: Call) -> Json:
    """Return the owner."""
    return {
        **regional(call),
        "arn": arn(call, "ec2", f"capacity-reservation/{call.id}"),
        "ownerId": ACCOUNT,
        **kept(call, {"endDateType": "unlimited", "instanceMatchCriteria": "open", "tenancy": "default"}),
    }
