"""Questions about the caller: who it is, and what it may do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infra.catalog.capacity import EKS_CAPACITIES
from infra.settings import EksSettings
from workloads.preflight.answers import Asked, PreflightAnswer, PreflightCheck
from workloads.preflight.aws_cli import Aws
from workloads.preflight.cli import NoAnswerError
from workloads.preflight.fields import flag, text

CALLER = ("sts", "get-caller-identity")
ORGANIZATION = ("organizations", "describe-organization")
POLICIES = "https://docs.aws.amazon.com/IAM/latest/UserGuide/access_policies_testing-policies.html"
OTHER_CALLERS = tuple(
    f"aws:{name}"
    for name in [
        "accessKey",
        "token",
        "assumeRoles",
        "assumeRoleWithWebIdentity",
        "sharedConfigFiles",
        "sharedCredentialsFiles",
    ]
)
"""Configuration with which `up` is somebody else than the caller of the command line (pulumi-aws 7.51.1: config)."""


def account_checks(aws: Aws, settings: EksSettings, config: Mapping[str, Any]) -> Iterator[PreflightCheck]:
    """Yield the questions about the caller."""
    yield PreflightCheck("caller", lambda: [caller(aws, config)])
    yield PreflightCheck("permissions", lambda: permissions(aws, settings))


def caller(aws: Aws, config: Mapping[str, Any]) -> PreflightAnswer:
    """Say who asks."""
    answer, said = aws.ask(*CALLER), aws.asked(*CALLER)
    arn = text(answer, "Arn")
    number = account(aws)
    if arn is None or number is None:
        raise aws.unclear("the answer names no caller", *CALLER)
    allowed = config.get("aws:allowedAccountIds")
    if isinstance(allowed, list) and number not in map(str, allowed):
        return said.not_ok(
            "caller",
            "mismatch",
            f"{arn} is of account {number}, which aws:allowedAccountIds does not have",
            "sign in to one of its accounts, or set aws:profile to a profile that does",
        )
    if other := [name for name in OTHER_CALLERS if config.get(name)]:
        return said.unknown(
            "caller",
            f"{arn} asks, but `up` uses {other[0]}: the other answers may differ for it",
            f"sign in the AWS CLI as the caller of {other[0]}, and run it again",
        )
    return said.ok("caller", arn)


def account(aws: Aws) -> str | None:
    """Return the number of the caller's account; None if the answer has none. Raises NoAnswerError."""
    number = text(aws.ask(*CALLER), "Account")
    return number if number and re.fullmatch(r"\d{12}", number, re.ASCII) else None


def actions(settings: EksSettings) -> list[str]:
    """Return the IAM actions that `up` needs to create the stack, besides the budget.

    Those of one kind of resource are granted together by every usual policy, so the one that creates it stands for
    them. EKS checks ec2:RunInstances of the caller, whose launch template a node group uses (EKS docs,
    launch-templates), and FSx makes a service-linked role for the bucket (FSx for Lustre docs, setting-up; both
    unverified, 2026-11).
    """
    storage, own_network = settings.storage.bucket is not None, not settings.on_users_network
    makes_group = EKS_CAPACITIES[settings.nodes.capacity].placement_group and settings.nodes.placement_group is None
    needs = {
        "ec2:CreateSecurityGroup ec2:CreateLaunchTemplate ec2:RunInstances ec2:CreateTags": True,
        "iam:CreateRole iam:AttachRolePolicy iam:PassRole": True,
        "eks:CreateNodegroup autoscaling:CreateOrUpdateTags": True,
        "eks:CreatePodIdentityAssociation iam:PutRolePolicy": settings.installs("cluster-autoscaler"),
        "eks:CreateCluster eks:CreateAddon kms:CreateKey logs:CreateLogGroup": settings.own_cluster,
        "ec2:CreateVpc ec2:CreateSubnet ec2:CreateRouteTable ec2:CreateVpcEndpoint": own_network,
        "ec2:AllocateAddress ec2:CreateNatGateway ec2:CreateInternetGateway": own_network
        and settings.access.egress == "nat",
        "ec2:CreateFlowLogs": own_network and settings.hardening,
        "ec2:CreatePlacementGroup": makes_group,
        "autoscaling:PutScheduledUpdateGroupAction": settings.nodes.block_ends is not None,
        "fsx:CreateFileSystem fsx:CreateDataRepositoryAssociation iam:CreateServiceLinkedRole": storage,
    }
    return list(dict.fromkeys(action for names, needed in needs.items() if needed for action in names.split()))


