"""Network interfaces of a GPU node: network card, device index and kind of each.

The layout is computed from the machine's row in `infra.catalog.machines`. Public tools count network cards and make the
first interface an EFA. That layout cannot start a p6-b300, whose card 0 has no EFA, and uses an IP address for each EFA
of other types. EFA interfaces can only be attached at launch, so a node keeps a wrong layout for its lifetime.

Source: EC2 docs efa-acc-inst-types; aws/aws-parallelcluster #7143 and #7262, read 2026-08.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from infra.catalog.machines import EksMachine

Kind = Literal["interface", "efa", "efa-only"]
"""interface: ENA with an IP address; efa: ENA with an IP address and an EFA; efa-only: EFA without an IP address."""

IP_CARDS = range(4, 32, 4)
"""Cards of a p5 that get a second interface, with an IP address, to raise the IP bandwidth from 100 to 800 Gbit/s."""


@dataclass(frozen=True)
class Interface:
    """Interface of a node: network card, device index on that card, and kind."""

    card: int
    device: int
    kind: Kind


def interfaces(machine: EksMachine, *, bandwidth_optimized: bool = False) -> tuple[Interface, ...]:
    """Return every interface of a node, the primary one first.

    Args:
        machine: Row of the instance type.
        bandwidth_optimized: Whether to add interfaces with IP addresses, which p5 and p5e support.
    """
    return tuple(_p4(machine) if machine.efa_on_primary else _separate(machine, bandwidth_optimized))


def _p4(machine: EksMachine) -> Iterator[Interface]:
    """Yield the older layout, the only one that any source shows for p4d and p4de."""
    yield Interface(0, 0, "efa")
    for card in range(1, machine.network_cards):
        yield Interface(card, 1, "efa-only")


def _separate(machine: EksMachine, bandwidth_optimized: bool) -> Iterator[Interface]:
    """Yield a primary interface for IP, and an EFA without an IP address on every card that supports it."""
    yield Interface(0, 0, "interface")
    if machine.card_zero_efa:
        yield Interface(0, 1, "efa-only")
    for card in range(1, machine.network_cards):
        yield Interface(card, 0, "efa-only")
        if bandwidth_optimized and card in IP_CARDS:
            yield Interface(card, 1, "interface")
