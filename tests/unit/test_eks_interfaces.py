"""Interface layout of every instance type, compared with a table copied from AWS' pages."""

from __future__ import annotations

import pytest

from infra.catalog.machines import EKS_CATALOG, EksMachine
from infra.eks.interfaces import Interface, Kind, interfaces

Place = tuple[int, int, Kind]

PRIMARY: Place = (0, 0, "interface")


def efas(cards: range, device: int = 0) -> list[Place]:
    return [(card, device, "efa-only") for card in cards]


TABLE: dict[str, list[Place]] = {
    # The older layout: the primary interface is itself an EFA.
    "p4d.24xlarge": [(0, 0, "efa"), (1, 1, "efa-only"), (2, 1, "efa-only"), (3, 1, "efa-only")],
    "p4de.24xlarge": [(0, 0, "efa"), (1, 1, "efa-only"), (2, 1, "efa-only"), (3, 1, "efa-only")],
    # The newer layout: card 0 has an interface for IP and an EFA.
    "p5.48xlarge": [PRIMARY, (0, 1, "efa-only"), *efas(range(1, 32))],
    "p5e.48xlarge": [PRIMARY, (0, 1, "efa-only"), *efas(range(1, 32))],
    "p5en.48xlarge": [PRIMARY, (0, 1, "efa-only"), *efas(range(1, 16))],
    "p6-b200.48xlarge": [PRIMARY, (0, 1, "efa-only"), *efas(range(1, 8))],
    # Seventeen cards, of which the first has no EFA.
    "p6-b300.48xlarge": [PRIMARY, *efas(range(1, 17))],
}


def test_table_has_every_machine() -> None:
    assert set(TABLE) == set(EKS_CATALOG)


@pytest.mark.parametrize("machine", EKS_CATALOG.values(), ids=lambda machine: machine.name)
def test_layout_matches_table(machine: EksMachine) -> None:
    assert [(one.card, one.device, one.kind) for one in interfaces(machine)] == TABLE[machine.name]


@pytest.mark.parametrize("machine", EKS_CATALOG.values(), ids=lambda machine: machine.name)
def test_layout_has_one_efa_per_card(machine: EksMachine) -> None:
    layout = interfaces(machine)
    with_efa = [one.card for one in layout if one.kind != "interface"]
    assert len(with_efa) == len(set(with_efa)) == machine.nics
    assert len({(one.card, one.device) for one in layout}) == len(layout)
    assert layout[0].kind != "efa-only", "an EFA without an address cannot be the primary interface"
    assert all(one.kind == "efa-only" for one in layout[1:])


@pytest.mark.parametrize("name", ["p5.48xlarge", "p5e.48xlarge"])
def test_bandwidth_optimized_adds_seven_interfaces(name: str) -> None:
    plain, wide = interfaces(EKS_CATALOG[name]), interfaces(EKS_CATALOG[name], bandwidth_optimized=True)
    added = [one for one in wide if one not in plain]
    assert added == [Interface(card, 1, "interface") for card in (4, 8, 12, 16, 20, 24, 28)]
    assert [one for one in wide if one in plain] == list(plain)
    assert sum(one.kind == "interface" for one in wide) == 8
