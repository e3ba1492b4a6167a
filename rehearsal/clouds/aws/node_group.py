"""Managed node groups: ids, computed outputs, replacement, and the access entry that EKS creates for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.offerings import IMAGE_DATE, release
from rehearsal.clouds.aws.outputs import arn, name_of, region_of, regional
from rehearsal.clouds.aws.references import groups_of, template_of, types_of
from rehearsal.clouds.kind import Call, Json, value_at
from rehearsal.clouds.values import blocks, digest, kept

# ForceNew in `refusals.PROVIDER_GROUP`.
NODE_GROUP_REPLACES = frozenset(
    {
        *("region", "clusterName", "nodeGroupName", "nodeGroupNamePrefix", "nodeRoleArn", "subnetIds", "amiType"),
        *("capacityType", "diskSize", "instanceTypes", "remoteAccess", "launchTemplate.id", "launchTemplate.name"),
    }
)
GROUP_TAG_REPLACES = frozenset({"region", "autoscalingGroupName", "tag.key"})
SCHEDULE_REPLACES = frozenset({"region", "autoscalingGroupName", "scheduledActionName"})
NODE_GROUP_MAPS = frozenset({"labels"})


def identify_node_group(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return CLUSTER:GROUP."""
    return f"{inputs.get('clusterName')}:{name_of(inputs, 'nodeGroupName')}"


def compute_node_group(call: Call) -> Json:
    """Return the Auto Scaling group and image, and create the access entry of the group's role."""
    cluster, _, name = call.id.partition(":")
    live_cluster = call.state.get(tokens.CLUSTER, cluster) or {}
    version = str(call.inputs.get("version") or call.live.get("version") or live_cluster.get("version") or "")
    found = template_of(call.state, call.inputs)
    if call.verb == "create":
        _entry(call, cluster)
    mark = f"{digest(call.id)}-{digest(call.id, 4)}-{digest(call.id, 12)}"
    more: Json = {}
    if found is not None:
        more["launchTemplate"] = {
            **(call.now.get("launchTemplate") or {}),
            "id": found[0],
            "name": found[1].get("name", ""),
        }
    return {
        **regional(call),
        **more,
        "nodeGroupName": name,
        "arn": arn(call, "eks", f"nodegroup/{cluster}/{name}/{mark}"),
        "status": "ACTIVE",
        "resources": [
            {"autoscalingGroups": [{"name": f"eks-{name}-{mark}"}], "remoteAccessSecurityGroupId": ""},
        ],
        **blocks(
            call,
            {"updateConfig": {"maxUnavailable": 1}} if not call.inputs.get("updateConfig") else {},
        ),
        **kept(
            call,
            {
                "version": version,
                "releaseVersion": release(version, IMAGE_DATE),
                "amiType": "AL2023_x86_64_STANDARD",
                "capacityType": "ON_DEMAND",
                "diskSize": 0 if found else 20,
                "instanceTypes": [] if found and found[1].get("instanceType") else types_of(call.state, call.inputs),
                "nodeRepairConfig": {"enabled": False},
                "nodeGroupNamePrefix": "",
            },
        ),
    }


def identify_group_tag(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return GROUP,KEY."""
    _ = inputs["tag"]["propagateAtLaunch"], inputs["tag"]["value"]
    return f"{inputs['autoscalingGroupName']},{inputs['tag']['key']}"


def compute_group_tag(call: Call) -> Json:
    """Return the region."""
    return {"region": region_of(call.inputs, call.config)}


def identify_schedule(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return GROUP/ACTION, the import id. The provider's id is the action, which is unique in its group."""
    return f"{inputs['autoscalingGroupName']}/{inputs['scheduledActionName']}"


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


def scaling_group_of(group: Mapping[str, Any]) -> str:
    """Return the name of the Auto Scaling group of a live node group."""
    return str(value_at(group, "resources.0.autoscalingGroups.0.name") or "")


def goes_with_node_group(call: Call, type_: str, live: Json) -> bool:
    """Return whether an object is deleted with the group: a tag, an action, or its role's access entry, if unused."""
    if type_ in (tokens.GROUP_TAG, tokens.SCHEDULE):
        return live.get("autoscalingGroupName") == scaling_group_of(call.live)
    if type_ != tokens.ACCESS_ENTRY or tokens.MADE_BY not in live or live.get("type") != "EC2_LINUX":
        return False
    cluster, role = call.live.get("clusterName"), call.live.get("nodeRoleArn")
    others = [group for id_, group in groups_of(call.state, str(cluster)) if id_ != call.id]
    mine = live.get("clusterName") == cluster and live.get("principalArn") == role
    return mine and all(group.get("nodeRoleArn") != role for group in others)


def _entry(call: Call, cluster: str) -> None:
    role = str(call.inputs.get("nodeRoleArn") or "")
    id_ = f"{cluster}:{role}"
    if call.state.get(tokens.ACCESS_ENTRY, id_) is None:
        entry: Json = {"clusterName": cluster, "principalArn": role, "type": "EC2_LINUX"}
        entry["region"] = region_of(call.inputs, call.config)
        call.state.put(tokens.ACCESS_ENTRY, id_, {**entry, tokens.MADE_BY: f"eks:{cluster}"})
