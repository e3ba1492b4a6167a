"""The ways to get machines: what each is, and what a node pool or node group must say to use it.

Facts only. What may go with what is `infra.legality`; which machine can be had how is `infra.catalog.machines`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

DWS = "GKE docs concepts/dws, read 2026-08"
QUEUED = "GKE docs provisioningrequest, 2026-04-08"
TOOLKIT = "GoogleCloudPlatform/cluster-toolkit: gke-node-pool preconditions, 10470803, 2026-06-25"
BLOCKS = "EKS docs capacity-blocks-mng; aws-ia blueprint ml-capacity-block, 98d0eb4"
EKSCTL = "eksctl-io/eksctl #7949 and #8220, 99984adb6, 2026-08"


MAX_RUN_HOURS = 168
"""The longest a flex-start node runs, in hours: seven days (GKE docs concepts/dws, read 2026-08). We wait as long for
one, too: no source names an end of the wait."""


@dataclass(frozen=True, kw_only=True)
class GkeCapacity:
    """What a GKE node pool says to get machines this way.

    `reservation_affinity` is node_config.reservation_affinity.consume_reservation_type. `auto_repair` false is a demand
    of the API for flex-start, not a preference. `starts_empty` is whether the pool must begin, and may idle, at 0
    nodes.
    """

    meaning: str
    flex_start: bool
    queued: bool
    spot: bool
    reservation_affinity: Literal["NO_RESERVATION", "SPECIFIC_RESERVATION"]
    auto_repair: bool
    starts_empty: bool
    wait_hours: int
    source: str


@dataclass(frozen=True, kw_only=True)
class EksCapacity:
    """What an EKS managed node group and its launch template say to get machines this way.

    `capacity_type` goes on the node group; `market_type` on the launch template's market options, None where it has
    none. `placement_group` is whether a cluster placement group may be made: with a reservation it costs part of the
    capacity. `wait_hours` is how long somebody waits for such a node before giving up: our choice, as for GKE.
    """

    meaning: str
    capacity_type: Literal["ON_DEMAND", "SPOT", "CAPACITY_BLOCK"]
    market_type: Literal["capacity-block"] | None
    targets_reservation: bool
    placement_group: bool
    starts_empty: bool
    wait_hours: int
    source: str


GKE_CAPACITIES: dict[str, GkeCapacity] = {
    "flex-start": GkeCapacity(
        meaning="machines for at most seven days, one by one as they become free, up to 53 % cheaper than on demand",
        flex_start=True,
        queued=False,
        spot=False,
        reservation_affinity="NO_RESERVATION",
        auto_repair=False,
        starts_empty=True,
        wait_hours=MAX_RUN_HOURS,
        source=f"{DWS}; {TOOLKIT}",
    ),
    "flex-start-queued": GkeCapacity(
        meaning="all machines of a job at once, for at most seven days, after a wait in Google's queue",
        flex_start=True,
        queued=True,
        spot=False,
        reservation_affinity="NO_RESERVATION",
        auto_repair=False,
        starts_empty=True,
        wait_hours=MAX_RUN_HOURS,
        source=f"{QUEUED}; {TOOLKIT}",
    ),
    "spot": GkeCapacity(
        meaning="machines that Google may take back at any time",
        flex_start=False,
        queued=False,
        spot=True,
        reservation_affinity="NO_RESERVATION",
        auto_repair=True,
        starts_empty=False,
        wait_hours=MAX_RUN_HOURS,
        source=TOOLKIT,
    ),
    "reservation": GkeCapacity(
        meaning="machines that were reserved beforehand",
        flex_start=False,
        queued=False,
        spot=False,
        reservation_affinity="SPECIFIC_RESERVATION",
        auto_repair=True,
        starts_empty=False,
        wait_hours=1,
        source=TOOLKIT,
    ),
    "on-demand": GkeCapacity(
        meaning="machines for as long as they are kept, if there are any",
        flex_start=False,
        queued=False,
        spot=False,
        reservation_affinity="NO_RESERVATION",
        auto_repair=True,
        starts_empty=False,
        wait_hours=1,
        source=TOOLKIT,
    ),
}

EKS_CAPACITIES: dict[str, EksCapacity] = {
    "on-demand": EksCapacity(
        meaning="machines for as long as they are kept, if there are any",
        capacity_type="ON_DEMAND",
        market_type=None,
        targets_reservation=False,
        placement_group=True,
        starts_empty=False,
        wait_hours=1,
        source=EKSCTL,
    ),
    "spot": EksCapacity(
        meaning="machines that AWS may take back at two minutes' notice, often several at once",
        capacity_type="SPOT",
        market_type=None,
        targets_reservation=False,
        placement_group=True,
        starts_empty=False,
        wait_hours=MAX_RUN_HOURS,
        source=EKSCTL,
    ),
    "reservation": EksCapacity(
        meaning="machines of an On-Demand Capacity Reservation",
        capacity_type="ON_DEMAND",
        market_type=None,
        targets_reservation=True,
        placement_group=False,
        starts_empty=False,
        wait_hours=1,
        source=EKSCTL,
    ),
    "capacity-block": EksCapacity(
        meaning="machines bought for fixed days, up to eight weeks ahead; they are taken back at the end",
        capacity_type="CAPACITY_BLOCK",
        market_type="capacity-block",
        targets_reservation=True,
        placement_group=False,
        starts_empty=True,
        wait_hours=MAX_RUN_HOURS,
        source=BLOCKS,
    ),
}


CAPACITIES: Mapping[str, Mapping[str, GkeCapacity | EksCapacity]] = {"gke": GKE_CAPACITIES, "eks": EKS_CAPACITIES}
"""The ways by target; local has none."""


def offered(target: str) -> tuple[str, ...]:
    """The ways to get machines that a target knows; none on local."""
    return tuple(CAPACITIES.get(target, ()))


def promised_s(target: str, *ways: str | None) -> int:
    """Seconds that somebody waits for a machine before giving up, by the slowest of these ways; None is no way."""
    return 3600 * max((CAPACITIES[target][way].wait_hours for way in ways if way is not None), default=0)
