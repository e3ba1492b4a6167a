"""Cost and mistakes of hunts over many simulated fleets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.workloads.nccl.hunt_simulator import Cost, Kind, cost, main, search_options
from workloads.exits import Exit

NODES, BAD, MOST = 232, 5, 55  # NVIDIA's Cluster Readiness Engine: about 55 tests, against 26,796 pairs


def many(nodes: int, bad: int, fault: Kind, seeds: int, samples: int = 1) -> Cost:
    return cost(nodes, bad, fault, 0.03, seeds, search_options(samples=samples))


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
    few, several = many(nodes, 1, "flapping", 60), many(nodes, 1, "flapping", 60, samples=5)
    assert few.false == several.false == 0
    assert several.missed <= 20


@pytest.mark.parametrize("nodes", [32, 64, 232])
def test_shared_spine_never_accuses_a_unit(nodes: int) -> None:
    found = many(nodes, 1, "spine", 60)
    assert found.false == 0
    assert found.findings["fabric"] == 60


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
