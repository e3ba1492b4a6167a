"""Tags and scheduled actions of Auto Scaling groups."""

from __future__ import annotations

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.outputs import arn, in_region, joined, kind, region_of
from rehearsal.clouds.aws.references import SCALING_GROUP
from rehearsal.engine.kind import Call, Json, Reference, value_at
from rehearsal.engine.values import digest, kept

OF_GROUP = Reference(path="autoscalingGroupName", types=(tokens.NODE_GROUP,), by=SCALING_GROUP, holds=False)


def compute_schedule(call: Call) -> Json:
    """Return the ARN and the next run. AWS computes it from the recurrence; here it is a fixed day."""
    group, _, action = call.id.partition("/")
    mark = f"{digest(call.id)}:autoScalingGroupName/{group}:scheduledActionName/{action}"
    return {
        "region": region_of(call.inputs, call.config),
        "arn": arn(call, "autoscaling", f"scheduledUpdateGroupAction:{mark}"),
        **kept(call, {"startTime": "2026-12-01T00:00:00Z", "endTime": "", "timeZone": ""}),
        **kept(call, {"recurrence": "", "minSize": 0, "maxSize": 0, "desiredCapacity": 0}),
    }


GROUP_TAG = kind(
    tokens.GROUP_TAG,
    lambda inputs, _config: f"{inputs.get('autoscalingGroupName')},{value_at(inputs, 'tag.key')}",
    in_region,
    immutable="autoscalingGroupName tag.key",
    references=(OF_GROUP,),
    repeatable=True,
)
SCHEDULE = kind(
    tokens.SCHEDULE,
    joined("/", "autoscalingGroupName", "scheduledActionName"),
    compute_schedule,
    immutable="scheduledActionName",
    references=(OF_GROUP,),
    # After a run AWS computes the next time. An action without a recurrence would be deleted.
    drift=lambda _live, _state: {"startTime": "2027-12-01T00:00:00Z"},
    # PutScheduledUpdateGroupAction creates an action or changes the one with this name.
    repeatable=True,
)
