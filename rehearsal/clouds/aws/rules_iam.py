"""Rules of roles and policies, keys, logs, buckets and image repositories."""

from __future__ import annotations

import json
import re

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.offerings import MANAGED_POLICIES
from rehearsal.clouds.aws.outputs import ACCOUNT
from rehearsal.clouds.aws.references import last, role
from rehearsal.clouds.aws.refusals import IAM_API, KMS_API, PROVIDER_OTHERS, S3_API, UNVERIFIED, refused, unfit
from rehearsal.clouds.kind import Call, Refusal, on

RETENTIONS = frozenset(
    {0, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653}
)
"""Days for which CloudWatch keeps logs (the provider's validation, unverified, 2026-11)."""


@on("create")
def role_name_invalid(call: Call) -> Refusal | None:
    """A role's name has at most 64 characters of a small set."""
    if re.fullmatch(r"[\w+=,.@-]{1,64}", call.id):
        return None
    words = f'expected length of name to be in the range (1 - 64) and of [\\w+=,.@-], got "{call.id}"'
    return unfit(words, PROVIDER_OTHERS)


@on("create", "update")
def trust_malformed(call: Call) -> Refusal | None:
    """A role's trust policy is JSON."""
    try:
        document = json.loads(str(call.inputs.get("assumeRolePolicy")))
        fits = isinstance(document, dict) and bool(document.get("Statement"))
    except ValueError:
        fits = False
    if fits:
        return None
    return refused("MalformedPolicyDocument", "This policy contains invalid Json", IAM_API)


@on("create", "update")
def policy_malformed(call: Call) -> Refusal | None:
    """A policy is JSON with statements that have an effect and actions."""
    try:
        document = json.loads(str(call.inputs.get("policy")))
        statements = document["Statement"]
        listed = statements if isinstance(statements, list) else [statements]
        fits = all("Effect" in one and ("Action" in one or "NotAction" in one) for one in listed)
    except (ValueError, KeyError, TypeError):
        fits = False
    if fits:
        return None
    return refused("MalformedPolicyDocument", "Syntax errors in policy.", IAM_API)


@on("create")
def role_missing(call: Call) -> Refusal | None:
    """The role of a policy exists."""
    name = call.inputs.get("role")
    if not name or role(call.state, name) is not None:
        return None
    return refused("NoSuchEntity", f"The role with name {name} cannot be found.", IAM_API)


@on("create")
def policy_missing(call: Call) -> Refusal | None:
    """An attached policy exists: one of AWS's, or one of the stack."""
    arn = str(call.inputs.get("policyArn") or "")
    owner, _, name = arn.partition(":policy/")
    if owner.endswith("::aws"):
        known = name in MANAGED_POLICIES
    else:
        known = call.state.get(tokens.POLICY, arn) is not None or f"::{ACCOUNT}" not in owner
    if known and name:
        return None
    return refused("NoSuchEntity", f"Policy {arn} does not exist or is not attachable.", IAM_API)


@on("delete")
def role_in_use(call: Call) -> Refusal | None:
    """A role is deleted after its attachments."""
    if any(last(live.get("role")) == call.id for _, _, live in call.state.all(tokens.ATTACHMENT)):
        return refused("DeleteConflict", "Cannot delete entity, must detach all policies first.", IAM_API)
    if any(last(live.get("role")) == call.id for _, _, live in call.state.all(tokens.ROLE_POLICY)):
        return refused("DeleteConflict", "Cannot delete entity, must delete policies first.", IAM_API)
    if any(live.get("role") == call.id for _, _, live in call.state.all(tokens.INSTANCE_PROFILE)):
        words = "Cannot delete entity, must remove roles from instance profile first."
        return refused("DeleteConflict", words, IAM_API)
    return None


@on("delete")
def policy_attached(call: Call) -> Refusal | None:
    """A policy is deleted after its attachments."""
    if all(live.get("policyArn") != call.id for _, _, live in call.state.all(tokens.ATTACHMENT)):
        return None
    return refused("DeleteConflict", "Cannot delete a policy attached to entities.", IAM_API)


