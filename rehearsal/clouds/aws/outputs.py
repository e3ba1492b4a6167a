"""Computed outputs of AWS resources: generated ids, ARNs, regions, names and tags."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from rehearsal.clouds.kind import Call, Json, Kind
from rehearsal.clouds.values import digest

ACCOUNT = "123456789012"
"""The account number of AWS's own examples."""
CALLER = f"arn:aws:iam::{ACCOUNT}:user/rehearsal"
SINCE = "2026-11-02T08:00:00Z"
"""Creation time of every resource: fixed, so that two rehearsals agree."""

Identify = Callable[[Json, Mapping[str, Any]], str]


def region_of(inputs: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return the region of a resource: its own, else the provider's."""
    return str(inputs.get("region") or config.get("region") or "us-east-1")


def partition_of(region: str) -> str:
    """Return the partition of a region."""
    return "aws-cn" if region.startswith("cn-") else "aws-us-gov" if region.startswith("us-gov-") else "aws"


def arn(call: Call, service: str, resource: str, *, everywhere: bool = False) -> str:
    """Return an ARN; IAM's have no region."""
    region = region_of(call.inputs, call.config)
    return f"arn:{partition_of(region)}:{service}:{'' if everywhere else region}:{ACCOUNT}:{resource}"


def generated_id(prefix: str, *required: str) -> Identify:
    """Return a generator of ids such as "subnet-0…" with 17 digits. Unlike AWS, the same request gives the same id.

    Raises `KeyError` for an input that the provider's schema requires.
    """

    def identify(inputs: Json, config: Mapping[str, Any]) -> str:
        for name in required:
            _ = inputs[name]
        return hexadecimal(prefix, f"{region_of(inputs, config)} {json.dumps(inputs, sort_keys=True)}")

    return identify


def hexadecimal(prefix: str, text: str) -> str:
    """Return an id in EC2's format: prefix, hyphen and 17 hexadecimal digits."""
    return f"{prefix}-0{digest(f'{prefix} {text}', 16)}"


def name_of(inputs: Mapping[str, Any], key: str = "name") -> str:
    """Return the requested name, or a generated one with the requested prefix or the provider's."""
    if inputs.get(key):
        return str(inputs[key])
    made = digest(json.dumps(dict(inputs), sort_keys=True), 20)
    return f"{inputs.get(f'{key}Prefix') or 'terraform-'}{made}"


def tags(call: Call) -> Json:
    """Return all tags: the provider's defaults and the resource's own, which take precedence."""
    default = call.config.get("defaultTags") or {}
    if isinstance(default, str):
        # Nested configuration of a provider is sent as JSON in a string.
        default = json.loads(default)
    return {"tagsAll": {**(default.get("tags") or {}), **(call.inputs.get("tags") or {})}}


def regional(call: Call) -> Json:
    """Return the outputs of nearly every regional resource: region and all tags."""
    return {"region": region_of(call.inputs, call.config), **tags(call)}


def dotted(text: str, first: int) -> str:
    """Return an IPv4 address that depends only on the text and starts with `first`."""
    number = int(digest(text, 6), 16)
    return f"{first}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


TAGS = frozenset({"tags"})
"""A free-form map: tags that others add show as a difference."""


def kind_with_generated_id(type_: str, prefix: str, *required: str, **more: Any) -> Kind:
    """Return a kind whose ids EC2 or FSx generates."""
    return Kind(type=type_, identify=generated_id(prefix, *required), maps=TAGS, generated_ids=True, **more)
