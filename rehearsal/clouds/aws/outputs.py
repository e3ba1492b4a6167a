"""Computed outputs of AWS resources: generated ids, ARNs, regions, names and tags."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rehearsal.engine.kind import Call, Json, Refusal, ResourceKind
from rehearsal.engine.values import digest, kept

ACCOUNT = "123456789012"
"""The account number of the AWS examples."""
CALLER = f"arn:aws:iam::{ACCOUNT}:user/rehearsal"
TAGS = frozenset({"tags"})
"""A free-form map: tags that others add show as a difference."""


Identify = Callable[[Json, Mapping[str, Any]], str]


def region_of(inputs: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return the region of a resource: its own, otherwise the provider's."""
    return str(inputs.get("region") or config.get("region") or "us-east-1")


def arn(call: Call, service: str, resource: str, *, everywhere: bool = False) -> str:
    """Return an ARN; IAM's have no region."""
    region = region_of(call.inputs, call.config)
    return f"arn:{partition_of(region)}:{service}:{'' if everywhere else region}:{ACCOUNT}:{resource}"


def partition_of(region: str) -> str:
    """Return the partition of a region."""
    return "aws-cn" if region.startswith("cn-") else "aws-us-gov" if region.startswith("us-gov-") else "aws"


def hexadecimal(prefix: str, text: str) -> str:
    """Return an id in EC2's format: prefix, hyphen and 17 hexadecimal digits."""
    return f"{prefix}-0{digest(f'{prefix} {text}', 16)}"


def generated_id(prefix: str, inputs: Json, config: Mapping[str, Any]) -> str:
    """Return an id in EC2's format. Unlike AWS, the same request gives the same id."""
    return hexadecimal(prefix, f"{region_of(inputs, config)} {json.dumps(inputs, sort_keys=True)}")


def in_region(call: Call) -> Json:
    """Return the region alone."""
    return {"region": region_of(call.inputs, call.config)}


def computed(service: str, noun: str, own: str = "", **defaults: Any) -> Callable[[Call], Json]:
    """Return a function that computes region, tags and ARN, the id as property `own`, and properties not set."""

    def compute(call: Call) -> Json:
        named = {own: call.id} if own else {}
        return {**regional(call), "arn": arn(call, service, f"{noun}{call.id}"), **named, **kept(call, defaults)}

    return compute


def joined(separator: str, *keys: str) -> Identify:
    """Return a function that joins inputs to an id."""
    return lambda inputs, _config: separator.join(str(inputs.get(key)) for key in keys)


def kind(
    type_: str, identify: str | Identify, compute: Callable[[Call], Json], *, immutable: str = "", **more: Any
) -> ResourceKind:
    """Return a kind.

    Args:
        type_: the Pulumi type token.
        identify: the id from inputs and provider configuration; the prefix of an id that EC2 or FSx generates.
        compute: outputs that the cloud adds to the inputs.
        immutable: inputs whose change replaces the resource (ForceNew of the provider); the facts have others.
        more: other arguments of `Kind`.
    """
    if isinstance(identify, str):
        more |= {"identify": partial(generated_id, identify), "generated_ids": True}
    else:
        more |= {"identify": identify}
    return ResourceKind(
        **{"type": type_, "compute": compute, "replace_on": frozenset(immutable.split()), "maps": TAGS, **more}
    )


def name_of(inputs: Mapping[str, Any], key: str = "name") -> str:
    """Return the requested name, or a generated one with the requested prefix or the provider's."""
    if inputs.get(key):
        return str(inputs[key])
    made = digest(json.dumps(dict(inputs), sort_keys=True), 20)
    return f"{inputs.get(f'{key}Prefix') or 'terraform-'}{made}"


def identify_by_name(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return the name as the id."""
    return name_of(inputs)


def tags(call: Call) -> Json:
    """Return all tags: the provider's defaults and the resource's own, which take precedence."""
    return {"tagsAll": {**default_tags(call.config), **(call.inputs.get("tags") or {})}}


def default_tags(config: Mapping[str, Any]) -> Json:
    """Return the tags that the provider gives to every resource that has tags."""
    default = config.get("defaultTags") or {}
    if isinstance(default, str):
        # Nested configuration of a provider is sent as JSON in a string.
        default = json.loads(default)
    tags: Json = default.get("tags") or {}
    return tags


def regional(call: Call) -> Json:
    """Return the outputs of nearly every regional resource: region and all tags."""
    return {"region": region_of(call.inputs, call.config), **tags(call)}


def takes(key: str, *types: str) -> Callable[[Call, str, Json], bool]:
    """Return the cascade of an object that takes with it those of these types that have its id as `key`."""
    return lambda call, type_, live: type_ in types and live.get(key) == call.id


def in_use(status: str, words: str, source: str) -> Callable[[str, str], Refusal]:
    """Return the refusal of a name that another object has."""
    return lambda _type, id_: Refusal(status, f"{words}: {id_}", source)
