"""Service accounts, and members of the IAM policies of projects and buckets: ids, computed outputs and rules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rehearsal.clouds.constraints import rule
from rehearsal.clouds.gcp import references as gcp
from rehearsal.clouds.gcp.references import TKE, fingerprint, project_of
from rehearsal.engine.kind import Call, Json, ResourceKind, value_at
from rehearsal.engine.values import number

_POOL = re.compile(r"(workloadIdentityPools/|serviceAccount:)(?P<pool>[a-z][-a-z0-9]*\.svc\.id\.goog)[/\[]")


def _email(inputs: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    return f"{inputs['accountId']}@{project_of(inputs, config)}.iam.gserviceaccount.com"


def compute_account(call: Call) -> Json:
    """Return the email in three notations, and a number."""
    address = _email(call.inputs, call.config)
    return {
        "project": project_of(call.inputs, call.config),
        "name": call.id,
        "email": address,
        "member": f"serviceAccount:{address}",
        "uniqueId": number(call.id, 21),
    }


def _member_id(policy: str, inputs: Mapping[str, Any]) -> str:
    """Return POLICY/ROLE/MEMBER, with the title of a condition."""
    title = (inputs.get("condition") or {}).get("title")
    return f"{policy}/{inputs['role']}/{inputs['member']}" + (f"/{title}" if title else "")


def identify_bucket_member(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return b/BUCKET/ROLE/MEMBER, with the title of a condition."""
    return _member_id(f"b/{str(inputs['bucket']).removeprefix('b/').removeprefix('gs://')}", inputs)


def compute_member(call: Call) -> Json:
    """Return the policy's etag."""
    return {"etag": call.live.get("etag", fingerprint(call.id))}


@rule(
    "create", refused=f"{TKE}#916, 2021-06-02", accepted="saltysoup/oasis-temp 72e2c748, 2025-09-19: infra/ray/iam.tf"
)
def identity_pool_exists(call: Call) -> str | None:
    """A project's workload identity pool exists after its first cluster with it."""
    match = _POOL.search(str(call.inputs.get("member", "")))
    clusters = [live for _, _, live in call.state.all(gcp.CLUSTER)]
    if match is None or any(
        value_at(live, "workloadIdentityConfig.workloadPool") == match["pool"] for live in clusters
    ):
        return None
    return (
        f"Identity Pool does not exist ({match['pool']}). Please check that you specified a valid resource name as "
        "returned in the `name` attribute in the configuration API."
    )


ACCOUNT = ResourceKind(
    type=gcp.ACCOUNT,
    identify=lambda inputs, config: f"projects/{project_of(inputs, config)}/serviceAccounts/{_email(inputs, config)}",
    compute=compute_account,
)
PROJECT_MEMBER = ResourceKind(
    type=gcp.PROJECT_MEMBER,
    identify=lambda inputs, config: _member_id(project_of(inputs, config), inputs),
    # "P ROLE MEMBER", with the title of a condition.
    from_import=lambda text, _config: "/".join(text.split(" ", 3)),
    compute=lambda call: {"project": project_of(call.inputs, call.config), **compute_member(call)},
    references=(gcp.TO_ACCOUNT,),
    rules=(identity_pool_exists,),
    # Every change of the policy changes its etag.
    drift=lambda live, _state: {"etag": fingerprint(f"{live.get('etag')} later")},
    # A repeated grant succeeds (provider: tpgiamresource/resource_iam_member.go).
    repeatable=True,
)
BUCKET_MEMBER = replace(PROJECT_MEMBER, type=gcp.BUCKET_MEMBER, identify=identify_bucket_member, compute=compute_member)
