"""tools/ci.py: every part runs to its end, failures are repeated, one exit status, and a budget."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.clone import executable, wait_until
from tools import ci
from tools.go_build import cache
from tools.process import INTERRUPTED, wait_for

ROOT = Path(__file__).resolve().parents[3]


pytestmark = pytest.mark.usefixtures("signals_put_back")


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a program that prints, waits and ends by its arguments: TEXT SECONDS STATUS."""
    text = f'#!/bin/sh\necho "$1 begins"\nsleep "$2"\necho "$1 ends"\necho "$1" >> {tmp_path}/ran\nexit "$3"\n'
    executable(tmp_path / "part", text)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return "part"


def test_every_part_runs_and_failures_are_repeated_at_the_end(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ci.Run()
    for part in ("one 0 0", "two 0 3", "three 0 0"):
        run.do(f"{command} {part}")
    assert run.conclude() == 1
    assert (tmp_path / "ran").read_text().split() == ["one", "two", "three"]
    said = capsys.readouterr().out
    end = said[said.index("end of its output:") :]
    assert "two begins\ntwo ends\n" in end
    assert "one begins" not in end
    *_, one, two, three, whole = end.splitlines()
    assert (one[-6:], three[-6:], whole[-6:]) == ("passed", "passed", "FAILED")
    assert two.endswith("FAILED, exit status 3")


def test_parts_have_no_kubeconfig_and_a_type_cache_outside_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/somebody/else")
    run = ci.Run()
    part = run.begin("environment", ["sh", "-c", 'echo "${KUBECONFIG-none} $MYPY_CACHE_DIR"'])
    run.wait(part)
    assert part.lines == [f"none {cache() / 'mypy'}\n"]


def test_parallel_parts_print_their_names_and_the_first_has_priority(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / command).write_text(
        f'#!/bin/sh\nnice > {tmp_path}/$1\necho begins\nuntil [ -e {tmp_path}/$2 ]; do sleep 0.1; done\nexit "$3"\n'
    )
    run = ci.Run()
    run.do(f"{command} one two 0", f"{command} two one 3")
    assert run.conclude() == 1
    first, second = (int((tmp_path / name).read_text()) for name in ("one", "two"))
    assert second == min(first + 5, 19)
    said = capsys.readouterr().out
    assert f"{command} one two 0 │ begins\n" in said
    assert f"{command} two one 3 │ begins\n" in said


def test_background_part_is_silent_unless_it_fails_and_does_not_fail_the_run(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ci.Run()
    made, not_made = run.begin("made", [command, "made", "0", "0"]), run.begin("not made", [command, "lacks", "0", "2"])
    run.wait(made, not_made)
    run.leave_out("make test-pods", "no root")
    assert run.conclude() == 0
    said = capsys.readouterr().out
    assert "not run: no root" in said
    assert said.splitlines()[-1].split()[-1] == "passed"
    assert "made ends" not in said
    assert "lacks ends" in said


def test_failed_tests_are_listed_first_each_with_the_start_of_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    """One long error must not hide the others."""
    run = ci.Run()
    error = "".join(f"____ test_{name} ____\n  code\n" + "E   long\n" * 200 for name in "ab")
    lines = error + "FAILED t.py::test_a - why\nFAILED t.py::test_b - why\n" + "later\n" * 100
    part = run.begin("tests", [sys.executable, "-c", f"print({lines!r}); raise SystemExit(1)"])
    run.wait(part)
    run.conclude()
    said = capsys.readouterr().out
    assert (
        "end of its output:\nFAILED t.py::test_a - why\nFAILED t.py::test_b - why\n____ test_a ____\nE   long\n" in said
    )
    assert "long\n____ test_b ____\nE   long\n" in said
    assert 5 < said.count("E   long") < 40


def test_part_over_budget_is_ended_and_the_rest_is_not_run(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ci.Run(budget_s=1.0)
    run.do(f"{command} long 600 0")
    run.do(f"{command} next 0 0")
    assert run.conclude() == 1
    assert not (tmp_path / "ran").exists()
    said = capsys.readouterr().out
    assert "FAILED (the time is over), exit status" in said
    assert "not run: the time is over" in said


def test_part_that_ignores_sigint_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ci, "_GRACE_S", 0.5)
    run = ci.Run()
    deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('deaf'); time.sleep(600)"
    part = run.begin("deaf", [sys.executable, "-u", "-c", deaf])
    wait_until(lambda: part.lines, "it does not listen any more")
    run.signals.append(signal.SIGINT)
    run.wait(part)
    assert part.status == -signal.SIGKILL


def test_interruption_is_passed_on_and_ends_the_run(command: str, tmp_path: Path) -> None:
    run = ci.Run()
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
    run.do(f"{command} long 600 0")
    run.do(f"{command} next 0 0")
    assert run.conclude() == INTERRUPTED
    assert not (tmp_path / "ran").exists()


def test_a_tier_is_left_out_when_little_time_is_left() -> None:
    """On a machine where `make test` is slow, every tier is."""
    assert ci.too_late(ci.PODS, 12 * 60.0, 600.0) == ""
    assert ci.too_late(ci.PODS, 12 * 60.0 - 61, 600.0) == "11 minutes are left of 85, and it may take 12"
    assert ci.too_late(ci.KUBERNETES, -5.0, 2400.0) == "0 minutes are left of 85, and it may take 26"


@pytest.mark.parametrize(
    ("left_min", "done"),
    [
        (60, ["make test-pods", "make test-kubernetes", "make test-slurm"]),
        (35, ["make test-kubernetes", "make test-slurm"]),
        (18, ["make test-slurm"]),
        (10, []),
    ],
)
def test_tiers_that_are_left_out_do_not_fail_the_run(
    left_min: int, done: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where `make test` took half an hour."""
    said: list[str] = []

    def do(run: ci.Run, *names: str) -> None:
        said.extend(names)
        if names == ("make test",):
            run.parts.append(ci.CiPart("make test", ["true"]))
            wait_for(run.parts, lambda: "", 5.0)
            run.parts[-1].seconds = 1800.0

    monkeypatch.setattr(ci.Run, "do", do)
    monkeypatch.setattr(ci.Run, "left_s", left_min * 60.0)
    monkeypatch.setattr(ci.Run, "begin", lambda *_: None)
    monkeypatch.setattr(ci.Run, "wait", lambda *_: None)
    monkeypatch.setattr(ci, "not_ready", lambda _: "")
    assert ci.main() == 0
    assert [name for name in said if name.startswith("make test-")] == done
    assert capsys.readouterr().out.count("–  not run: ") == 3 - len(done)


@pytest.mark.parametrize(
    ("said", "status", "why"),
    [("", 0, ""), ("needs root", 70, "needs root"), ("", 9, "exit status 9"), ("Trace\nwhy", 1, "why")],
)
def test_real_pods_are_left_out_with_the_reason_of_the_probe(
    monkeypatch: pytest.MonkeyPatch, said: str, status: int, why: str
) -> None:
    monkeypatch.setitem(ci._PROBES, ci.PODS, [sys.executable, "-c", f"print({said!r}); raise SystemExit({status})"])
    assert ci.not_ready(ci.PODS) == why


def test_ci_runs_what_the_readme_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order, with nothing run."""
    done: list[str] = []
    monkeypatch.setattr(ci.Run, "do", lambda _, *names: done.extend(names))
    monkeypatch.setattr(ci.Run, "begin", lambda *_: None)
    monkeypatch.setattr(ci.Run, "wait", lambda *_: None)
    monkeypatch.setattr(ci.Run, "conclude", lambda _: 0)
    monkeypatch.setattr(ci, "not_ready", lambda _: "")
    assert ci.main() == 0
    tiers = ["make test", "make test-pods", "make test-kubernetes", "make test-slurm"]
    assert done == ["make up", "make down", "make check", *tiers]
    targets = (ROOT / "Makefile").read_text().splitlines()
    for name in done:
        assert any(line.startswith(f"{name.split()[1]}:") for line in targets), name
    assert (ROOT / ".ci" / "run").read_text().endswith("exec python3 -m tools.ci\n")


def test_ci_starts_without_an_environment() -> None:
    """A clean checkout has only the system's Python."""
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); import tools.ci"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
