"""Rules about how machines are obtained: capacity, reservation, fallback, run time, ComputeClass."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from infra.catalog.capacity import BLOCKS, DWS, MAX_RUN_HOURS, TOOLKIT, offered
from infra.catalog.machines import CATALOG
from infra.problems import OUR_CONTRACT, Problem

if TYPE_CHECKING:
    from infra.legality import Rule
    from infra.settings import Settings

COMPUTE_CLASS = "GKE docs ComputeClass CRD reference and concepts, 2026-04-13"
EC2_RESERVATIONS = "EC2 docs, Capacity Reservations; the shape of ids from memory, 2026-11"

RESERVED = ("reservation", "capacity-block")
FLEX = ("flex-start", "flex-start-queued")


def machine_of_other_cloud(s: Settings) -> Problem | None:
    """The machine type belongs to the other cloud."""
    if s.nodes.machine is None or s.target == "local":
        return None
    cloud = CATALOG[s.nodes.machine].cloud
    if cloud == s.target:
        return None
    here = [row.name for row in CATALOG.values() if row.cloud == s.target and row.unsupported is None]
    return Problem(
        settings=("nodes.machine", "target"),
        says=f"{s.nodes.machine} is a machine type of {cloud}; {s.target} has none of this name and would refuse it.",
        fix=f"choose one of {', '.join(here)}, or set target to {cloud}",
        source=CATALOG[s.nodes.machine].sources["name"],
    )


def machine_unsupported(s: Settings) -> Problem | None:
    """The machine type is known, but this program does not build it."""
    machine = CATALOG.get(s.nodes.machine or "")
    if machine is None or machine.unsupported is None or machine.cloud != s.target:
        return None
    here = [row.name for row in CATALOG.values() if row.cloud == s.target and row.unsupported is None]
    return Problem(
        settings=("nodes.machine",),
        says=f"{machine.name} is not supported: {machine.unsupported}.",
        fix=f"choose one of {', '.join(here)}",
        source=machine.sources["gpus"],
    )


def capacity_of_other_cloud(s: Settings) -> Problem | None:
    """The way to get machines belongs to the other cloud."""
    return _capacity_of_other_cloud(s, "nodes.capacity", s.nodes.capacity)


def fallback_of_other_cloud(s: Settings) -> Problem | None:
    """The second choice belongs to the other cloud."""
    return _capacity_of_other_cloud(s, "nodes.fallback", s.nodes.fallback)


def _capacity_of_other_cloud(s: Settings, path: str, capacity: str | None) -> Problem | None:
    if s.target == "local" or capacity is None or capacity in offered(s.target):
        return None
    return Problem(
        settings=(path, "target"),
        says=f"{s.target} knows no capacity called {capacity}, so there is nothing to ask it for.",
        fix=f"set {path} to one of {', '.join(offered(s.target))}",
        source=OUR_CONTRACT,
    )


def capacity_not_obtainable(s: Settings) -> Problem | None:
    """The cloud does not hand out this machine type this way."""
    return _not_obtainable(s, "nodes.capacity", s.nodes.capacity)


def fallback_not_obtainable(s: Settings) -> Problem | None:
    """The cloud does not hand out this machine type by the second choice."""
    return _not_obtainable(s, "nodes.fallback", s.nodes.fallback)


def _not_obtainable(s: Settings, path: str, capacity: str | None) -> Problem | None:
    machine = CATALOG.get(s.nodes.machine or "")
    if machine is None or machine.unsupported or machine.cloud != s.target or capacity not in offered(s.target):
        return None
    if capacity in machine.capacities:
        return None
    return Problem(
        settings=(path, "nodes.machine"),
        says=f"{machine.name} is not to be had by {capacity}: the nodes would never come.",
        fix=f"set {path} to one of {', '.join(machine.capacities)}",
        source=machine.sources["capacities"],
    )


def reservation_missing(s: Settings) -> Problem | None:
    """Reserved machines were asked for, but not which."""
    modes = [mode for mode in (s.nodes.capacity, s.nodes.fallback) if mode in RESERVED and mode in offered(s.target)]
    if not modes or s.nodes.reservation is not None:
        return None
    where = "nodes.capacity" if s.nodes.capacity in RESERVED else "nodes.fallback"
    return Problem(
        settings=("nodes.reservation", where),
        says=f"{modes[0]} needs to be told which reservation; without a name the nodes would be bought on demand or "
        "not come at all.",
        fix="set nodes.reservation to the reservation's " + ("id, cr-…" if s.target == "eks" else "name"),
        source=BLOCKS if s.target == "eks" else TOOLKIT,
    )


def reservation_unused(s: Settings) -> Problem | None:
    """A reservation is named, but the machines are asked for in another way."""
    if s.target == "local" or s.nodes.reservation is None:
        return None
    modes = (s.nodes.capacity, s.nodes.fallback)
    if any(mode in RESERVED for mode in modes):
        return None
    flex = s.nodes.capacity in FLEX
    says = (
        f"{s.nodes.capacity} machines come from outside every reservation: GKE refuses the node pool unless its "
        "reservation affinity is none, and the reservation would be paid for and stand idle."
        if flex
        else f"{s.nodes.capacity} machines are not taken from a reservation, so this one would be paid for and unused."
    )
    return Problem(
        settings=("nodes.reservation", "nodes.capacity"),
        says=says,
        fix="remove nodes.reservation, or set nodes.capacity to reservation",
        source=f"{TOOLKIT}; terraform-provider-google #18341" if flex else TOOLKIT,
    )


def reservation_misspelt(s: Settings) -> Problem | None:
    """The reservation's name cannot be one on this cloud."""
    name = s.nodes.reservation
    if s.target == "local" or name is None:
        return None
    if s.target == "eks":
        good = re.fullmatch(r"cr-[0-9a-f]{8,17}", name)
        wanted = "an id such as cr-0123456789abcdef0"
    else:
        part = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
        good = re.fullmatch(
            rf"(projects/[^/]+/reservations/)?{part}(/reservationBlocks/{part}(/reservationSubBlocks/{part})?)?", name
        )
        wanted = "a name, or projects/PROJECT/reservations/NAME/reservationBlocks/BLOCK"
    if good:
        return None
    return Problem(
        settings=("nodes.reservation",),
        says=f"{name} cannot be a reservation on {s.target}; the cloud would not find it.",
        fix=f"write {wanted}",
        source=EC2_RESERVATIONS if s.target == "eks" else TOOLKIT,
    )


