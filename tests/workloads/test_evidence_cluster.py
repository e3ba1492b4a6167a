"""Evidence of real runs: gloo reports what is missing, and a hung run has evidence too."""

from __future__ import annotations

import json
from pathlib import Path

from tests.workloads.conftest import Cluster
from workloads.exits import Exit
from workloads.nccl.result import Result

SMALL = ("--op", "all_reduce", "-b", "1K", "-e", "1K", "-n", "2", "-w", "1")


def measured(cluster: Cluster, file: Path, *arguments: str) -> tuple[int, Result, str]:
    done = cluster.rdma_ray("bench", "nccl", *SMALL, "--json", str(file), *arguments)
    return done.returncode, Result.model_validate(json.loads(file.read_text())), done.stdout + done.stderr


def test_gloo_run_reports_missing_evidence(cluster: Cluster, tmp_path: Path) -> None:
    code, result, printed = measured(
        cluster, tmp_path / "result.json", "--logs", str(tmp_path / "logs"), "--env", "GLOO_SOCKET_IFNAME=lo"
    )
    assert code == Exit.OK, printed
    assert result.evidence is not None
    assert [rank.rank for rank in result.evidence.ranks] == [0, 1, 2, 3]
    assert all(rank.log is None for rank in result.evidence.ranks)
    assert "NCCL's log: the ranks used gloo, which writes none" in result.evidence.missing
    assert printed.count("evidence missing: ") == 1
    assert f"no NCCL log arrived for {tmp_path / 'logs'}" in printed
    assert result.environment is not None
    assert result.environment["GLOO_SOCKET_IFNAME"] == "lo"
    assert cluster.token not in (tmp_path / "result.json").read_text()


def test_hung_run_has_evidence(cluster: Cluster, tmp_path: Path) -> None:
    code, result, printed = measured(cluster, tmp_path / "hang.json", "--inject-fault", "hang:1", "--timeout", "5")
    assert code == Exit.HANG, printed
    assert result.rows == []
    assert result.evidence is not None
    assert len(result.evidence.ranks) == 4  # the hung rank answers on its second thread
    assert "NCCL's log: the ranks used gloo, which writes none" in result.evidence.missing
