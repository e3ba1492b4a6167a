"""Nodes that `ray.check` keeps out, as the commands show them: Ray does not know these nodes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.names import CHECK_FAILED, NODE_CHECK
from tests.workloads.run.test_run import FOUR, RESULT, Head, event, lines, submitted
from tests.workloads.stack_outputs import GKE
from workloads.cli import main
from workloads.client.connection import Connection
from workloads.client.kubectl import Kubectl
from workloads.exits import Exit, WorkloadError


def pod(node: str, state: str = "running") -> dict[str, Any]:
    status = {"initContainerStatuses": [{"name": NODE_CHECK, "state": {state: {}}}]}
    return {"metadata": {"uid": node}, "spec": {"nodeName": node}, "status": status}


def failed(node: str, message: str, at: str = "2026-11-28T12:00:00Z") -> dict[str, Any]:
    return {"reason": CHECK_FAILED, "involvedObject": {"uid": node}, "message": message, "lastTimestamp": at}


OBJECTS = {
    "pods": [pod("gpu-0"), pod("gpu-1"), pod("gpu-2", "terminated"), pod("gpu-3")],
    "events": [
        failed("gpu-0", "mlx5_3 is \x1b[31mDOWN"),
        failed("gpu-1", "7 of 8 GPUs", "2026-11-28T12:00:30Z"),
        failed("gpu-1", "6 of 8 GPUs"),
        failed("gpu-2", "from before it was healthy"),
        failed("gone", "7 of 8 GPUs"),
    ],
}


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Head:
    """A head of a stack on Kubernetes, whose namespace has OBJECTS."""
    (tmp_path / "outputs.json").write_text(json.dumps(GKE))
    monkeypatch.setenv("RDMA_RAY_OUTPUTS", str(tmp_path / "outputs.json"))
    monkeypatch.setattr(Connection, "kubectl", kubectl := Kubectl.__new__(Kubectl))
    monkeypatch.setattr(kubectl, "get", lambda kind, *_: OBJECTS[kind], raising=False)
    head = Head()
    head.log = FOUR + lines(event("result", result=RESULT))
    monkeypatch.setattr(head, "nodes", list, raising=False)
    monkeypatch.setattr("workloads.client.api.JobsApi.of", lambda *_: head)
    monkeypatch.setattr(Connection, "forward", None)
    return head


def test_they_are_in_the_waiting_line_and_in_status(head: Head, capsys: pytest.CaptureFixture[str]) -> None:
    """Their reasons are text of the cluster."""
    assert main(["logs", submitted(head)]) == Exit.OK
    said = capsys.readouterr().err
    assert re.search(r"1 of 2 nodes ready; kept out by ray\.check: gpu-0 \(.*DOWN\), gpu-1 \(7 of 8 GPUs\)", said)
    assert main(["status"]) == Exit.OK
    said += capsys.readouterr().out
    assert "node gpu-1 is kept out: 7 of 8 GPUs" in said
    assert "\x1b" not in said
    assert main(["status", "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["kept_out"].keys() == {"gpu-0", "gpu-1"}


def test_account_that_may_not_list_pods_sees_the_rest(
    head: Head, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: str) -> None:
        raise WorkloadError("forbidden")

    monkeypatch.setattr(Connection.kubectl, "get", refused)
    assert main(["logs", submitted(head)]) == Exit.OK
    assert "1 of 2 nodes ready\n" in capsys.readouterr().err
