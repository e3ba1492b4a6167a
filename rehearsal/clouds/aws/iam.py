"""Roles and policies of IAM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.outputs import arn, identify_by_name, kind, name_of, tags
from rehearsal.clouds.aws.references import to_named
from rehearsal.engine.kind import Call, Json, nothing
from rehearsal.engine.values import kept, last


def identify_role_policy(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return ROLE:POLICY."""
    return f"{inputs.get('role')}:{name_of(inputs)}"


def identify_attachment(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return ROLE/ARN. Older providers generated an id; this one can find an attachment again."""
    return f"{last(inputs.get('role'))}/{inputs.get('policyArn')}"


def compute_role(call: Call) -> Json:
    """Return the ARN and unique id."""
    path = str(call.inputs.get("path") or "/")
    return {
        **tags(call),
        "name": call.id,
        "arn": arn(call, "iam", f"role{path}{call.id}", everywhere=True),
        **kept(call, {"path": "/", "managedPolicyArns": []}),
    }


ROLE = kind(tokens.ROLE, identify_by_name, compute_role)
ROLE_POLICY = kind(
    tokens.ROLE_POLICY,
    identify_role_policy,
    lambda call: {"name": call.id.partition(":")[2]},
    references=(to_named("role", tokens.ROLE, holds=True),),
    repeatable=True,
)
ATTACHMENT = kind(
    tokens.ATTACHMENT,
    identify_attachment,
    nothing,
    immutable="policyArn role",
    references=(to_named("role", tokens.ROLE, holds=True),),
    repeatable=True,
)
