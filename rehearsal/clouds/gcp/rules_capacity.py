"""Rules of capacity: flex-start, queued provisioning, spot, reservations, compact placement."""

from __future__ import annotations

import re

from infra.catalog.machines import GKE_CATALOG
from rehearsal.clouds.gcp.node_config import affinity, is_flex, is_queued, is_spot, machine, node
from rehearsal.clouds.gcp.offerings import key
from rehearsal.clouds.gcp.references import cluster_of, pool_zones
from rehearsal.clouds.gcp.refusals import (
    DWS,
    PROVIDER_NODE,
    QUEUED,
    QUEUED_AFFINITY,
    TOOLKIT,
    UNVERIFIED,
    UPGRADES,
    bad,
)
from rehearsal.clouds.kind import Call, Refusal, on, value_at

LONGEST_RUN_S = 604800
FLEX_MINIMUM = "1.32.2-gke.1652000"
RESERVATION_KEY = "compute.googleapis.com/reservation-name"
COMPACT_FLEX = ("a3-ultragpu-", "a4-", "h4d-")


@on("create", "update")
def queued_with_reservation(call: Call) -> Refusal | None:
    """Queued nodes explicitly use no reservation."""
    if not is_queued(call.inputs) or affinity(call.inputs) == "NO_RESERVATION":
        return None
    return bad("Queued_provisioning requires reservation affinity to be set to none", QUEUED_AFFINITY)


@on("create", "update")
def queued_without_autoscaling(call: Call) -> Refusal | None:
    """Queued nodes need the autoscaler."""
    if not is_queued(call.inputs) or call.inputs.get("autoscaling"):
        return None
    return _queued("autoscaling to be enabled")


@on("create", "update")
def queued_with_minimum(call: Call) -> Refusal | None:
    """A queued pool may be empty."""
    scaling = call.inputs.get("autoscaling") or {}
    if not is_queued(call.inputs) or not (scaling.get("totalMinNodeCount") or scaling.get("minNodeCount")):
        return None
    return _queued("the minimum number of nodes to be 0")


@on("create", "update")
def queued_with_other_policy(call: Call) -> Refusal | None:
    """Queued nodes use location policy ANY."""
    if not is_queued(call.inputs) or not call.inputs.get("autoscaling"):
        return None
    if value_at(call.inputs, "autoscaling.locationPolicy") == "ANY":
        return None
    return _queued("location policy to be set to ANY")


@on("create", "update")
def queued_with_spot(call: Call) -> Refusal | None:
    """Queued nodes are not spot nodes."""
    return _queued("spot to be disabled") if is_queued(call.inputs) and is_spot(call.inputs) else None


@on("create", "update")
def queued_with_repair(call: Call) -> Refusal | None:
    """A queued node is not repaired: its replacement would not belong to the request."""
    if not is_queued(call.inputs) or value_at(call.inputs, "management.autoRepair") is False:
        return None
    return _queued("auto_repair to be disabled")


@on("create")
def queued_with_nodes(call: Call) -> Refusal | None:
    """A queued pool starts empty."""
    if not is_queued(call.inputs) or not (call.inputs.get("initialNodeCount") or call.inputs.get("nodeCount")):
        return None
    return _queued("the initial number of nodes to be 0")


@on("create")
def queued_and_compact(call: Call) -> Refusal | None:
    """Queued GPU nodes cannot use compact placement."""
    if not is_queued(call.inputs) or not _compact(call) or not node(call.inputs).get("guestAccelerators"):
        return None
    return bad(
        "Queued_provisioning is not supported with COMPACT placement for GPUs", f"{TOOLKIT}; wording {UNVERIFIED}"
    )


def _queued(wanted: str) -> Refusal:
    return bad(f"Queued_provisioning requires {wanted}", f"{QUEUED}; {TOOLKIT}; wording {UNVERIFIED}")


@on("create", "update")
def flex_with_repair(call: Call) -> Refusal | None:
    """A flex-start node is not repaired."""
    if not is_flex(call.inputs) or value_at(call.inputs, "management.autoRepair") is False:
        return None
    return _flex("auto_repair to be disabled")


@on("create", "update")
def flex_with_nodes(call: Call) -> Refusal | None:
    """A flex-start pool starts empty and has no fixed size."""
    if not is_flex(call.inputs):
        return None
    # The initial count of a live pool does not matter: it follows the autoscaler.
    begins = call.verb == "create" and call.inputs.get("initialNodeCount")
    return (
        _flex("initial_node_count to be 0 and no static node_count") if begins or call.inputs.get("nodeCount") else None
    )


@on("create", "update")
def flex_without_autoscaling(call: Call) -> Refusal | None:
    """Flex-start nodes need the autoscaler."""
    return _flex("autoscaling to be enabled") if is_flex(call.inputs) and not call.inputs.get("autoscaling") else None


@on("create", "update")
def flex_with_reservation(call: Call) -> Refusal | None:
    """Flex-start nodes use no reservation."""
    if not is_flex(call.inputs) or affinity(call.inputs) in (None, "NO_RESERVATION"):
        return None
    return _flex("reservation affinity to be NO_RESERVATION")


@on("create", "update")
def flex_with_spot(call: Call) -> Refusal | None:
    """Flex-start and spot exclude each other."""
    return _flex("spot to be disabled") if is_flex(call.inputs) and is_spot(call.inputs) else None


@on("create", "update")
def flex_on_old_version(call: Call) -> Refusal | None:
    """Flex-start with GPUs needs a minimum version."""
    version = str(call.inputs.get("version") or (cluster_of(call) or {}).get("masterVersion") or "")
    if not is_flex(call.inputs) or not version or key(version) >= key(FLEX_MINIMUM):
        return None
    return bad(
        f"Flex_start requires GKE version {FLEX_MINIMUM} or later, got {version}.", f"{DWS}; wording {UNVERIFIED}"
    )