def flex_runs_too_long(s: Settings) -> Problem | None:
    """Flex-start nodes live for seven days at most."""
    hours = s.nodes.max_run_hours
    if hours is None or hours <= MAX_RUN_HOURS or not _has_flex(s):
        return None
    return Problem(
        settings=("nodes.maxRunHours", "nodes.capacity"),
        says=f"Flex-start nodes are taken back after {MAX_RUN_HOURS} hours (seven days); GKE refuses {hours}.",
        fix=f"set nodes.maxRunHours to {MAX_RUN_HOURS} or less, and let the training resume from checkpoints",
        source=DWS,
    )


def run_time_without_flex(s: Settings) -> Problem | None:
    """Only flex-start nodes have an end that can be chosen here."""
    if s.target != "gke" or s.nodes.max_run_hours is None or _has_flex(s):
        return None
    return Problem(
        settings=("nodes.maxRunHours", "nodes.capacity"),
        says=f"{s.nodes.capacity} nodes have no run time to choose, so nothing would end them after "
        f"{s.nodes.max_run_hours} hours.",
        fix="remove nodes.maxRunHours, or set nodes.capacity to flex-start",
        source=DWS,
    )


def _has_flex(s: Settings) -> bool:
    return s.nodes.capacity in FLEX or s.nodes.fallback in FLEX


def flex_is_not_static(s: Settings) -> Problem | None:
    """A flex-start pool begins empty and grows on demand."""
    if s.target != "gke" or s.nodes.capacity != "flex-start" or s.nodes.min == 0:
        return None
    return Problem(
        settings=("nodes.min", "nodes.capacity"),
        says="A flex-start pool has no nodes of its own: they come when pods wait, and leave after seven days at the "
        f"latest. {s.nodes.min} nodes that stay up cannot be promised.",
        fix="set nodes.min to 0",
        source=TOOLKIT,
    )


def fallback_needs_compute_class(s: Settings) -> Problem | None:
    """Second choices are what a ComputeClass is for; only queued machines are Kueue's to choose."""
    queued = "flex-start-queued" in (s.nodes.capacity, s.nodes.fallback)
    if s.target != "gke" or s.nodes.fallback is None or s.compute_class or queued:
        return None
    return Problem(
        settings=("nodes.fallback", "computeClass"),
        says="Without a ComputeClass nothing puts the ways to get machines in an order, so the second "
        "would not be tried.",
        fix="set computeClass to true, or remove nodes.fallback",
        source=COMPUTE_CLASS,
    )


def fallback_repeats_capacity(s: Settings) -> Problem | None:
    """The second choice is the first."""
    if s.target != "gke" or s.nodes.fallback is None or s.nodes.fallback != s.nodes.capacity:
        return None
    if s.nodes.capacity == "flex-start-queued":
        return None
    return Problem(
        settings=("nodes.fallback", "nodes.capacity"),
        says=f"Both choices are {s.nodes.fallback}; when the first has no machine, the second has none either.",
        fix="choose another fallback, or remove it",
        source=COMPUTE_CLASS,
    )


def capacity_block_starts_empty(s: Settings) -> Problem | None:
    """A Capacity Block has no machine before it begins."""
    if s.target != "eks" or s.nodes.capacity != "capacity-block" or s.nodes.min == 0:
        return None
    dra = s.fabric == "efa-dranet"
    return Problem(
        settings=("nodes.min", "nodes.capacity", *(("fabric",) if dra else ())),
        says=f"Before the block begins and after it ends there is no machine; a group that insists on {s.nodes.min} "
        "nodes fails to be made.",
        fix="set nodes.min to 0" + (", and fabric to efa, which can wake from 0 nodes" if dra else ""),
        source=BLOCKS,
    )


RULES: tuple[Rule, ...] = (
    machine_of_other_cloud,
    machine_unsupported,
    capacity_of_other_cloud,
    capacity_not_obtainable,
    reservation_missing,
    reservation_unused,
    reservation_misspelt,
    flex_runs_too_long,
    run_time_without_flex,
    flex_is_not_static,
    fallback_of_other_cloud,
    fallback_not_obtainable,
    fallback_needs_compute_class,
    fallback_repeats_capacity,
    capacity_block_starts_empty,
)
