"""tools/process.py: programs and their supervisor end with their owner; an unexpected end is reported with its log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tools.process import ProgramEnded, Programs

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = 20.0
# A program that does not end on SIGTERM.
_STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
_OWNER = """
import os, sys, time
from pathlib import Path
from tools.process import Programs
programs = Programs(Path(sys.argv[1]))
print(programs.start("sleep", ["sleep", "600"], os.environ), flush=True)
time.sleep(600)
"""


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    programs = Programs(tmp_path)
    yield programs
    programs.stop()


def test_programs_run_until_they_are_stopped(programs: Programs) -> None:
    first = programs.start("first", ["sleep", "600"], os.environ)
    second = programs.start("second", ["sleep", "600"], os.environ)
    assert programs.running() == {"first": first, "second": second}
    assert os.getpgid(first) == first
    programs.stop("first")
    assert not psutil.pid_exists(first)
    assert programs.running() == {"second": second}
    programs.check()
    again = programs.start("first", ["sleep", "600"], os.environ)
    assert programs.running()["first"] == again


def test_program_that_ends_is_reported_with_the_end_of_its_log(programs: Programs) -> None:
    programs.start("brief", ["sh", "-c", "echo last words; exit 3"], os.environ)
    with pytest.raises(ProgramEnded, match=r"(?s)brief ended with status 3.*last words"):
        wait_until_ended(programs, "brief")


def test_program_that_ignores_sigterm_is_killed(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.process.GRACE_S", 0.3)
    pid = programs.start("stubborn", ["sh", "-c", _STUBBORN], os.environ)
    log = tmp_path / "stubborn.log"
    deadline = time.monotonic() + WITHIN_S
    while "ready" not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    programs.stop("stubborn")
    assert not psutil.pid_exists(pid)


def test_program_that_does_not_exist_is_reported(programs: Programs) -> None:
    with pytest.raises(ProgramEnded, match="nowhere could not be started"):
        programs.start("nowhere", ["/no/such/program"], os.environ)
    assert programs.running() == {}


@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGTERM])
def test_program_ends_with_its_owner(tmp_path: Path, way: signal.Signals) -> None:
    owner = subprocess.Popen([sys.executable, "-c", _OWNER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        program = psutil.Process(int(owner.stdout.readline()))
        guard = program.parent()
        assert guard is not None
    finally:
        owner.send_signal(way)
        owner.communicate()
    gone, alive = psutil.wait_procs([program, guard], timeout=WITHIN_S)
    assert alive == []
    assert len(gone) == 2


def wait_until_ended(programs: Programs, name: str) -> None:
    """Wait until `check` reports the end of a program."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        programs.check()
        time.sleep(0.02)
    pytest.fail(f"{name} was never missed")
