"""Command lines of `rdma-ray bench judge` and `bench floors`, and the verdict at the end of a benchmark."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from infra.catalog.baselines import BASELINES
from infra.catalog.machines import CATALOG
from tests.workloads.nccl.corpus.cases import FOLDER
from tests.workloads.nccl.results import fabric, functional, row
from workloads.cli import main
from workloads.client.api import Job
from workloads.client.kinds import kind_of
from workloads.client.run import Ended, conclude
from workloads.exits import Exit
from workloads.nccl.judge import view
from workloads.nccl.result import BenchResult, Verdict

JUDGE = ["bench", "judge", "--machine", "a3-ultragpu-8g", "--nodes", "2"]
GOOD, GIB = str(FOLDER / "gib-good.txt"), str(FOLDER / "gib.log")


def test_healthy_run_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*JUDGE, "--op", "all_gather", "--results", GOOD, "--log", GIB]) == Exit.OK
    shown = capsys.readouterr().out
    assert "101.6%" in shown
    assert "published by skypilot-org/skypilot" in shown
    assert "PASS  a3-ultragpu-8g: all_gather 8 GiB: 331.0 GB/s, 101.6% of 325.7 GB/s" in shown


@pytest.mark.parametrize(
    ("results", "log", "code", "message"),
    [
        ("below.txt", "gib.log", Exit.BELOW, "FAIL (exit 2)  a3-ultragpu-8g: all_gather 8 GiB: 276.8 GB/s, 85.0% of"),
        ("wrong.txt", "gib.log", Exit.WRONG_DATA, "first in all_gather at 64 MiB (24 elements)"),
        ("hang.txt", "gib.log", Exit.HANG, "Test timeout (60s)"),
        ("gib-good.txt", "socket.log", Exit.NOT_AS_ASKED, "socket-transport: NCCL used sockets"),
        ("empty.txt", "gib.log", Exit.ERROR, "the results cannot be read: it is empty"),
        ("gigabits.txt", "gib.log", Exit.ERROR, "Gbit/s instead of GB/s"),
        ("gibibytes.txt", "gib.log", Exit.ERROR, "GiB/s instead of GB/s"),
        ("milliseconds.txt", "gib.log", Exit.ERROR, "the times are in ms, not µs"),
        ("mpirun-failed.txt", "gib.log", Exit.ERROR, "all_gather_perf: command not found"),
        ("two-gib.txt", "gib.log", Exit.BELOW, "; all_gather on 2 nodes from 4 GiB on; pass --no-floor"),
    ],
)
def test_failure_is_reported_with_exit_code(
    results: str, log: str, code: Exit, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*JUDGE, "--results", str(FOLDER / results), "--log", str(FOLDER / log)]) == code
    assert message in capsys.readouterr().out


@pytest.mark.parametrize("order", [["--json", "--results", GOOD], ["--results", GOOD, "--json"]])
def test_json_without_file_is_stdout(order: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*JUDGE, *order, "--log", GIB]) == Exit.OK
    shown = capsys.readouterr()
    assert Verdict.model_validate_json(shown.out).outcome == "pass"
    assert "PASS" in shown.err


@pytest.mark.parametrize("option", ["--json {}", "--json={}"])
def test_json_is_written_to_file(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "verdict.json"
    assert main([*JUDGE, *option.format(file).split(), "--results", GOOD, "--log", GIB]) == Exit.OK
    assert json.loads(file.read_text())["code"] == Exit.OK
    assert "PASS" in capsys.readouterr().out


def test_log_option_accepts_several_files(tmp_path: Path) -> None:
    """A shell expands `--log logs/*` to several files, one per rank."""
    for line in Path(GIB).read_text().splitlines(keepends=True):
        with (tmp_path / f"nccl.{line.split(':')[1]}.log").open("a") as file:
            file.write(line)
    logs = sorted(map(str, tmp_path.iterdir()))
    assert len(logs) == 16
    assert main([*JUDGE, "--results", GOOD, "--log", *logs]) == Exit.OK
    assert main([*JUDGE, "--log", logs[0], "--results", GOOD, "--log", *logs[1:]]) == Exit.OK


def test_results_are_read_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((FOLDER / "gib-good-mpirun.txt").read_bytes())))
    assert main([*JUDGE, "--results", "-"]) == Exit.OK


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (JUDGE, "nothing to judge"),
        ([*JUDGE, GOOD], f"pass it as --results {GOOD}"),
        ([*JUDGE, "--results", "-", "--log", "-"], "read only once"),
        ([*JUDGE, "--results", "/nowhere/at/all"], "cannot read /nowhere/at/all: No such file"),
        ([*JUDGE[:2], *JUDGE[4:], "--results", GOOD, "--machine", "a3-ultra"], "choose from a3-ultragpu-8g, "),
        ([*JUDGE[:2], *JUDGE[4:], "--results", GOOD, "--machine", "a4x-highgpu-4g"], "NVLink domain"),
        (["bench", "floors", "--machine", "a3-ultra"], "choose from a3-ultragpu-8g, "),
    ],
)
def test_usage_errors_exit_with_1(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == Exit.ERROR
    assert message in capsys.readouterr().err


def test_floors_table_fits_80_columns_and_lists_sources() -> None:
    console = Console(width=80, file=io.StringIO(), record=True)
    view.show_floors(list(CATALOG.values()), console)
    shown = console.export_text()
    table = shown[: shown.index("\n1  ")]
    assert "…" not in table
    assert max(map(len, table.splitlines())) <= 80
    for name in CATALOG:
        assert name in table
    for line in (line for lines in BASELINES.values() for line in lines):
        assert f"{line.busbw:g}" in table
        assert line.source in shown


def leave(result: BenchResult, json_file: Path, machine: str | None = "a3-ultragpu-8g", **spec: Any) -> dict[str, Any]:
    """Return the result that the command writes, which has the exit code that the command ends with."""
    bare = result.model_copy(update={"verdict": None, "spec": result.spec.model_copy(update=spec)})
    job = Job("nccl-1", "SUCCEEDED", "", None, None, 0, {})
    ended = Ended(0, bare.model_dump(mode="json", by_alias=True), job)
    code = conclude("local", machine, ended, kind_of({"workload": "nccl"}), str(json_file))
    written: dict[str, Any] = json.loads(json_file.read_text())
    assert written["exit_code"] == code
    return written


def test_healthy_run_exits_with_0_and_has_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = leave(fabric(), tmp_path / "r.json")
    assert (written["verdict"]["outcome"], written["exit_code"]) == ("pass", 0)
    assert (written["job"], written["cluster"]) == ("nccl-1", "local")
    assert "PASS" in capsys.readouterr().out


def test_slow_fabric_fails_despite_successful_driver(tmp_path: Path) -> None:
    slow = fabric().model_copy(update={"rows": [row("all_gather", 2**33, peak=160.0, ranks=16)]})
    written = leave(slow, tmp_path / "r.json")
    assert written["exit_code"] == Exit.BELOW
    assert "all_gather" in written["reason"]


def test_missing_figure_requires_no_floor_option(tmp_path: Path) -> None:
    """Only broadcasts, which have no published figure."""
    unknown = fabric().model_copy(update={"rows": [each for each in fabric().rows if each.op == "broadcast"]})
    assert leave(unknown, tmp_path / "r.json")["exit_code"] == Exit.BELOW
    assert leave(unknown, tmp_path / "r.json", no_floor=True)["exit_code"] == 0


def test_without_fabric_driver_verdict_is_kept(tmp_path: Path) -> None:
    written = leave(functional(), tmp_path / "r.json", machine=None)
    assert (written["exit_code"], written["verdict"]["machine"]) == (0, None)
    assert written["reason"] == functional().reason
