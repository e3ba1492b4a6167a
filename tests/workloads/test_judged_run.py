"""End of a benchmark on the client: judge, show, write, and exit with the verdict's code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from infra.catalog.pins import RAY
from infra.outputs import Fabric, Nodes, Outputs, Ray
from tests.workloads.results import fabric, functional
from workloads.client.api import Job
from workloads.client.run import Ended, conclude, kind_of
from workloads.exits import Exit
from workloads.nccl.judge.verdict import judged
from workloads.nccl.result import Result

MACHINE = "a3-ultragpu-8g"


def outputs(machine: str | None) -> Outputs:
    return Outputs(
        target="gke" if machine else "local",
        machine=machine,
        nodes=Nodes(min=0, max=4, gpus_per_node=8, cpus_per_node=0),
        fabric=Fabric(transport="gib" if machine else "socket", nics=8, gbps_per_nic=400, floors=[]),
        ray=Ray(
            cluster="ray",
            version=RAY,
            dashboard="http://127.0.0.1:1",
            jobs="http://127.0.0.1:1",
            client="ray://127.0.0.1:1",
            token=SecretStr("hidden"),
        ),
    )


def document(result: Result, **spec: Any) -> dict[str, Any]:
    bare = result.model_copy(update={"verdict": None, "spec": result.spec.model_copy(update=spec)})
    return bare.model_dump(mode="json", by_alias=True)


def leave(found: dict[str, Any], machine: str | None, json_file: Path, code: int = 0) -> tuple[int, dict[str, Any]]:
    """The exit code that the command ends with, and the result that it wrote."""
    ended = Ended(code, found, Job("nccl-1", "SUCCEEDED", "", None, None, code, {}))
    left = conclude(outputs(machine), ended, kind_of("nccl"), str(json_file))
    return left, json.loads(json_file.read_text())


def test_healthy_run_exits_with_0_and_has_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, written = leave(document(fabric()), MACHINE, tmp_path / "r.json")
    assert (code, written["verdict"]["outcome"], written["exit_code"]) == (0, "pass", 0)
    assert (written["job"], written["cluster"]) == ("nccl-1", "ray")
    assert "PASS" in capsys.readouterr().out


def test_slow_fabric_fails_despite_successful_driver(tmp_path: Path) -> None:
    slow = fabric()
    rows = [row.model_copy(update={"algbw": row.algbw / 2, "busbw": row.busbw / 2}) for row in slow.rows]
    rows = [
        row.model_copy(
            update={
                "time_us": row.time_us.model_copy(update={name: 2 * value for name, value in row.time_us}),
                "ranks": [rank.model_copy(update={"time_us": 2 * rank.time_us}) for rank in row.ranks],
            }
        )
        for row in rows
        if row.op == "all_gather"
    ]
    code, written = leave(document(slow.model_copy(update={"rows": rows})), MACHINE, tmp_path / "r.json")
    assert code == written["exit_code"] == Exit.BELOW
    assert "all_gather" in written["reason"]


def test_missing_evidence_fails_run(tmp_path: Path) -> None:
    blind = fabric().model_copy(update={"evidence": None})
    assert leave(document(blind), MACHINE, tmp_path / "r.json")[0] == Exit.NOT_AS_ASKED


def test_missing_figure_requires_no_floor_option(tmp_path: Path) -> None:
    """Only broadcasts, which have no published figure."""
    rows = [row for row in fabric().rows if row.op == "broadcast"]
    unknown = fabric().model_copy(update={"rows": rows})
    assert leave(document(unknown), MACHINE, tmp_path / "r.json")[0] == Exit.BELOW
    assert leave(document(unknown, no_floor=True), MACHINE, tmp_path / "r.json")[0] == 0


def test_without_fabric_driver_verdict_is_kept(tmp_path: Path) -> None:
    code, written = leave(document(functional()), None, tmp_path / "r.json")
    assert (code, written["verdict"]["machine"]) == (0, None)
    assert written["reason"] == functional().reason


def test_failed_run_stays_failed() -> None:
    hung = functional().model_copy(update={"exit_code": int(Exit.HANG), "reason": "no answer", "rows": []})
    found = judged(hung, None)
    assert (found.exit_code, found.reason) == (Exit.HANG, "no answer")
