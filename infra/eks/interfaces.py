"""The network interfaces of a GPU node: which card and device index each has, and of what kind it is.

Derived from the machine's catalog row (`infra.catalog.machines`). Public tools count network cards and make the first
one an EFA; that cannot start a p6-b300, whose card 0 has no EFA, and spends an IP address on each EFA elsewhere. EFA
interfaces can be attached at launch only, so a wrong layout stays wrong for the node's lifetime.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from infra.catalog.machines import EksMachine

Kind = Literal["interface", "efa", "efa-only"]
"""interface: an ENA with an address; efa: an ENA with an address and an EFA; efa-only: an EFA without an address."""

SOURCE = "EC2 docs efa-acc-inst-types; aws/aws-parallelcluster #7143 and #7262, read 2026-08"

IP_CARDS = range(4, 32, 4)
"""Cards of a p5 that carry a second interface with an address where IP is to have 800 Gbit/s instead of 100 (EC2 docs
efa-acc-inst-types, read 2026-08)."""


@dataclass(frozen=True)
class Interface:
    """One interface: its network card, its index on that card, and its kind."""

    card: int
    device: int
    kind: Kind


def interfaces(machine: EksMachine, *, bandwidth_optimised: bool = False) -> tuple[Interface, ...]:
    """Every interface of a node, the primary one first.

    bandwidth_optimised adds interfaces with addresses on further cards; p5 and p5e alone have such a layout
    (`infra.legality.aws`).
    """
    return tuple(_p4(machine) if machine.efa_on_primary else _separate(machine, bandwidth_optimised))


def _p4(machine: EksMachine) -> Iterator[Interface]:
    """The older layout, which everybody uses on p4d and p4de; no source shows them with the newer one."""
    yield Interface(0, 0, "efa")
    for card in range(1, machine.network_cards):
        yield Interface(card, 1, "efa-only")


def _separate(machine: EksMachine, bandwidth_optimised: bool) -> Iterator[Interface]:
    """A plain primary interface for IP, and an EFA without an address on every card that takes one."""
    yield Interface(0, 0, "interface")
    if machine.card_zero_efa:
        yield Interface(0, 1, "efa-only")
    for card in range(1, machine.network_cards):
        yield Interface(card, 0, "efa-only")
        if bandwidth_optimised and card in IP_CARDS:
            yield Interface(card, 1, "interface")
