"""Catalogs of machines and bandwidths: every fact has a source or a reason for its absence, and they agree."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from infra.catalog.baselines import BASELINES, GIB
from infra.catalog.capacity import CAPACITIES, EKS_CAPACITIES, GKE_CAPACITIES
from infra.catalog.machines import CATALOG, Machine
from infra.outputs import floors
from tests.unit.stacks import names

ROWS = list(CATALOG.values())
DATE = re.compile(r"20\d\d(-\d\d)?(-\d\d)?")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_facts_have_source_and_date(row: Machine) -> None:
    facts = {field.name for field in fields(row)} - {"sources", "unknown"}
    missing = {name for name in facts if getattr(row, name) is None and name != "unsupported"}
    assert set(row.unknown) == missing
    assert all(row.unknown.values())
    assert facts - missing <= set(row.sources)
    assert set(row.sources) <= facts
    for name, source in row.sources.items():
        assert DATE.search(source), (name, source)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row_is_consistent(row: Machine) -> None:
    assert CATALOG[row.name] is row
    assert not row.nics or row.nics % row.gpus == 0 or row.gpus % row.nics == 0
    assert bool(row.gpu) == bool(row.gpus) == bool(getattr(row, "accelerator", row.gpu))
    assert set(row.capacities) <= set(CAPACITIES[row.cloud])
    assert row.unsupported is None or row.arch == "arm64"
    if row.pod_cpus is not None and row.vcpus is not None:
        assert row.pod_cpus < row.vcpus
    if row.pod_memory_gib is not None and row.memory_mib is not None:
        assert row.pod_memory_gib * 1024 < row.memory_mib * 0.95


# Mbit/s of all devices, and their number (aws/karpenter-provider-aws 1.15.1: zz_generated.bandwidth.go,
# zz_generated_efa_metadata.go, 2026-07; g7e.8xlarge is in the first table only).
KARPENTER = {
    "p4d.24xlarge": (400_000, 4),
    "p4de.24xlarge": (400_000, 4),
    "p5.48xlarge": (3_200_000, 32),
    "p5e.48xlarge": (3_200_000, 32),
    "p5en.48xlarge": (3_200_000, 16),
    "p6-b200.48xlarge": (3_200_000, 8),
    "p6-b300.48xlarge": (6_400_000, 16),
    "g6.8xlarge": (25_000, 1),
    "g6e.8xlarge": (25_000, 1),
    "g7e.8xlarge": (100_000, 1),
    "p5.4xlarge": (100_000, 1),
}


def test_efa_devices_agree_with_karpenters_tables() -> None:
    assert {
        name: (row.nics * row.gbps_per_nic * 1000, row.nics) for name, row in CATALOG.items() if row.cloud == "eks"
    } == KARPENTER


def test_capacities_match_settings() -> None:
    assert {*GKE_CAPACITIES, *EKS_CAPACITIES} == set(names("nodes.capacity"))
    for mode in GKE_CAPACITIES.values():
        assert not mode.queued or mode.flex_start
        assert not mode.flex_start or (mode.reservation_affinity == "NO_RESERVATION" and not mode.auto_repair)
        assert not (mode.flex_start and mode.spot)
    for name, block in EKS_CAPACITIES.items():
        assert not (block.targets_reservation and block.placement_group), name


def test_baselines_match_machines() -> None:
    assert set(BASELINES) <= set(CATALOG)
    for name, lines in BASELINES.items():
        for line in lines:
            assert line.size % GIB == 0
            assert DATE.search(line.source)
            assert line.gates or line.note, name
            # An all-gather cannot be faster than all NICs of a node, GB/s.
            if line.op == "all_gather":
                assert line.busbw < CATALOG[name].nics * CATALOG[name].gbps_per_nic / 8


LINES = [(machine, line) for machine, lines in BASELINES.items() for line in lines]


def test_high_confidence_requires_two_agreeing_publications() -> None:
    for machine, line in LINES:
        same = [
            other
            for other in BASELINES[machine]
            if (other.op, other.nodes, other.size, other.algorithm) == (line.op, line.nodes, line.size, line.algorithm)
        ]
        agree = len({other.source for other in same}) > 1 and all(
            abs(other.busbw / line.busbw - 1) < 0.02 for other in same
        )
        assert agree == (line.confidence == "high"), (machine, line)


def test_low_confidence_has_note_and_does_not_gate() -> None:
    for machine, line in LINES:
        assert line.gates == (line.confidence != "low")
        assert bool(line.note) == (line.confidence == "low"), (machine, line)


def test_figures_are_unique_per_source() -> None:
    keys = [(machine, line.op, line.nodes, line.size, line.algorithm, line.source) for machine, line in LINES]
    assert len(keys) == len(set(keys))


def test_floors_cover_networks_between_nodes_only() -> None:
    for machine, lines in BASELINES.items():
        carried = floors(machine)
        assert all(floor.nodes > 1 for floor in carried)
        keys = {(floor.op, floor.nodes, floor.bytes) for floor in carried}
        assert len(keys) == len(carried)
        assert keys == {(line.op, line.nodes, line.size) for line in lines if line.gates and line.nodes > 1}
    # Of two algorithms, the floor follows the faster one.
    (ring, _) = floors("p5en.48xlarge")
    assert ring.busbw == 328.4
