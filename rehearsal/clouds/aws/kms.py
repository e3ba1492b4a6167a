"""Keys and aliases of KMS, log groups of CloudWatch, and budgets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.outputs import (
    ACCOUNT,
    arn,
    computed,
    generated_id,
    identify_by_name,
    in_use,
    kind,
    name_of,
    partition_of,
    region_of,
    tags,
)
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


def identify_budget(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return ACCOUNT:NAME."""
    return f"{inputs.get('accountId') or ACCOUNT}:{name_of(inputs)}"


def compute_budget(call: Call) -> Json:
    """Return the ARN, which has no region, and the account."""
    account, name = call.id.split(":")
    partition = partition_of(region_of({}, call.config))
    return {
        "accountId": account,
        "name": name,
        "arn": f"arn:{partition}:budgets::{account}:budget/{name}",
        **tags(call),
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
BUDGET = kind(
    tokens.BUDGET,
    identify_budget,
    compute_budget,
    conflict=in_use(
        "400 DuplicateRecordException", "Error creating budget - the budget already exists", "Budgets API, CreateBudget"
    ),
)
