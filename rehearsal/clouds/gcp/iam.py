"""Service accounts and members of IAM policies: their ids, computed outputs and what replaces them."""

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
"""Accounts that people make. Google's agents have such addresses, too, in projects of Google's."""

# What replaces each: ForceNew in the provider (`refusals.PROVIDER_ACCOUNT`, `sources.PROVIDER_IAM`).
ACCOUNT_REPLACES = frozenset({"accountId", "project"})
PROJECT_MEMBER_REPLACES = frozenset({"project", "role", "member", "condition"})
BUCKET_MEMBER_REPLACES = frozenset({"bucket", "role", "member", "condition"})


def email(inputs: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """The address of a service account."""
    return f"{inputs['accountId']}@{project_of(inputs, config)}.iam.gserviceaccount.com"


def identify_account(inputs: Json, config: Mapping[str, Any]) -> str:
    """projects/P/serviceAccounts/EMAIL."""
    return f"projects/{project_of(inputs, config)}/serviceAccounts/{email(inputs, config)}"


def account_taken(_type: str, id_: str) -> Refusal:
    """The words for a service account whose id is in use."""
    project = id_.split("/")[1]
    return Refusal(
        "409 alreadyExists",
        f"Service account {last(id_).partition('@')[0]} already exists within project projects/{project}.",
        f"IAM API, serviceAccounts.create; wording {UNVERIFIED}",
    )


def compute_account(call: Call) -> Json:
    """The address in three notations, and a number."""
    address = email(call.inputs, call.config)
    return {
        "project": project_of(call.inputs, call.config),
        "name": call.id,
        "email": address,
        "member": f"serviceAccount:{address}",
        "uniqueId": number(call.id, 21),
    }


def identify_project_member(inputs: Json, config: Mapping[str, Any]) -> str:
    """P/ROLE/MEMBER, with the title of a condition."""
    return f"{project_of(inputs, config)}/{inputs['role']}/{inputs['member']}{_condition(inputs)}"


def identify_bucket_member(inputs: Json, _config: Mapping[str, Any]) -> str:
    """b/BUCKET/ROLE/MEMBER, with the title of a condition."""
    return f"b/{bucket(inputs)}/{inputs['role']}/{inputs['member']}{_condition(inputs)}"


def member_from_import(text: str, _config: Mapping[str, Any]) -> str:
    """The id of a member of a policy from what it is imported by: "P ROLE MEMBER", with the title of a condition."""
    return "/".join(text.split(" ", 3))


def compute_project_member(call: Call) -> Json:
    """The project, and its policy's etag."""
    return {"project": project_of(call.inputs, call.config), **compute_bucket_member(call)}


def compute_bucket_member(call: Call) -> Json:
    """The policy's etag."""
    return {"etag": call.live.get("etag", fingerprint(call.id))}


def bucket(inputs: Mapping[str, Any]) -> str:
    """The bare name of a bucket."""
    return str(inputs.get("bucket", "")).removeprefix("b/").removeprefix("gs://")


def _condition(inputs: Mapping[str, Any]) -> str:
    title = (inputs.get("condition") or {}).get("title")
    return f"/{title}" if title else ""


def known_account(state: View, address: str) -> bool:
    """Whether a service account exists. Google's own and other projects' accounts are taken to exist."""
    found = _OWN_ACCOUNT.fullmatch(address)
    if found is None:
        return True
    project = found["project"]
    ours = any(live["project"] == project for _, _, live in state.all(ACCOUNT)) or project in _projects(state)
    return not ours or state.get(ACCOUNT, f"projects/{project}/serviceAccounts/{address}") is not None


def _projects(state: View) -> set[str]:
    """The projects in which something was made here."""
    return {str(live["project"]) for type_ in (NETWORK, CLUSTER, PROJECT_MEMBER) for _, _, live in state.all(type_)}
