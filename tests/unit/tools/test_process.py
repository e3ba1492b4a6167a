"""tools/process.py: programs and their supervisor end with their owner; an unexpected end is reported with its log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.clone import wait_until
from tools.process import ProgramEnded, Programs, plain_environment

ROOT = Path(__file__).resolve().parents[3]
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
    programs.stop()
    with pytest.raises(ProgramEnded, match="the supervisor has ended"):
        programs.start("late", ["true"])


def test_program_that_ends_is_reported_with_the_end_of_its_log(programs: Programs) -> None:
    programs.start("brief", ["sh", "-c", "echo last words; exit 3"], os.environ)
    with pytest.raises(ProgramEnded, match=r"(?s)brief ended with status 3.*last words"):
        wait_until(programs.check, "the end is noticed")


def test_programs_that_end_at_once_are_all_reported(programs: Programs) -> None:
    for number in range(20):
        programs.start(f"quick-{number}", ["false"])
        with pytest.raises(ProgramEnded, match=f"quick-{number} ended with status 1"):
            wait_until(programs.check, "the end is noticed")
        programs.stop(f"quick-{number}")


def test_program_starts_with_default_signals(programs: Programs) -> None:
    """The supervisor ignores some; a program that inherited that could not be stopped."""
    programs.start("signals", ["grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"])
    wait_until(lambda: "SigIgn" in programs.tail("signals"), "it prints")
    blocked, ignored = (int(line.split()[1], 16) for line in programs.tail("signals").splitlines())
    usual = (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM)
    assert [number.name for number in usual if (blocked | ignored) >> (number - 1) & 1] == []


def test_programs_inherit_nothing_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "https_proxy", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "secret")
    assert {"PATH", "HOME", "LANG"} <= set(plain_environment()) <= {"PATH", "HOME", "LANG", "TMPDIR", "TZ"}


def test_program_that_ignores_sigterm_is_killed(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.process.GRACE_S", 0.3)
    pid = programs.start("stubborn", ["sh", "-c", _STUBBORN], os.environ)
    wait_until(lambda: "ready" in programs.tail("stubborn"), "it ignores SIGTERM")
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
