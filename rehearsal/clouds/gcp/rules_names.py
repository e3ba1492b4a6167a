"""Rules that many kinds share: names, projects, regions, and deletion policies."""

from __future__ import annotations

import re

from rehearsal.clouds.gcp.references import location_of, project_of, region_of
from rehearsal.clouds.gcp.refusals import PROVIDER_ACCOUNT, PROVIDER_CLUSTER, PROVIDER_COMPUTE, UNVERIFIED, bad, invalid
from rehearsal.clouds.kind import Call, Refusal, Rule, on

LONGEST_NAME = 63
LONGEST_GKE_NAME = 40
_GCE_NAME = "[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
_GKE_NAME = "[a-z]([-a-z0-9]*[a-z0-9])?"
_ACCOUNT_ID = "[a-z][-a-z0-9]{4,28}[a-z0-9]"


def _rfc1035(name: str) -> Rule:
    def rule(call: Call) -> Refusal | None:
        value = str(call.inputs.get("name", ""))
        if re.fullmatch(_GCE_NAME, value):
            return None
        return invalid(
            "resource.name",
            value,
            f"Must be a match of regex '(?:{_GCE_NAME})'",
            f"{PROVIDER_COMPUTE}: ValidateGCEName; wording {UNVERIFIED}",
        )

    rule.__name__ = name
    rule.__doc__ = f"A name has at most {LONGEST_NAME} characters and follows RFC 1035."
    return on("create")(rule)


network_name: Rule = _rfc1035("network_name")
subnetwork_name: Rule = _rfc1035("subnetwork_name")
firewall_name: Rule = _rfc1035("firewall_name")
router_name: Rule = _rfc1035("router_name")
nat_name: Rule = _rfc1035("nat_name")


@on("create")
def cluster_name(call: Call) -> Refusal | None:
    """A cluster's name has at most 40 characters: lower case letters, digits and hyphens, a letter first."""
    return _gke_name(call, '"name"')


@on("create")
def pool_name(call: Call) -> Refusal | None:
    """A node pool's name follows the same rule as a cluster's."""
    return _gke_name(call, "node_pool.name") if call.inputs.get("name") else None


def _gke_name(call: Call, field: str) -> Refusal | None:
    name = str(call.inputs.get("name", ""))
    if len(name) > LONGEST_GKE_NAME:
        return bad(f"{field} cannot be longer than 40 characters", PROVIDER_CLUSTER)
    if not re.fullmatch(_GKE_NAME, name):
        return bad(
            f"{field} can only contain lowercase letters, numbers and hyphens, must start with a letter and end with "
            "a number or a letter",
            PROVIDER_CLUSTER,
        )
    return None


@on("create")
def account_id(call: Call) -> Refusal | None:
    """A service account's id has 6 to 30 characters and follows RFC 1035."""
    value = str(call.inputs.get("accountId", ""))
    if re.fullmatch(_ACCOUNT_ID, value):
        return None
    return bad(
        f'"account_id" ("{value}") must be 6-30 characters long and match the regular expression '
        "[a-z]([-a-z0-9]*[a-z0-9])",
        PROVIDER_ACCOUNT,
    )


@on("create")
def project_missing(call: Call) -> Refusal | None:
    """Everything belongs to a project: its own, or the provider's."""
    if project_of(call.inputs, call.config):
        return None
    return bad("project: required field is not set", f"{PROVIDER_COMPUTE}: GetProject; wording {UNVERIFIED}")


@on("create")
def region_missing(call: Call) -> Refusal | None:
    """Regional resources need a region: their own, or the provider's."""
    return None if region_of(call.inputs, call.config) else _no_place("region")


@on("create")
def location_missing(call: Call) -> Refusal | None:
    """Clusters and pools need a zone or region: their own, or the provider's."""
    return None if location_of(call.inputs, call.config) else _no_place("location")


def _no_place(what: str) -> Refusal:
    return bad(
        f"Cannot determine {what}: set in this resource, or set provider-level '{what}'",
        f"{PROVIDER_COMPUTE}: GetRegion; wording {UNVERIFIED}",
    )


@on("delete")
def deletion_prevented(call: Call) -> Refusal | None:
    """An object with the deletion policy PREVENT is not deleted."""
    if call.live.get("deletionPolicy") != "PREVENT":
        return None
    # The provider's two generators name it differently.
    compute = call.type.startswith("gcp:compute/")
    resource = f"Compute{call.type.rpartition(':')[2]}" if compute else f'"{call.id}"'
    return bad(
        f'cannot destroy {resource} without setting deletion_policy="DELETE" and running `terraform apply`',
        f"{PROVIDER_COMPUTE}: deletion_policy; tpgresource/utils.go: DeletionPolicyPreDelete",
    )
