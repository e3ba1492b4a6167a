"""Cost and mistakes of hunts over many simulated fleets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.workloads.hunt_simulator import (
    HEALTHY,
    LEAF,
    Cost,
    Fabric,
    Fault,
    Kind,
    cost,
    main,
    search_options,
    verdict,
)
from workloads.exits import Exit
from workloads.nccl.hunt.options import HuntOptions
from workloads.nccl.hunt.result import Probe

NOISE = 0.03
NODES, BAD, MOST = 232, 5, 55  # NVIDIA's Cluster Readiness Engine: about 55 tests, against 26,796 pairs


def many(nodes: int, bad: int, fault: Kind, seeds: int, options: HuntOptions | None = None) -> Cost:
    return cost(nodes, bad, fault, NOISE, seeds, options or search_options())


def test_five_of_232_are_found_within_55_tests_without_false_accusation() -> None:
    found = many(NODES, BAD, "nic", 1000)
    assert (found.false, found.missed) == (0, 0)
    assert found.tests[2] <= MOST
    assert found.pairs == 26_796


def test_slow_nodes_and_healthy_fleets_have_no_false_accusation() -> None:
    slow = many(NODES, BAD, "node", 200)
    assert (slow.false, slow.missed) == (0, 0)
    assert slow.tests[2] <= MOST
    healthy = many(NODES, 0, "node", 200)
    assert healthy.false == 0
    assert healthy.findings == {}


@pytest.mark.parametrize("nodes", [3, 4, 7, 16, 33, 64])
def test_flapping_link_never_accuses_another_unit(nodes: int) -> None:
    """With one sample per test the link is often missed; with five it is mostly found. No other unit is accused."""
    few, several = many(nodes, 1, "flapping", 60), many(nodes, 1, "flapping", 60, search_options(samples=5))
    assert few.false == several.false == 0
    assert several.missed <= 20


@pytest.mark.parametrize("nodes", [32, 64, 232])
def test_shared_spine_never_accuses_a_unit(nodes: int) -> None:
    found = many(nodes, 1, "spine", 60)
    assert found.false == 0
    assert found.findings["fabric"] == 60


def test_cost_of_large_fleet_grows_with_square_root() -> None:
    found = many(4096, 5, "nic", 3)
    assert (found.false, found.missed) == (0, 0)
    assert found.tests[2] < 130


def test_simulator_answers_with_injected_faults() -> None:
    """A ring is as slow as its slowest unit, a rail test shows the NIC, a spine is slow only with several tests."""
    nic = Fabric([Fault("nic", 1, 0.5, rail=3)], 0.0, 1)
    assert ask(nic, Probe("group", (0, 1, 2), "t")) == [0.5]
    assert ask(nic, Probe("group", (0, 2, 3), "t"), Probe("burn", (1,), "t")) == [1, 1]
    rails = [Probe("rail", (1, 0), "t", rail=rail) for rail in range(8)]
    assert [ask(nic, probe) for probe in rails] == [[0.5 if rail == 3 else 1] for rail in range(8)]
    assert ask(nic, Probe("rail", (0, 1), "t", rail=2, shifted=True)) == [0.5]
    spine = Fabric([Fault("spine", 0, 0.5)], 0.0, 1)
    crossing = [Probe("pair", (unit, LEAF + unit), "t") for unit in range(2)]
    assert ask(spine, crossing[0]) == [1]
    assert ask(spine, *crossing) == [0.5, 0.5]
    assert ask(spine, crossing[0], Probe("pair", (2, 3), "t")) == [1, 1]


def ask(fabric: Fabric, *probes: Probe) -> list[float]:
    """Return the remaining share of the bandwidth in each test."""
    return [answer.samples[0] / HEALTHY for answer in fabric.answer(probes)]


def test_command_prints_cost_and_fails_above_max_tests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate = ("--nodes", "100", "--bad", "2", "--seeds", "5")
    file = tmp_path / "cost.json"
    assert main([*simulate, "--json", str(file)]) == Exit.OK
    assert "| 100 | 2 | nic | 5 |" in capsys.readouterr().out
    [found] = json.loads(file.read_text())["costs"]
    assert (found["false"], found["missed"], found["nodes"]) == (0, 0, 100)
    assert main([*simulate, "--max-tests", "3"]) == Exit.BELOW
    assert main([*simulate[:-2], "--fault", "gremlin"]) == Exit.ERROR
    assert "--fault gremlin: choose one of" in capsys.readouterr().err


def test_false_accusation_fails_the_command() -> None:
    clean = many(40, 1, "nic", 2)
    assert verdict([clean], None) == Exit.OK
    assert verdict([Cost(**{**clean.as_json(), "false": 1})], None) == Exit.BELOW
