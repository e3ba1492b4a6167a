"""Service accounts and members of IAM policies: ids, computed outputs and replacement."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.gcp.references import fingerprint, last, project_of
from rehearsal.clouds.gcp.refusals import UNVERIFIED
from rehearsal.clouds.gcp.tokens import ACCOUNT, CLUSTER, NETWORK, PROJECT_MEMBER
from rehearsal.clouds.kind import Call, Json, Refusal
from rehearsal.clouds.state import View
from rehearsal.clouds.values import number

_OWN_ACCOUNT = re.compile(r"[a-z][-a-z0-9]{4,28}[a-z0-9]@(?P<project>[a-z][-a-z0-9]*)\.iam\.gserviceaccount\.com")
"""User-managed accounts. Google's agents have such addresses, too, in Google's projects."""

# Replacement: ForceNew in the provider (`refusals.PROVIDER_ACCOUNT`, `refusals.PROVIDER_IAM`).
ACCOUNT_REPLACES = frozenset({"accountId", "project"})
PROJECT_MEMBER_REPLACES = frozenset({"project", "role", "member", "condition"})
BUCKET_MEMBER_REPLACES = frozenset({"bucket", "role", "member", "condition"})


def email(inputs: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return the email of a service account."""
    return f"{inputs['accountId']}@{project_of(inputs, config)}.iam.gserviceaccount.com"


def identify_account(inputs: Json, config: Mapping[str, Any]) -> str:
    """Return projects/P/serviceAccounts/EMAIL."""
    return f"projects/{project_of(inputs, config)}/serviceAccounts/{email(inputs, config)}"


def account_taken(_type: str, id_: str) -> Refusal:
    """Return the refusal of a service account id that is in use."""
    project = id_.split("/")[1]
    return Refusal(
        "409 alreadyExists",
        f"Service account {last(id_).partition('@')[0]} already exists within project projects/{project}.",
        f"IAM API, serviceAccounts.create; wording {UNVERIFIED}",
    )


def compute_account(call: Call) -> Json:
    """Return the email in three notations, and a number."""
    address = email(call.inputs, call.config)
    return {
        "project": project_of(call.inputs, call.config),
        "name": call.id,
        "email": address,
        "member": f"serviceAccount:{address}",
        "uniqueId": number(call.id, 21),
    }


def identify_project_member(inputs: Json, config: Mapping[str, Any]) -> str:
    """Return P/ROLE/MEMBER, with the title of a condition."""
    return f"{project_of(inputs, config)}/{inputs['role']}/{inputs['member']}{_condition(inputs)}"


def identify_bucket_member(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return b/BUCKET/ROLE/MEMBER, with the title of a condition."""
    return f"b/{bucket(inputs)}/{inputs['role']}/{inputs['member']}{_condition(inputs)}"


def member_from_import(text: str, _config: Mapping[str, Any]) -> str:
    """Convert the import id "P ROLE MEMBER", with the title of a condition."""
    return "/".join(text.split(" ", 3))


def compute_project_member(call: Call) -> Json:
    """Return the project and its policy's etag."""
    return {"project": project_of(call.inputs, call.config), **compute_bucket_member(call)}


def compute_bucket_member(call: Call) -> Json:
    """Return the policy's etag."""
    return {"etag": call.live.get("etag", fingerprint(call.id))}


def bucket(inputs: Mapping[str, Any]) -> str:
    """Return the name of a bucket."""
    return str(inputs.get("bucket", "")).removeprefix("b/").removeprefix("gs://")


def _condition(inputs: Mapping[str, Any]) -> str:
    title = (inputs.get("condition") or {}).get("title")
    return f"/{title}" if title else ""


def known_account(state: View, address: str) -> bool:
    """Return whether a service account exists. Google's and other projects' accounts are assumed to exist."""
    found = _OWN_ACCOUNT.fullmatch(address)
    if found is None:
        return True
    project = found["project"]
    ours = any(live["project"] == project for _, _, live in state.all(ACCOUNT)) or project in _projects(state)
    return not ours or state.get(ACCOUNT, f"projects/{project}/serviceAccounts/{address}") is not None


def _projects(state: View) -> set[str]:
    """Return the projects with live objects."""
    return {str(live["project"]) for type_ in (NETWORK, CLUSTER, PROJECT_MEMBER) for _, _, live in state.all(type_)}
