"""Questions of pre-flight about a stack on AWS, asked with the AWS CLI."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from infra.catalog.aws import is_zone_id, zone_region
from infra.settings import EksSettings
from infra.settings.eks import region_problems
from workloads.preflight.answers import Asked, Cause, PreflightAnswer, PreflightCheck
from workloads.preflight.aws_cli import Aws
from workloads.preflight.eks_account import account_checks
from workloads.preflight.eks_place import place_checks
from workloads.preflight.eks_quotas import quota_checks
from workloads.preflight.eks_reservation import reservation_checks
from workloads.preflight.eks_versions import version_checks

REGION = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d{1,2}", re.ASCII)
PROFILE = re.compile(r"[\w+=,.@ /:-]{1,128}", re.ASCII)


def eks_checks(settings: EksSettings, config: Mapping[str, Any]) -> Iterator[PreflightCheck]:
    """Yield the questions about a stack, one for each thing that it needs.

    Args:
        config: The map of the stack file, which also configures the provider: aws:region, aws:profile.
    """
    yield PreflightCheck("region", lambda: [region_answer(settings, config)])
    aws = account_of(settings, config)
    if aws is None:
        return
    yield from account_checks(aws, settings, config)
    yield from quota_checks(aws, settings)
    yield from place_checks(aws, settings)
    yield from reservation_checks(aws, settings)
    yield from version_checks(aws, settings)


def account_of(settings: EksSettings, config: Mapping[str, Any]) -> Aws | None:
    """Return the account in the region of the stack's zone; None if the region is not known."""
    region = zone_region(settings.location)
    if is_zone_id(settings.location):
        # An id abbreviates its region, so only the configuration tells it.
        region = configured_region(config)
    profile = config.get("aws:profile")
    known = profile if isinstance(profile, str) and PROFILE.fullmatch(profile) else None
    return Aws(region, known) if region is not None and REGION.fullmatch(region) else None


def configured_region(config: Mapping[str, Any]) -> str | None:
    """Return the region of the provider, as pulumi-aws 7.51.1 finds it; None if it is not set or not a region."""
    region = config.get("aws:region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return region if isinstance(region, str) and REGION.fullmatch(region) else None


def region_answer(settings: EksSettings, config: Mapping[str, Any]) -> PreflightAnswer:
    """Judge whether the provider creates in the region of the zone."""
    region, profile = configured_region(config), config.get("aws:profile")

    def not_ok(cause: Cause, found: str, fix: str) -> PreflightAnswer:
        return Asked().not_ok("region", cause, found, fix)

    if region is None:
        fix = f"pulumi config set aws:region {zone_region(settings.location) or 'THE-REGION-OF-THE-ZONE'}"
        return not_ok("setup", "aws:region is not set to a region", fix)
    if problems := region_problems(settings.location, region):
        return not_ok("mismatch", problems[0].message, problems[0].fix)
    if profile is not None and not (isinstance(profile, str) and PROFILE.fullmatch(profile)):
        return not_ok("setup", "aws:profile is not the name of a profile", "pulumi config set aws:profile NAME")
    return Asked().ok("region", f"{region} is the region of {settings.location}")