@on("create", "update")
def key_locks_out(call: Call) -> Refusal | None:
    """A key's policy lets the account change it."""
    text = call.inputs.get("policy")
    if not text or call.inputs.get("bypassPolicyLockoutSafetyCheck"):
        return None
    try:
        json.loads(str(text))
    except ValueError:
        return refused("MalformedPolicyDocumentException", "Policy contains invalid JSON", KMS_API)
    if f"iam::{ACCOUNT}:" in str(text):
        return None
    words = "The new key policy will not allow you to update the key policy in the future."
    return refused("MalformedPolicyDocumentException", words, KMS_API)


@on("create", "update")
def deletion_window_invalid(call: Call) -> Refusal | None:
    """The deletion window of a key is 7 to 30 days."""
    days = call.inputs.get("deletionWindowInDays")
    if days is None or 7 <= int(days) <= 30:
        return None
    return unfit(f"expected deletion_window_in_days to be in the range (7 - 30), got {days}", PROVIDER_OTHERS)


@on("create")
def alias_invalid(call: Call) -> Refusal | None:
    """An alias begins with "alias/" but not "alias/aws/", and its key exists."""
    if not re.fullmatch(r"alias/(?!aws/)[a-zA-Z0-9/_-]+", call.id):
        return unfit(f"\"name\" must begin with 'alias/' and not with 'alias/aws/': \"{call.id}\"", PROVIDER_OTHERS)
    key = call.inputs.get("targetKeyId")
    if call.state.get(tokens.KEY, last(key)) is not None:
        return None
    return refused("NotFoundException", f"Key '{key}' does not exist", KMS_API)


@on("create", "update")
def retention_invalid(call: Call) -> Refusal | None:
    """The retention period of logs is one of a list of days."""
    days = call.inputs.get("retentionInDays")
    if days is None or int(days) in RETENTIONS:
        return None
    return unfit(f"expected retention_in_days to be one of {sorted(RETENTIONS)}, got {days}", PROVIDER_OTHERS)


@on("create")
def log_group_name_invalid(call: Call) -> Refusal | None:
    """A log group's name has at most 512 characters of a small set."""
    if re.fullmatch(r"[a-zA-Z0-9_/.#-]{1,512}", call.id):
        return None
    words = f"Value '{call.id}' at 'logGroupName' failed to satisfy constraint: [\\.\\-_/#A-Za-z0-9]+"
    return refused("InvalidParameterException", words, f"CloudWatch Logs API; wording {UNVERIFIED}")


@on("create")
def bucket_name_invalid(call: Call) -> Refusal | None:
    """A bucket's name has 3 to 63 lower case letters, digits, dots and hyphens."""
    if re.fullmatch(r"(?!xn--|\d+\.\d+\.\d+\.\d+$)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?<!-s3alias)", call.id):
        return None
    return refused("InvalidBucketName", f"The specified bucket is not valid: {call.id}", S3_API)


@on("create", "update")
def bucket_missing(call: Call) -> Refusal | None:
    """The bucket of a setting exists; other buckets are unknown here."""
    name = str(call.inputs.get("bucket") or "")
    if name and call.state.get(tokens.BUCKET, name) is not None:
        return None
    return refused("NoSuchBucket", f"The specified bucket does not exist: {name}", S3_API)


@on("create")
def repository_name_invalid(call: Call) -> Refusal | None:
    """An image repository's name has lower case letters, digits and separators."""
    if re.fullmatch(r"(?=.{2,256}$)[a-z0-9]+([._/-][a-z0-9]+)*", call.id):
        return None
    words = f"Invalid parameter at 'repositoryName' failed to satisfy constraint: '{call.id}'"
    return refused("InvalidParameterException", words, f"ECR API; wording {UNVERIFIED}")
