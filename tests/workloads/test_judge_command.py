"""Command lines of `rdma-ray bench judge` and `bench floors`."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

from infra.catalog.baselines import BASELINES
from infra.catalog.machines import CATALOG
from tests.workloads.corpus.build import FOLDER
from workloads.cli import main
from workloads.exits import Exit
from workloads.nccl.judge import view
from workloads.nccl.result import Verdict

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
        ("milliseconds.txt", "gib.log", Exit.ERROR, "the times are ms and not µs"),
        ("mpirun-failed.txt", "gib.log", Exit.ERROR, "all_gather_perf: command not found"),
        ("two-gib.txt", "gib.log", Exit.BELOW, "; all_gather on 2 nodes from 4 GiB on; --no-floor"),
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


@pytest.mark.parametrize("option", [["--json", "FILE"], ["--json=FILE"]])
def test_json_is_written_to_file(option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "verdict.json"
    given = [word.replace("FILE", str(file)) for word in option]
    assert main([*JUDGE, *given, "--results", str(FOLDER / "below.txt"), "--log", GIB]) == Exit.BELOW
    assert json.loads(file.read_text())["code"] == Exit.BELOW
    assert "FAIL" in capsys.readouterr().out


def test_log_option_accepts_several_files(tmp_path: Path) -> None:
    """A shell expands `--log logs/*` to several files, one per rank."""
    lines = (FOLDER / "gib.log").read_text().splitlines(keepends=True)
    pids = dict.fromkeys(line.split(":")[1] for line in lines)
    logs = []
    for pid in pids:
        path = tmp_path / f"nccl.{pid}.log"
        path.write_text("".join(line for line in lines if f":{pid}:" in line))
        logs.append(str(path))
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
        (
            ["bench", "judge", "--machine", "a3-ultra", "--nodes", "2", "--results", GOOD],
            "choose from a3-ultragpu-8g, ",
        ),
        (["bench", "judge", "--machine", "a4x-highgpu-4g", "--nodes", "2", "--results", GOOD], "NVLink domain"),
        (["bench", "floors", "--machine", "a3-ultra"], "choose from a3-ultragpu-8g, "),
    ],
)
def test_usage_errors_exit_with_1(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == Exit.ERROR
    assert message in capsys.readouterr().err


def test_unknown_operation_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*JUDGE, "--op", "allgather", "--results", GOOD]) == Exit.ERROR
    assert "--op allgather: choose from" in capsys.readouterr().err


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
