"""Rules of launch templates and placement groups."""

from __future__ import annotations

import base64
import binascii
import re

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.outputs import name_of
from rehearsal.clouds.aws.references import desired, template_data
from rehearsal.clouds.aws.refusals import EC2_ERRORS, PROVIDER_OTHERS, refused, unfit
from rehearsal.clouds.kind import Call, Refusal, on, value_at

LONGEST_USER_DATA = 16384
"""Bytes before encoding (EC2 docs, user data; unverified, 2026-11)."""
_VOLUMES = {"gp2", "gp3", "io1", "io2", "sc1", "st1", "standard"}


@on("create")
def template_name_invalid(call: Call) -> Refusal | None:
    """A launch template's name has 3 to 128 characters of a small set."""
    name = name_of(call.inputs)
    if re.fullmatch(r"[a-zA-Z0-9().\-/_]{3,128}", name):
        return None
    words = "Launch template names must be between 3 and 128 characters, and may contain letters, numbers, and the"
    return refused(
        "InvalidLaunchTemplateName.MalformedException", f"{words} following characters: - ( ) . / _", EC2_ERRORS
    )


@on("create")
def template_name_taken(call: Call) -> Refusal | None:
    """Names of launch templates are unique."""
    name = name_of(call.inputs)
    if all(live.get("name") != name for _, _, live in call.state.all(tokens.LAUNCH_TEMPLATE)):
        return None
    words = "Launch template name already in use."
    return refused("InvalidLaunchTemplateName.AlreadyExistsException", words, EC2_ERRORS)


@on("create", "update")
def user_data_malformed(call: Call) -> Refusal | None:
    """User data is base64 of at most 16 KiB."""
    text = str(call.inputs.get("userData") or "")
    try:
        plain = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return refused("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.", EC2_ERRORS)
    if len(plain) <= LONGEST_USER_DATA:
        return None
    return refused("InvalidUserData.Malformed", "User data is limited to 16384 bytes", EC2_ERRORS)


@on("create", "update")
def metadata_options_invalid(call: Call) -> Refusal | None:
    """The metadata service's tokens are optional or required, and its hop limit is 1 to 64."""
    options = call.inputs.get("metadataOptions") or {}
    hops, how = options.get("httpPutResponseHopLimit"), options.get("httpTokens")
    if hops is not None and not 1 <= int(hops) <= 64:
        words = "expected metadata_options.0.http_put_response_hop_limit to be in the range (1 - 64), got"
        return unfit(f"{words} {hops}", PROVIDER_OTHERS)
    if how in (None, "optional", "required"):
        return None
    words = 'expected metadata_options.0.http_tokens to be one of ["optional" "required"], got'
    return unfit(f"{words} {how}", PROVIDER_OTHERS)


@on("create", "update")
def volume_invalid(call: Call) -> Refusal | None:
    """The volume type exists, and only some types have a throughput."""
    for mapping in call.inputs.get("blockDeviceMappings") or []:
        kind = value_at(mapping, "ebs.volumeType")
        if kind not in (None, *_VOLUMES):
            return unfit(f"expected volume_type to be one of {sorted(_VOLUMES)}, got {kind}", PROVIDER_OTHERS)
        if value_at(mapping, "ebs.throughput") and kind != "gp3":
            words = f"The parameter throughput is not supported for {kind or 'gp2'} volumes."
            return refused("InvalidParameterCombination", words, EC2_ERRORS)
    return None


@on("create", "update")
def spot_options_elsewhere(call: Call) -> Refusal | None:
    """Spot options need the market "spot"; the other market is "capacity-block"."""
    market = call.inputs.get("instanceMarketOptions") or {}
    kind = market.get("marketType")
    if kind not in (None, "spot", "capacity-block", "interruptible-capacity-reservation"):
        return unfit(f'expected market_type to be one of ["spot" "capacity-block"], got {kind}', PROVIDER_OTHERS)
    if not market.get("spotOptions") or kind in (None, "spot"):
        return None
    return refused("InvalidParameterCombination", f"Spot options cannot be used with market type {kind}.", EC2_ERRORS)


@on("create")
def strategy_invalid(call: Call) -> Refusal | None:
    """The strategy is cluster, spread or partition, and only partition has a number of partitions."""
    strategy = call.inputs.get("strategy")
    if strategy not in ("cluster", "spread", "partition"):
        words = f'expected strategy to be one of ["cluster" "partition" "spread"], got {strategy}'
        return unfit(words, PROVIDER_OTHERS)
    if not call.inputs.get("partitionCount") or strategy == "partition":
        return None
    words = "The parameter PartitionCount can only be set with the strategy 'partition'"
    return refused("InvalidParameterCombination", words, EC2_ERRORS)


@on("delete")
def placement_group_in_use(call: Call) -> Refusal | None:
    """A placement group is deleted after its instances."""
    for _, _, live in call.state.all(tokens.NODE_GROUP):
        if desired(live) and value_at(template_data(call.state, live), "placement.groupName") == call.id:
            words = f"The placement group {call.id} is in use and may not be deleted."
            return refused("InvalidPlacementGroup.InUse", words, EC2_ERRORS)
    return None
