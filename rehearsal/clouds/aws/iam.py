"""Roles, policies, keys and logs: ids, computed outputs and replacement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.aws.outputs import (
    ACCOUNT,
    SINCE,
    arn,
    generated_id,
    name_of,
    partition_of,
    region_of,
    regional,
    tags,
)
from rehearsal.clouds.aws.references import last
from rehearsal.clouds.kind import Call, Json
from rehearsal.clouds.values import digest, kept

# ForceNew of the provider, unverified, 2026-11 (`refusals.PROVIDER_OTHERS`).
ROLE_REPLACES = frozenset({"name", "namePrefix", "path"})
ROLE_POLICY_REPLACES = frozenset({"name", "namePrefix", "role"})
ATTACHMENT_REPLACES = frozenset({"policyArn", "role"})
POLICY_REPLACES = frozenset({"name", "namePrefix", "path", "description"})
INSTANCE_PROFILE_REPLACES = frozenset({"name", "namePrefix", "path"})
OIDC_REPLACES = frozenset({"url"})
KEY_REPLACES = frozenset({"region", "customerMasterKeySpec", "keyUsage", "multiRegion", "customKeyStoreId", "xksKeyId"})
ALIAS_REPLACES = frozenset({"region", "name", "namePrefix"})
LOG_GROUP_REPLACES = frozenset({"region", "name", "namePrefix", "logGroupClass"})


def identify_by_name(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return the name: of roles, instance profiles, log groups, aliases."""
    return name_of(inputs)


def identify_role_policy(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return ROLE:POLICY."""
    return f"{inputs['role']}:{name_of(inputs)}"


def identify_attachment(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return ROLE/ARN. Older providers generated an id; this one can find an attachment again."""
    return f"{last(inputs.get('role'))}/{inputs.get('policyArn')}"


def identify_policy(inputs: Json, config: Mapping[str, Any]) -> str:
    """Return the ARN."""
    partition = partition_of(region_of(inputs, config))
    return f"arn:{partition}:iam::{ACCOUNT}:policy{inputs.get('path') or '/'}{name_of(inputs)}"


def identify_oidc(inputs: Json, config: Mapping[str, Any]) -> str:
    """Return the ARN."""
    partition = partition_of(region_of(inputs, config))
    url = str(inputs.get("url") or "").removeprefix("https://")
    return f"arn:{partition}:iam::{ACCOUNT}:oidc-provider/{url}"


def identify_key(inputs: Json, config: Mapping[str, Any]) -> str:
    """Return a UUID."""
    text = digest(generated_id("key")(inputs, config), 32)
    return "-".join((text[:8], text[8:12], f"4{text[13:16]}", f"8{text[17:20]}", text[20:]))


def compute_role(call: Call) -> Json:
    """Return the ARN and unique id."""
    path = str(call.inputs.get("path") or "/")
    return {
        **tags(call),
        "name": call.id,
        "arn": arn(call, "iam", f"role{path}{call.id}", everywhere=True),
        "uniqueId": f"AROA{digest(call.id, 17).upper()}",
        "createDate": SINCE,
        **kept(call, {"path": "/", "maxSessionDuration": 3600, "managedPolicyArns": [], "inlinePolicies": []}),
    }


def compute_role_policy(call: Call) -> Json:
    """Return the name."""
    return {"name": call.id.partition(":")[2]}


def compute_policy(call: Call) -> Json:
    """Return the ARN."""
    return {
        **tags(call),
        "arn": call.id,
        "policyId": f"ANPA{digest(call.id, 17).upper()}",
        "attachmentCount": 0,
        **kept(call, {"name": last(call.id), "path": "/"}),
    }


def compute_instance_profile(call: Call) -> Json:
    """Return the ARN."""
    return {
        **tags(call),
        "name": call.id,
        "arn": arn(call, "iam", f"instance-profile{call.inputs.get('path') or '/'}{call.id}", everywhere=True),
        "uniqueId": f"AIPA{digest(call.id, 17).upper()}",
        "createDate": SINCE,
        **kept(call, {"path": "/"}),
    }


def compute_oidc(call: Call) -> Json:
    """Return the ARN and a thumbprint."""
    return {**tags(call), "arn": call.id, **kept(call, {"thumbprintLists": [digest(call.id, 40)]})}


def compute_key(call: Call) -> Json:
    """Return the ARN."""
    return {
        **regional(call),
        "arn": arn(call, "kms", f"key/{call.id}"),
        "keyId": call.id,
        **kept(
            call,
            {
                "isEnabled": True,
                "keyUsage": "ENCRYPT_DECRYPT",
                "customerMasterKeySpec": "SYMMETRIC_DEFAULT",
                "multiRegion": False,
                "enableKeyRotation": False,
                "rotationPeriodInDays": 0,
                "description": "",
                "policy": "",
            },
        ),
    }


def compute_alias(call: Call) -> Json:
    """Return the ARN of its key, which may be given by id."""
    key = last(call.inputs.get("targetKeyId"))
    region = region_of(call.inputs, call.config)
    return {
        "region": region,
        "arn": arn(call, "kms", call.id),
        "name": call.id,
        "targetKeyArn": arn(call, "kms", f"key/{key}"),
    }


def compute_log_group(call: Call) -> Json:
    """Return the ARN."""
    return {
        **regional(call),
        "arn": arn(call, "logs", f"log-group:{call.id}"),
        "name": call.id,
        **kept(call, {"logGroupClass": "STANDARD", "retentionInDays": 0, "skipDestroy": False}),
    }
