"""Simulated AWS CLI of a rehearsal. It supports the command that recovery runs, and reads the cloud state.

Like Resource Groups Tagging, it returns all resources with a tag and an ARN in the region, except IAM roles.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.outputs import ACCOUNT, partition_of
from rehearsal.engine.state import State, View
from rehearsal.engine.workspace import NotOursError, of_this_process

_ASKED = ("resourcegroupstaggingapi", "get-resources", "--region", "", "--tag-filters", "", "--output", "json")
_ARNS = ("arn", "associationArn", "accessEntryArn")
_LEFT_OUT = frozenset({tokens.ROLE})
REFUSED, NOT_OURS = 252, 1
"""Exit statuses; 252 is that of the AWS CLI for an unknown command line."""


def main(words: Sequence[str]) -> int:
    """Run a command line with its result on standard output; return the exit status."""
    try:
        workspace = of_this_process()
    except NotOursError as problem:
        print(f"aws: REHEARSAL: {problem}", file=sys.stderr)
        return NOT_OURS
    region, filters = words[3:4], words[5:6]
    if len(words) != len(_ASKED) or any(asked and asked != word for asked, word in zip(_ASKED, words, strict=True)):
        print(f"aws: REHEARSAL: the rehearsal's AWS CLI does not support: aws {' '.join(words)}", file=sys.stderr)
        return REFUSED
    key, _, value = filters[0].partition(",")
    if not (key.startswith("Key=") and value.startswith("Values=")):
        print(f"aws: REHEARSAL: not a filter: {filters[0]}", file=sys.stderr)
        return REFUSED
    with State(workspace.cloud_state).transaction() as state:
        found = resources(state, region[0], key.removeprefix("Key="), value.removeprefix("Values="))
    print(json.dumps({"ResourceTagMappingList": found}, indent=4))
    return 0


def resources(state: View, region: str, key: str, value: str) -> list[dict[str, Any]]:
    """Return the resources with this tag in this region, in the format of GetResources."""
    found = []
    for type_, id_, live in state.all():
        tags = live.get("tagsAll") or {}
        if type_ in _LEFT_OUT or tags.get(key) != value or live.get("region") != region:
            continue
        if arn := _arn(type_, id_, live, region):
            found.append({"ResourceARN": arn, "Tags": [{"Key": each, "Value": tags[each]} for each in tags]})
    return found


def _arn(type_: str, id_: str, live: Mapping[str, Any], region: str) -> str:
    if type_ == tokens.NAT:
        # The provider has no ARN output for a NAT gateway, although it has an ARN.
        return f"arn:{partition_of(region)}:ec2:{region}:{ACCOUNT}:natgateway/{id_}"
    return next((str(live[name]) for name in _ARNS if live.get(name)), "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
