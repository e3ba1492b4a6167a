"""Rules of members of IAM policies."""

from __future__ import annotations

import re

from rehearsal.clouds.gcp.iam import bucket, known_account
from rehearsal.clouds.gcp.references import project_number
from rehearsal.clouds.gcp.refusals import NO_ACCOUNT, NO_IDENTITY_POOL, UNVERIFIED, bad
from rehearsal.clouds.gcp.tokens import CLUSTER
from rehearsal.clouds.kind import Call, Refusal, on, value_at

_MEMBER = re.compile(
    r"(allUsers|allAuthenticatedUsers|(user|serviceAccount|group|domain|deleted|projectOwner|projectEditor"
    r"|projectViewer|principal|principalSet):\S+)"
)
_ROLE = re.compile(r"(roles/[A-Za-z0-9_.]+|(projects|organizations)/[^/]+/roles/[A-Za-z0-9_.]+)")
_POOL = re.compile(
    r"/projects/(?P<number>[^/]+)/locations/global/workloadIdentityPools/(?P<pool>(?P<project>[^/]+)\.svc\.id\.goog)/"
)
_OLD_POOL = re.compile(r"serviceAccount:(?P<pool>(?P<project>[^\[]+)\.svc\.id\.goog)\[")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9_.-]{1,220}[a-z0-9]")


@on("create")
def member_malformed(call: Call) -> Refusal | None:
    """A member has a type prefix."""
    member = str(call.inputs.get("member", ""))
    if _MEMBER.fullmatch(member):
        return None
    return bad(f'invalid value for member: "{member}" (IAM members must have one of the known types as a prefix)', _IAM)


@on("create")
def role_malformed(call: Call) -> Refusal | None:
    """A role is a predefined one, or one of a project or organization."""
    role = str(call.inputs.get("role", ""))
    if _ROLE.fullmatch(role):
        return None
    return bad(f"Role {role} is not supported for this resource.", _IAM)


@on("create")
def account_missing(call: Call) -> Refusal | None:
    """A service account exists before it becomes a member."""
    kind, _, address = str(call.inputs.get("member", "")).partition(":")
    if kind != "serviceAccount" or known_account(call.state, address):
        return None
    return bad(f"Service account {address} does not exist.", NO_ACCOUNT)


@on("create")
def identity_pool_missing(call: Call) -> Refusal | None:
    """A project's workload identity pool exists after its first cluster with it, and is named by project number."""
    member = str(call.inputs.get("member", ""))
    found = _POOL.search(member) or _OLD_POOL.match(member)
    if found is None:
        return None
    pool, project = found["pool"], found["project"]
    right_number = found.re is _OLD_POOL or found["number"] == project_number(project)
    exists = any(
        value_at(cluster, "workloadIdentityConfig.workloadPool") == pool for _, _, cluster in call.state.all(CLUSTER)
    )
    if right_number and exists:
        return None
    return bad(
        f"Identity Pool does not exist ({pool}). Please check that you specified a valid resource name as returned in "
        "the `name` attribute in the configuration API.",
        NO_IDENTITY_POOL,
    )


@on("create")
def bucket_malformed(call: Call) -> Refusal | None:
    """A bucket's name has 3 to 63 characters, up to 222 with dots. Every well-formed bucket exists here."""
    name = bucket(call.inputs)
    parts = name.split(".")
    if _BUCKET.fullmatch(name) and all(0 < len(part) <= 63 for part in parts) and not name.startswith("goog"):
        return None
    return bad(f"Invalid bucket name: '{name}'", f"Cloud Storage docs, bucket names; wording {UNVERIFIED}")


_IAM = f"Google Cloud IAM API, Policy; wording {UNVERIFIED}"