@on("create", "update")
def flex_with_upgrade_settings(call: Call) -> Refusal | None:
    """Flex-start nodes use short-lived upgrades; surge and blue-green settings do not apply."""
    settings = call.inputs.get("upgradeSettings") or {}
    named = [name for name in ("maxSurge", "maxUnavailable", "blueGreenSettings") if settings.get(name)]
    if not is_flex(call.inputs) or not (named or settings.get("strategy") == "BLUE_GREEN"):
        return None
    return bad(
        "Flex_start node pools use short-lived upgrades; surge and blue-green upgrade settings cannot be set.",
        f"{UPGRADES}; wording {UNVERIFIED}",
    )


def _flex(wanted: str) -> Refusal:
    return bad(f"Flex_start requires {wanted}", f"{TOOLKIT}; wording {UNVERIFIED}")


@on("create")
def run_duration_malformed(call: Call) -> Refusal | None:
    """A run time is a number of seconds with the suffix "s"."""
    text = node(call.inputs).get("maxRunDuration")
    if not text or re.fullmatch(r"\d+(\.\d{1,9})?s", str(text)):
        return None
    return bad(
        f'Invalid value at "node_pool.config.max_run_duration" (type.googleapis.com/google.protobuf.Duration), '
        f'"{text}"',
        f"{PROVIDER_NODE}: max_run_duration; protobuf Duration in JSON; wording {UNVERIFIED}",
    )


@on("create")
def runs_too_long(call: Call) -> Refusal | None:
    """The maximum run time is seven days."""
    found = re.fullmatch(r"(\d+)(\.\d+)?s", str(node(call.inputs).get("maxRunDuration") or ""))
    if found is None or int(found[1]) <= LONGEST_RUN_S:
        return None
    return bad(f"max_run_duration must be at most {LONGEST_RUN_S}s (7 days).", f"{DWS}; wording {UNVERIFIED}")


@on("create")
def spot_with_reservation(call: Call) -> Refusal | None:
    """Spot nodes use no reservation."""
    if not is_spot(call.inputs) or is_flex(call.inputs) or affinity(call.inputs) in (None, "NO_RESERVATION"):
        return None
    return bad("Spot VMs cannot consume reservations.", f"{TOOLKIT}; wording {UNVERIFIED}")


@on("create")
def reservation_unnamed(call: Call) -> Refusal | None:
    """A specific reservation is one name under the reservation key."""
    asked = node(call.inputs).get("reservationAffinity") or {}
    if affinity(call.inputs) != "SPECIFIC_RESERVATION":
        return None
    if asked.get("key") == RESERVATION_KEY and len(asked.get("values") or []) == 1:
        return None
    return bad(
        f'SPECIFIC_RESERVATION requires key "{RESERVATION_KEY}" and exactly one reservation in values.',
        f"{TOOLKIT}; wording {UNVERIFIED}",
    )


@on("create")
def reservation_name_without_affinity(call: Call) -> Refusal | None:
    """Only a specific reservation has a name."""
    asked = node(call.inputs).get("reservationAffinity") or {}
    if affinity(call.inputs) in (None, "SPECIFIC_RESERVATION") or not (asked.get("key") or asked.get("values")):
        return None
    return bad(
        "Reservation affinity key and values can only be set with SPECIFIC_RESERVATION.",
        f"Compute Engine API, ReservationAffinity; wording {UNVERIFIED}",
    )


@on("create")
def block_without_zones(call: Call) -> Refusal | None:
    """A block of a reservation is in one zone, which the pool sets."""
    values = value_at(call.inputs, "nodeConfig.reservationAffinity.values") or []
    if not any("/reservationBlocks/" in str(value) for value in values) or call.inputs.get("nodeLocations"):
        return None
    return bad("node_locations must be set when a reservation block is targeted.", f"{TOOLKIT}; wording {UNVERIFIED}")


@on("create")
def compact_in_several_zones(call: Call) -> Refusal | None:
    """Nodes in compact placement are in one zone."""
    if not _compact(call) or len(pool_zones(call)) == 1:
        return None
    return bad("COMPACT placement requires a node pool in a single zone.", f"{TOOLKIT}; wording {UNVERIFIED}")


@on("create", "update")
def compact_and_blue_green(call: Call) -> Refusal | None:
    """Compact placement does not allow blue-green upgrades."""
    if not _compact(call) or value_at(call.inputs, "upgradeSettings.strategy") in (None, "SURGE"):
        return None
    return bad("COMPACT placement supports the SURGE upgrade strategy only.", f"{TOOLKIT}; wording {UNVERIFIED}")


@on("create")
def compact_flex_on_other_machine(call: Call) -> Refusal | None:
    """Few machine types support flex-start with compact placement."""
    if not _compact(call) or not is_flex(call.inputs) or machine(call.inputs).startswith(COMPACT_FLEX):
        return None
    return bad(
        f"COMPACT placement with flex_start is not supported for machine type {machine(call.inputs)}.",
        f"{TOOLKIT}; wording {UNVERIFIED}",
    )


@on("create")
def not_obtainable(call: Call) -> Refusal | None:
    """Some machine types need a reservation."""
    row = GKE_CATALOG.get(machine(call.inputs))
    if row is None or row.capacities != ("reservation",) or affinity(call.inputs) == "SPECIFIC_RESERVATION":
        return None
    return bad(
        f"Machine type {row.name} can be used with a specific reservation only.",
        f"{row.sources['capacities']}; wording {UNVERIFIED}",
    )


def _compact(call: Call) -> bool:
    return bool(value_at(call.inputs, "placementPolicy.type") == "COMPACT")