def permissions(aws: Aws, settings: EksSettings) -> Iterator[PreflightAnswer]:
    """Say what the caller's policies, and those of its organization, do not allow."""
    needed = actions(settings)
    budget = ["budgets:ModifyBudget"] if settings.budget.email is not None else []
    asked = (
        "iam",
        "simulate-principal-policy",
        f"--policy-source-arn={principal(aws)}",
        "--action-names",
        *needed,
        *budget,
    )
    rows, said = aws.rows("EvaluationResults", *asked), aws.asked(*asked)
    found = {name: row for row in rows if (name := text(row, "EvalActionName")) is not None}
    yield _allowed("permissions", needed, found, said)
    if budget:
        yield _allowed("budget", budget, found, said)
    yield _organization(aws, [found.get(action, {}) for action in (*needed, *budget)], said)


def _allowed(check: str, needed: Sequence[str], found: Mapping[str, Mapping[str, Any]], said: Asked) -> PreflightAnswer:
    decisions = {action: text(found.get(action), "EvalDecision") for action in needed}
    denied = [action for action, decision in decisions.items() if decision in ("explicitDeny", "implicitDeny")]
    unclear = [action for action, decision in decisions.items() if decision != "allowed" and action not in denied]
    if denied:
        # A condition that the simulation cannot evaluate is no denial (IAM API, EvaluationResult, read 2026-11-28).
        depends = [action for action in denied if (found[action].get("MissingContextValues") or []) != []]
        if len(depends) < len(denied):
            return said.not_ok(
                check,
                "access",
                f"the caller's policies do not allow {', '.join(each for each in denied if each not in depends)}",
                "add them to the caller's policies, or sign in as another role",
            )
        unclear += depends
    if unclear:
        why = f"whether {', '.join(unclear)} is allowed depends on more than the simulation knows"
        return said.unknown(check, why, f"test it: {POLICIES}")
    some = ", ".join(needed[:3])
    return said.ok(check, f"{len(needed)} actions are allowed: {some}{'…' * (len(needed) > 3)}")


def _organization(aws: Aws, rows: Sequence[Mapping[str, Any]], said: Asked) -> PreflightAnswer:
    """Judge the service control policies. Outside an organization, the simulation has no such detail."""
    allowed = [flag(row, "OrganizationsDecisionDetail", "AllowedByOrganizations") for row in rows]
    name = "organization policies"
    if any(each is False for each in allowed):
        denied = [str(text(row, "EvalActionName")) for row, each in zip(rows, allowed, strict=True) if each is False]
        return said.not_ok(
            name,
            "access",
            f"a service control policy denies {', '.join(denied)}",
            "ask who manages your AWS organization, or use another account or region",
        )
    if rows and all(allowed):
        return said.ok(name, "service control policies allow the actions")
    try:
        aws.ask(*ORGANIZATION)
    except NoAnswerError as error:
        if "AWSOrganizationsNotInUseException" in error.reason:
            return Asked(error.asked).ok(name, "the account is in no organization")
        return Asked(error.asked).unknown(name, error.reason, error.fix)
    return said.unknown(
        name, "the simulation does not say what service control policies allow", "ask who manages your AWS organization"
    )


def principal(aws: Aws) -> str:
    """Return the ARN of the caller's user or role. Raises NoAnswerError.

    A session's ARN lacks the path of its role, which the simulation requires (IAM docs, identifiers; read 2026-11-28).
    """
    answer = aws.ask(*CALLER)
    # Not by `text`, which shortens it.
    arn = answer.get("Arn") if isinstance(answer, Mapping) else None
    arn = arn if isinstance(arn, str) else ""
    if session := re.fullmatch(r"arn:aws:sts::\d{12}:assumed-role/([\w+=,.@-]{1,64})/[\w+=,.@-]{2,64}", arn, re.ASCII):
        asked = ("iam", "get-role", f"--role-name={session[1]}")
        role = aws.ask(*asked)
        role = role.get("Role") if isinstance(role, Mapping) else None
        arn = role.get("Arn") if isinstance(role, Mapping) else None
        arn = arn if isinstance(arn, str) else ""
    if not re.fullmatch(r"arn:aws:iam::\d{12}:(?:user|role)/[\w+=,.@/-]{1,600}", arn, re.ASCII):
        who = "the root user, whose rights cannot be simulated" if arn.endswith(":root") else "neither user nor role"
        raise NoAnswerError("broken", f"the caller is {who}", "sign in as a role", aws.line(*CALLER))
    return arn
