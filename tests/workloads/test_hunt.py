"""`bench hunt` against real Ray: four units of one rank each, and two nodes of two ranks."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest

from tests.workloads.conftest import Cluster
from workloads.exits import Exit

# Four ranks on busy cores: with ten other processes, a healthy pair was measured at a tenth of the usual bandwidth. An
# injected fault takes 0.2 s per run, which leaves a hundredth.
SHORT = ("--threshold", "0.05", "--size", "1M", "-n", "5", "--samples", "3")
QUICK = ("--unit", "rank", *SHORT)
SLOW = 0.004  # GB/s: 1 MiB in 0.2 s is 0.0026


def hunt(cluster: Cluster, name: str, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Run a hunt, and return its exit code, result and output."""
    done = cluster.rdma_ray("bench", "hunt", *arguments, "--json", f"{name}.json", timeout=300)
    file = cluster.folder / f"{name}.json"
    assert file.exists(), done.stdout + done.stderr
    return done.returncode, json.loads(file.read_text()), done.stdout + done.stderr


def test_healthy_fleet_has_no_accused_unit(cluster: Cluster) -> None:
    code, result, output = hunt(cluster, "healthy", *QUICK)
    assert code == Exit.OK, output
    assert result["schema"] == "rdma-ray/hunt/1"
    assert (result["accused"], result["proves"]) == ([], "function")
    assert len(result["units"]) == 4
    met = {tuple(sorted(test["units"])) for test in result["tests"] if test["kind"] == "pair"}
    assert len(met) == 6  # every pair of four
    assert "no unit is accused" in output


def test_slow_unit_is_accused_and_shown_in_heat_map(cluster: Cluster) -> None:
    code, result, output = hunt(cluster, "slow", *QUICK, "--inject-fault", "slow-node:2", "--out", "heat")
    assert code == Exit.BELOW, output
    [accused] = result["accused"]
    assert (accused["unit"], accused["fault"], result["injected_fault"]) == (2, "slow", "slow-node:2")
    assert accused["share"] < 0.05
    assert len({tuple(partners) for partners in accused["partners"]}) >= 2
    assert "ACCUSED unit 2" in output
    assert "nothing else running" in output
    matrix = list(csv.reader((cluster.folder / "heat" / "pairs.csv").open()))
    assert [len(row) for row in matrix] == [5] * 5
    slow = {(i, j) for i in range(4) for j in range(4) if i != j and float(matrix[i + 1][j + 1]) < SLOW}
    assert slow == {(i, j) for i in range(4) for j in range(4) if i != j and 2 in (i, j)}
    assert (cluster.folder / "heat" / "pairs.svg").read_text().startswith("<?xml")


def test_hanging_unit_is_accused_and_partners_continue(cluster: Cluster) -> None:
    code, result, output = hunt(cluster, "hang", *QUICK, "--no-burn", "--timeout", "8", "--inject-fault", "hang-node:1")
    assert code == Exit.HANG, output
    [accused] = result["accused"]
    assert (accused["unit"], accused["fault"], accused["severity"]) == (1, "hang", "isolate")
    passed = {unit for test in result["tests"] if test["failed"] is False for unit in test["units"]}
    assert passed == {0, 2, 3}


def test_two_nodes_are_undecided(cluster: Cluster) -> None:
    code, result, output = hunt(
        cluster, "two", *SHORT, "--unit", "node", "--floor", "0.2", "--inject-fault", "slow-rail:1.0"
    )
    assert code == Exit.BELOW, output
    assert result["accused"] == []
    [finding] = [finding for finding in result["findings"] if finding["kind"] == "undecided"]
    assert finding["units"] == [0, 1]
    assert "a third unit is needed" in finding["text"]


@pytest.mark.parametrize("fault", ["slow-node:9", "slow-rail:0", "nonsense"])
def test_invalid_fault_is_rejected_before_submission(cluster: Cluster, fault: str) -> None:
    done = cluster.rdma_ray("bench", "hunt", "--inject-fault", fault)
    assert done.returncode == Exit.ERROR
    assert "is no fault" in done.stderr
