"""Keys and aliases of KMS, and log groups of CloudWatch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.outputs import arn, computed, generated_id, identify_by_name, kind, region_of
from rehearsal.clouds.aws.references import to_named
from rehearsal.engine.kind import Call, Json
from rehearsal.engine.values import digest, last


def identify_key(inputs: Json, config: Mapping[str, Any]) -> str:
    """Return a UUID."""
    text = digest(generated_id("key", inputs, config), 32)
    return "-".join((text[:8], text[8:12], f"4{text[13:16]}", f"8{text[17:20]}", text[20:]))


def compute_alias(call: Call) -> Json:
    """Return the ARN of its key, which may be given by id."""
    key = last(call.inputs.get("targetKeyId"))
    return {
        "region": region_of(call.inputs, call.config),
        "arn": arn(call, "kms", call.id),
        "name": call.id,
        "targetKeyArn": arn(call, "kms", f"key/{key}"),
    }


KEY = kind(
    tokens.KEY,
    identify_key,
    computed("kms", "key/", "keyId", enableKeyRotation=False),
    immutable="customerMasterKeySpec keyUsage multiRegion",
    generated_ids=True,
)
ALIAS = kind(tokens.ALIAS, identify_by_name, compute_alias, references=(to_named("targetKeyId", tokens.KEY),))
LOG_GROUP = kind(
    tokens.LOG_GROUP,
    identify_by_name,
    computed("logs", "log-group:", "name", retentionInDays=0),
    immutable="logGroupClass",
)
