"""`bench hunt` on real Ray nodes: the command on a healthy fleet, and broken fleets (see broken_fleet.py)."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.workloads.conftest import Cluster
from workloads.client.api import JobsApi
from workloads.client.run import JOB_ENVIRONMENT, attend
from workloads.client.submit import own_package, submit
from workloads.exits import Exit
from workloads.nccl.hunt.result import HuntResult
from workloads.results.events import new_id
from workloads.terminal.progress import View

# Four ranks on busy cores: with ten other processes, a healthy pair was measured at a tenth of the usual bandwidth.
QUICK = ("--unit", "rank", "--threshold", "0.05", "--size", "1M", "-n", "5", "--samples", "3")


def test_healthy_fleet_passes_and_is_shown_in_heat_map(cluster: Cluster) -> None:
    done = cluster.rdma_ray("bench", "hunt", *QUICK, "--json", "hunt.json", "--out", "heat")
    assert done.returncode == Exit.OK, done.stdout + done.stderr
    result = json.loads((cluster.folder / "hunt.json").read_text())
    assert (result["schema"], result["proves"], len(result["units"])) == ("rdma-ray/hunt/2", "function", 4)
    assert (result["accused"], result["findings"]) == ([], [])
    assert "NCCL's log: the ranks used gloo, which does not write one" in result["evidence"]["missing"]
    matrix = list(csv.reader((cluster.folder / "heat" / "pairs.csv").open()))
    assert [len(row) for row in matrix] == [5] * 5
    assert all(float(matrix[i + 1][j + 1]) > 0 for i in range(4) for j in range(4) if i != j)
    assert (cluster.folder / "heat" / "pairs.svg").read_text().startswith("<?xml")


@pytest.fixture(scope="module")
def played(cluster: Cluster) -> dict[str, HuntResult]:
    """Hunt on one gang with one fault after another, as a job of the cluster."""
    events: list[dict[str, Any]] = []
    command = [sys.executable, "-c", "import broken_fleet; broken_fleet.main()"]
    job = new_id("hunt")
    api = JobsApi.of(cluster.outputs)
    variables = {"PYTHONPATH": str(Path(__file__).parent)}
    submit(api, job, command, {"working_dir": own_package(api), "env_vars": JOB_ENVIRONMENT | variables})
    ended = attend(api, job, View(), stop_on_interrupt=True, listener=events.append)
    found = [event for event in events if event["kind"] == "hunt"]
    assert ended.job.status == "SUCCEEDED", ended.job.message
    return {event["name"]: HuntResult.of(event["result"], event["name"]) for event in found}


@pytest.mark.parametrize(
    ("scenario", "code", "accused"),
    [
        ("healthy", Exit.OK, {}),
        ("one slow NIC", Exit.BELOW, {2: "slow"}),
        ("one flipped bit", Exit.WRONG_DATA, {3: "wrong"}),
        ("one throttled GPU", Exit.BELOW, {1: "burn"}),
        ("all on sockets", Exit.NOT_AS_ASKED, {}),
        ("one node on sockets", Exit.NOT_AS_ASKED, {2: "transport", 3: "transport"}),
        ("one NIC down", Exit.NOT_AS_ASKED, {0: "transport", 1: "transport"}),
        ("one that dies", Exit.HANG, {0: "error"}),
        ("one that hangs", Exit.HANG, {1: "hang"}),
    ],
)
def test_fault_below_the_collective_is_named_and_nothing_healthy(
    played: dict[str, HuntResult], scenario: str, code: Exit, accused: dict[int, str]
) -> None:
    result = played[scenario]
    assert {one.unit: one.fault for one in result.accused} == accused, result.reason
    assert result.exit_code == code


def test_broken_tests_name_the_rank_at_fault(played: dict[str, HuntResult]) -> None:
    for scenario, rank, broken in (("one that dies", 0, "error"), ("one that hangs", 1, "hang")):
        tests = [test for test in played[scenario].tests if test.broken]
        assert len(tests) >= 2
        for test in tests:
            assert (test.broken, f"rank {rank} on" in test.detail) == (broken, True), test.detail
            assert not any(f"rank {other} on" in test.detail for other in range(4) if other != rank), test.detail


def test_transport_is_named_with_its_evidence(played: dict[str, HuntResult]) -> None:
    [fleet] = [one for one in played["all on sockets"].findings if one.kind == "transport"]
    assert fleet.units == []
    assert "NET/Socket" in fleet.text
    assert "NET/Socket" in played["one node on sockets"].accused[0].evidence[0]
    assert played["one NIC down"].accused[0].evidence == ["node-0: 1 of 2 NICs", "node-0: mlx5_1 is DOWN"]
