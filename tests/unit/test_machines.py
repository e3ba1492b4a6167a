"""Catalog of machines: every fact has a source or a reason for its absence, and the numbers are consistent."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from infra.catalog.baselines import BASELINES, GIB
from infra.catalog.capacity import CAPACITIES, EKS_CAPACITIES, GKE_CAPACITIES
from infra.catalog.machines import CATALOG, EKS_CATALOG, Machine
from infra.outputs import floors

from .stacks import names

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
    assert row.nics % row.gpus == 0 or row.gpus % row.nics == 0
    assert set(row.capacities) <= set(CAPACITIES[row.cloud])
    assert row.unsupported is None or row.arch == "arm64"
    if row.pod_cpus is not None and row.vcpus is not None:
        assert row.pod_cpus < row.vcpus
    if row.pod_memory_gib is not None and row.memory_mib is not None:
        assert row.pod_memory_gib * 1024 < row.memory_mib * 0.95


@pytest.mark.parametrize(
    ("name", "gpus", "nics", "gbps"),
    [
        ("a3-ultragpu-8g", 8, 8, 3200),
        ("a4-highgpu-8g", 8, 8, 3200),
        ("a4x-highgpu-4g", 4, 4, 1600),
        ("p4d.24xlarge", 8, 4, 400),
        ("p4de.24xlarge", 8, 4, 400),
        ("p5.48xlarge", 8, 32, 3200),
        ("p5e.48xlarge", 8, 32, 3200),
        ("p5en.48xlarge", 8, 16, 3200),
        ("p6-b200.48xlarge", 8, 8, 3200),
        ("p6-b300.48xlarge", 8, 16, 6400),
    ],
)
def test_line_rate(name: str, gpus: int, nics: int, gbps: int) -> None:
    row = CATALOG[name]
    assert (row.gpus, row.nics, row.nics * row.gbps_per_nic) == (gpus, nics, gbps)


def test_only_b300_has_a_card_without_efa() -> None:
    assert {row.name: row.network_cards for row in EKS_CATALOG.values() if row.network_cards != row.nics} == {
        "p6-b300.48xlarge": 17
    }


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


def test_floors() -> None:
    (four, eight) = floors("a3-ultragpu-8g")
    assert (four.op, four.nodes, four.bytes, four.busbw) == ("all_gather", 2, 4 * GIB, 291.9)
    assert (eight.bytes, eight.busbw) == (8 * GIB, 293.1)
    assert {floor.op for floor in floors("a4-highgpu-8g")} == {"all_reduce"}
    assert floors("p6-b300.48xlarge") == []
    assert floors("p5e.48xlarge") == []
