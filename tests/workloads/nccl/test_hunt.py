"""`bench hunt` against real Ray, four units of one rank each and two nodes of two ranks; and one rank without Ray."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch.distributed as dist

from tests.workloads.conftest import Cluster
from workloads.exits import Exit
from workloads.nccl.hunt.driver import SLOW_S, HuntRank, Report
from workloads.nccl.hunt.options import HuntOptions
from workloads.nccl.operations import Place

# Four ranks on busy cores: with ten other processes, a healthy pair was measured at a tenth of the usual bandwidth. An
# injected fault takes 0.2 s per run, which leaves a hundredth.
SHORT = ("--threshold", "0.05", "--size", "1M", "-n", "5", "--samples", "3")
QUICK = ("--unit", "rank", *SHORT)
SLOW = 0.004  # GB/s: 1 MiB in 0.2 s is 0.0026


def hunt(cluster: Cluster, name: str, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Run a hunt, and return its exit code, result and output."""
    done = cluster.rdma_ray("bench", "hunt", *arguments, "--json", f"{name}.json")
    file = cluster.folder / f"{name}.json"
    assert file.exists(), done.stdout + done.stderr
    return done.returncode, json.loads(file.read_text()), done.stdout + done.stderr


def test_slow_unit_is_accused_and_shown_in_heat_map(cluster: Cluster) -> None:
    code, result, output = hunt(cluster, "slow", *QUICK, "--inject-fault", "slow-node:2", "--out", "heat")
    assert code == Exit.BELOW, output
    [accused] = result["accused"]
    assert (accused["unit"], accused["fault"], result["injected_fault"]) == (2, "slow", "slow-node:2")
    assert accused["share"] < 0.05
    assert len({tuple(partners) for partners in accused["partners"]}) >= 2
    assert (result["schema"], result["proves"], len(result["units"])) == ("rdma-ray/hunt/2", "function", 4)
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


@pytest.fixture
def rank() -> Iterator[HuntRank]:
    yield HuntRank(use_gpu=False)
    assert not dist.is_initialized(), "a test left its process group behind"


def take_part(rank: HuntRank, fault: str | None = None) -> Report:
    address, options = "127.0.0.1", HuntOptions(size="64K", iterations=2, timeout_s=20)
    port = rank.serve(address, options.timeout_s)
    return rank.take_part(options, 3, fault, Place(0, 1, 1), address, port, address)


def test_rank_forms_one_group_after_another(rank: HuntRank) -> None:
    for _ in range(3):
        report = take_part(rank)
        assert report.wrong == 0
        assert len(report.samples) == 3
        assert all(sample > 0 for sample in report.samples)


def test_injected_faults_change_the_report(rank: HuntRank) -> None:
    assert take_part(rank, "corrupt-node").wrong == 1
    assert min(take_part(rank, "slow-node").samples) >= SLOW_S
    assert min(take_part(rank, "slow-rail").samples) >= SLOW_S
    assert take_part(rank).wrong == 0


def test_burn_is_verified_and_a_slow_burn_is_slower(rank: HuntRank) -> None:
    healthy, slow = rank.burn(3, None), rank.burn(1, "slow-burn")
    assert healthy.wrong == slow.wrong == 0
    assert len(healthy.samples) == 3
    assert slow.samples[0] < 0.5 * max(healthy.samples)
