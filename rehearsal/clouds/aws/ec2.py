"""Placement groups, launch templates and capacity reservations of EC2."""

from __future__ import annotations

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.outputs import arn, computed, identify_by_name, in_use, kind, name_of, regional
from rehearsal.clouds.aws.references import to_named
from rehearsal.engine.kind import Call, Json
from rehearsal.engine.values import kept


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
        **kept(call, {"name": name_of(call.inputs)}),
    }


PLACEMENT_GROUP = kind(
    tokens.PLACEMENT_GROUP, identify_by_name, computed("ec2", "placement-group/", "name"), immutable="name"
)
LAUNCH_TEMPLATE = kind(
    tokens.LAUNCH_TEMPLATE,
    "lt",
    compute_launch_template,
    unique=("name",),
    conflict=in_use(
        "400 InvalidLaunchTemplateName.AlreadyExistsException",
        "Launch template name already in use",
        "github-aws-runners/terraform-aws-github-runner#1382, 2021-11-05",
    ),
    # hashicorp/terraform-provider-aws: internal/service/ec2/ec2_launch_template.go, CustomizeDiff, read 2026-11.
    unsettled=("latestVersion", "defaultVersion"),
    # A user makes the newest version the default in the console.
    drift=lambda live, _state: {"defaultVersion": live.get("latestVersion", 1)},
)
RESERVATION = kind(
    tokens.RESERVATION,
    "cr",
    computed("ec2", "capacity-reservation/", endDateType="unlimited"),
    references=(to_named("placementGroupArn", tokens.PLACEMENT_GROUP),),
)
