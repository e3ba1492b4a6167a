"""Kinds of capacity: the inputs that a node pool or node group needs to obtain machines of each kind.

Facts only. Which settings can be combined is in the validation rules; which machine is available as which capacity is
in `infra.catalog.machines`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

DWS = "GKE docs concepts/dws, read 2026-08"
QUEUED = "GKE docs provisioningrequest, 2026-04-08"
TOOLKIT = "GoogleCloudPlatform/cluster-toolkit: gke-node-pool preconditions, 10470803, 2026-06-25"
SPOT_NOTICE = "GKE docs concepts/spot-vms, graceful termination, read 2026-11-26; pulumi-gcp 10.2.0: kubeletConfig"
BLOCKS = "EKS docs capacity-blocks-mng; aws-ia blueprint ml-capacity-block, 98d0eb4"

MAX_RUN_HOURS = 168
"""Maximum run time of a flex-start node, in hours: seven days (GKE docs concepts/dws, read 2026-08). Requests for
machines wait for the same time, because no source states a limit."""

CRITICAL_PODS_S = 15
"""Last seconds of a GKE node's shutdown, which are for its critical pods: GKE's default (SPOT_NOTICE)."""


@dataclass(frozen=True, kw_only=True)
class GkeCapacity:
    """Inputs of a GKE node pool for one kind of capacity.

    `reservation_affinity` is node_config.reservation_affinity.consume_reservation_type. The API requires `auto_repair`
    to be false for flex-start. `starts_empty` is whether the pool is created with 0 nodes and may stay at 0.
    `placement` is the policy that keeps the nodes close together: a group placement policy, which GKE creates, or a
    workload policy; None where GKE rejects both (queued) or the reservation decides.
    `wait_hours` is how long a request for a machine waits before it fails (this project's choice). `shutdown_s` is how
    many seconds the kubelet delays a machine's shutdown, where the pool sets it, and `min_version` the first GKE that
    can.
    """

    flex_start: bool = False
    queued: bool = False
    spot: bool = False
    reservation_affinity: Literal["NO_RESERVATION", "SPECIFIC_RESERVATION"] = "NO_RESERVATION"
    auto_repair: bool = True
    starts_empty: bool = False
    placement: Literal["group", "workload"] | None = None
    shutdown_s: int | None = None
    min_version: str = "1.0"
    wait_hours: int


@dataclass(frozen=True, kw_only=True)
class EksCapacity:
    """Inputs of an EKS managed node group and its launch template for one kind of capacity.

    `capacity_type` is set on the node group, `market_type` in the launch template's market options, if there are any.
    `placement_group` is whether the nodes share a cluster placement group: combined with a reservation it makes part of
    the capacity unusable. `wait_hours` is how long a request for a machine waits before it fails (this project's
    choice).
    """

    capacity_type: Literal["ON_DEMAND", "SPOT", "CAPACITY_BLOCK"]
    market_type: Literal["capacity-block"] | None = None
    targets_reservation: bool = False
    placement_group: bool = False
    starts_empty: bool = False
    wait_hours: int


GKE_CAPACITIES: dict[str, GkeCapacity] = {
    # For at most seven days, one by one as machines become free, up to 53 % cheaper than on demand (DWS; TOOLKIT).
    # Close together by a workload policy (cluster-toolkit: dws-flex-start-compact-placement, 10470803, 2026-06-25).
    "flex-start": GkeCapacity(
        flex_start=True, auto_repair=False, starts_empty=True, placement="workload", wait_hours=MAX_RUN_HOURS
    ),
    # All machines of a job at once, for at most seven days, after a wait in Google's queue (QUEUED; TOOLKIT).
    "flex-start-queued": GkeCapacity(
        flex_start=True, queued=True, auto_repair=False, starts_empty=True, wait_hours=MAX_RUN_HOURS
    ),
    # Google may reclaim the machines at any time (TOOLKIT). COMPACT: cluster-toolkit #6171 and its A4 test, 2026-08-19.
    # Its nodes have 30 s by default, of which pods get 15; a pool may take 120 s (SPOT_NOTICE).
    "spot": GkeCapacity(
        spot=True, placement="group", shutdown_s=120, min_version="1.35.0-gke.1171000", wait_hours=MAX_RUN_HOURS
    ),
    # Machines of an existing reservation (TOOLKIT).
    "reservation": GkeCapacity(reservation_affinity="SPECIFIC_RESERVATION", wait_hours=1),
    # Machines without an end, if any are available (TOOLKIT).
    "on-demand": GkeCapacity(wait_hours=1),
}

# The first three: eksctl-io/eksctl #7949 and #8220, 99984adb6, 2026-08.
EKS_CAPACITIES: dict[str, EksCapacity] = {
    # Machines without an end, if any are available.
    "on-demand": EksCapacity(capacity_type="ON_DEMAND", placement_group=True, wait_hours=1),
    # AWS may reclaim the machines at two minutes' notice, often several at once.
    "spot": EksCapacity(capacity_type="SPOT", placement_group=True, wait_hours=MAX_RUN_HOURS),
    # Machines of an On-Demand Capacity Reservation.
    "reservation": EksCapacity(capacity_type="ON_DEMAND", targets_reservation=True, wait_hours=1),
    # Machines bought for fixed days, up to eight weeks ahead; AWS reclaims them at the end (BLOCKS).
    "capacity-block": EksCapacity(
        capacity_type="CAPACITY_BLOCK",
        market_type="capacity-block",
        targets_reservation=True,
        starts_empty=True,
        wait_hours=MAX_RUN_HOURS,
    ),
}


CAPACITIES: Mapping[str, Mapping[str, GkeCapacity | EksCapacity]] = {"gke": GKE_CAPACITIES, "eks": EKS_CAPACITIES}
"""Kinds of capacity by target; local has none."""


def longest_wait_s(target: str, *kinds: str | None) -> int:
    """Return the longest wait of `kinds` for a machine, in seconds, ignoring None."""
    return 3600 * max((CAPACITIES[target][kind].wait_hours for kind in kinds if kind is not None), default=0)
