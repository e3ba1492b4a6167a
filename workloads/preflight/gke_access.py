"""What a project on Google Cloud allows: APIs, roles of the caller, policies of the organization, billing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infra.catalog.gcp import (
    APIS,
    BINARY_AUTHORIZATION_API,
    BUCKET_API,
    BUDGET_API,
    OPERATOR_ROLES,
    REGISTRY_API,
)
from infra.settings import GkeSettings
from workloads.preflight.answers import Asked, PreflightAnswer
from workloads.preflight.fields import entries, flag, text, texts
from workloads.preflight.gcloud import Question
from workloads.preflight.gke_place import in_artifact_registry

OWNER = "roles/owner"
"""It has every right of OPERATOR_ROLES (IAM docs, basic roles, read 2026-11)."""
CONSTRAINTS = "Resource Manager docs, org-policy-constraints, read 2026-11"
NO_ACCOUNTS, NO_NAT, LOCATIONS = (
    "iam.disableServiceAccountCreation",
    "compute.restrictCloudNATUsage",
    "gcp.resourceLocations",
)
"""Constraints of an organization that stop a stack: nodes have a service account, the network has a NAT gateway, and
every resource has a location (CONSTRAINTS)."""


def apis(settings: GkeSettings) -> tuple[str, ...]:
    """Return the APIs that a stack needs."""
    optional = (
        (BUCKET_API, settings.storage.bucket is not None),
        (BUDGET_API, settings.budget.monthly is not None),
        (REGISTRY_API, in_artifact_registry(settings.ray.image)),
        (BINARY_AUTHORIZATION_API, settings.hardening),
    )
    return APIS + tuple(api for api, needed in optional if needed)


def api_answers(question: Question) -> Iterator[PreflightAnswer]:
    """Yield whether the APIs of the stack are enabled."""
    reply = question.account.ask("services", "list", "--enabled")
    listed = entries({"": reply.document}, "")
    project, needed = question.account.project, apis(question.settings)
    # No project is without any API that is enabled: an empty list is no answer.
    if not listed:
        yield reply.unknown("APIs", "the answer lists no API", "look in the console")
        return
    enabled = {text(entry, "config", "name") for entry in listed if text(entry, "state") == "ENABLED"}
    if off := [api for api in needed if api not in enabled]:
        fix = f"gcloud services enable {' '.join(off)} --project={project}"
        found = f"not enabled: {', '.join(off)}"
        yield reply.not_ok("APIs", "setup", found, fix)
    else:
        yield reply.ok("APIs", f"all {len(needed)} are enabled")


def role_answers(question: Question) -> Iterator[PreflightAnswer]:
    """Yield whether the caller has the roles of an operator on the project.

    Roles of groups, folders and the organization do not show there, so a missing role is unknown.
    """
    project, member = question.account.project, question.account.member
    check, roles = "roles", ", ".join(OPERATOR_ROLES)
    if member is None:
        fix = "gcloud auth login"
        yield Asked().unknown(check, "gcloud has no account", fix)
        return
    reply = question.account.ask("projects", "get-iam-policy", project)
    held = {
        text(binding, "role")
        for binding in entries(reply.document, "bindings") or ()
        # A condition may exclude what the stack does.
        if "condition" not in binding and member in (texts(binding, "members") or ())
    }
    who = f"{member} (Pulumi uses its application default credentials, which may be another's)"
    missing = [] if OWNER in held else [role for role in OPERATOR_ROLES if role not in held]
    if not missing:
        found = f"{who} has {OWNER if OWNER in held else roles}"
        yield reply.ok(check, found)
        return
    found = (
        f"{who} does not have {', '.join(missing)} on the project itself; a group, a folder or the organization may "
        "give them"
    )
    fix = "; ".join(
        f"gcloud projects add-iam-policy-binding {project} --member={member} --role={role}" for role in missing
    )
    yield reply.unknown(check, found, fix)


def policy_answers(question: Question, constraint: str) -> Iterator[PreflightAnswer]:
    """Yield whether an organization's constraint stops the stack."""
    reply = question.account.ask("resource-manager", "org-policies", "describe", constraint, "--effective")
    check = f"policy {constraint}"
    fix = f"ask an administrator of your organization for an exception from {constraint} for the project"
    stops = stopped_by(reply.document, constraint, question.region)
    if stops is None:
        found = "it restricts something, and whether that concerns the stack is not known"
        yield reply.unknown(check, found, fix)
    elif stops:
        found = {
            NO_ACCOUNTS: "no service account can be created, which the nodes need",
            NO_NAT: "no NAT gateway can be created, without which nodes do not reach registries outside Google",
        }.get(constraint, f"no resource can be in {question.region}")
        yield reply.not_ok(check, "access", found, fix)
    else:
        yield reply.ok(check, "nothing is restricted there")


def stopped_by(document: object, constraint: str, region: str) -> bool | None:
    """Return whether an effective policy stops a stack in a region; None if it does not say so.

    The API omits what is false or empty: a boolean policy that is not enforced is an empty map.
    """
    if text(document, "constraint") != f"constraints/{constraint}" or not isinstance(document, Mapping):
        return None
    if constraint == NO_ACCOUNTS:
        policy = document.get("booleanPolicy")
        if not isinstance(policy, Mapping) or policy.keys() - {"enforced"}:
            return None
        return flag(policy, "enforced") if "enforced" in policy else False
    policy = document.get("listPolicy")
    every = text(policy, "allValues")
    if every in ("ALLOW", "DENY"):
        return every == "DENY"
    if constraint == NO_NAT or not isinstance(policy, Mapping):
        return None
    allowed, denied = texts(policy, "allowedValues"), policy.get("deniedValues")
    if allowed and not denied and {f"in:{region}-locations", region} & set(allowed):
        return False
    return None


def billing_answers(question: Question) -> Iterator[PreflightAnswer]:
    """Yield whether the project is billed to the account of the budget."""
    project, account = question.account.project, question.settings.budget.billing_account
    reply = question.account.ask("billing", "projects", "describe", project)
    check, enabled, billed = (
        "billing",
        flag(reply.document, "billingEnabled"),
        text(reply.document, "billingAccountName"),
    )
    fix = f"gcloud billing projects link {project} --billing-account={account}"
    if enabled is None or (enabled and billed is None):
        found = "the answer has no billing account"
        yield reply.unknown(check, found, fix)
    elif not enabled:
        found = "the project has no billing account"
        yield reply.not_ok(check, "setup", found, fix)
    elif billed != f"billingAccounts/{account}":
        found = f"the project is billed to {billed}, and budget.billingAccount is {account}"
        fix = f"set budget.billingAccount to {str(billed).rpartition('/')[2]}, or {fix}"
        yield reply.not_ok(check, "mismatch", found, fix)
    else:
        found = f"{account}; the right to create budgets there (roles/billing.costsManager) was not asked"
        yield reply.ok(check, found)
