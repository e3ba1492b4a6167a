"""tools/run_tests.py: parallel processes, whole reports, one exit status, one interruption; tiers that cannot run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.clone import interrupt, wait_until
from tools import run_tests
from tools.kubernetes import node_probe
from tools.process import INTERRUPTED

ROOT = Path(__file__).resolve().parents[3]
PASSES = "print('=== test session starts ==='); print('a.py ..'); print('=== 2 passed in 1.00s ===')"
FAILS = (
    "import time; print('b.py F'); print('=== FAILURES ==='); time.sleep(0.5); print('why it failed');"
    "print('=== 1 failed in 0.50s ==='); raise SystemExit(1)"
)
# Counts what reaches it, and takes a while to clean up, as a test with a Ray cluster does.
CLEANS_UP = """
import pathlib, signal, sys, time
heard = []
signal.signal(signal.SIGINT, lambda *_: heard.append(1))
folder = pathlib.Path(sys.argv[1])
(folder / "ready").touch()
while not heard:
    time.sleep(0.05)
time.sleep(1)
(folder / "cleaned").write_text(str(len(heard)))
sys.exit(2)
"""
START = "import json, sys; from tools.run_tests import run; sys.exit(run(json.loads(sys.argv[1])))"


pytestmark = pytest.mark.usefixtures("signals_put_back")


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-u", "-c", code, *arguments]


def test_all_passed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_tests.run({"one": python(PASSES), "two": python(PASSES)}) == 0
    said = capsys.readouterr().out
    assert "one │ a.py ..\n" in said
    assert "two  2 passed in 1.00s\n" in said
    assert "session starts" not in said


def test_failure_report_is_printed_whole_and_sets_the_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_tests.run({"one": python(FAILS), "two": python(PASSES), "three": python(PASSES)}) == 1
    said = capsys.readouterr().out
    assert "=== FAILURES ===\nwhy it failed\n=== 1 failed in 0.50s ===\n" in said
    assert "one    1 failed in 0.50s (exit status 1)\n" in said


def test_process_that_dies_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    dies = python("import os; print('c.py .'); os.abort()")
    assert run_tests.run({"one": python(PASSES), "two": dies}) == -signal.SIGABRT
    assert "two  ended without a result (exit status -6)" in capsys.readouterr().out


@pytest.mark.parametrize("to_group", [True, False], ids=["terminal", "kill"])
def test_interruption_reaches_each_process_once(tmp_path: Path, to_group: bool) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    commands = {folder.name: python(CLEANS_UP, str(folder)) for folder in folders}
    process = subprocess.Popen(python(START, json.dumps(commands)), cwd=ROOT, start_new_session=True, text=True)
    try:
        wait_until(lambda: all((folder / "ready").exists() for folder in folders), "both run")
        if to_group:
            interrupt(process)
        else:
            process.terminate()
        assert process.wait(timeout=60) == INTERRUPTED
    finally:
        process.kill()
    assert [(folder / "cleaned").read_text() for folder in folders] == ["1", "1"]


def test_second_interruption_reaches_each_process_again(tmp_path: Path) -> None:
    """A process that still cleans up after the first one ends on the second, minutes before it would be killed."""
    waits = (
        "import pathlib, sys, time\n"
        "for name in ('ready', 'cleaning'):\n"
        "    pathlib.Path(sys.argv[1], name).touch()\n"
        "    try: time.sleep(600)\n"
        "    except KeyboardInterrupt: pass\n"
    )
    process = subprocess.Popen(
        python(START, json.dumps({"one": python(waits, str(tmp_path))})), cwd=ROOT, start_new_session=True, text=True
    )
    try:
        for name in ("ready", "cleaning"):
            wait_until((tmp_path / name).exists, name)
            interrupt(process)
        assert process.wait(timeout=60) == INTERRUPTED
    finally:
        process.kill()


def test_every_folder_of_tests_is_run_by_a_command() -> None:
    """A new folder needs a part of `make test`, or a command of its own."""
    folders = {f"tests/{path.name}" for path in (ROOT / "tests").iterdir() if any(path.rglob("test_*.py"))}
    words = [word for part in run_tests.PARTS.values() for word in part]
    # A file that a part leaves out is run by another one.
    moved = {word.removeprefix("--ignore=") for word in words if word.startswith("--ignore=")}
    assert moved <= set(words)
    run = [word for word in words if word.startswith("tests/") and word not in moved]
    assert folders - set(run) <= {"tests/kubernetes", "tests/pods", "tests/slurm"}
    # What pytest runs without arguments.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert sorted(set(run)) == sorted(project["tool"]["pytest"]["ini_options"]["testpaths"])
    # The one that two parts share is cut in two, by a mark.
    marks = [part[-1] for part in run_tests.PARTS.values() if "tests/workloads" in part]
    assert (sorted(marks), run.count("tests/workloads"), len(run)) == (["not ray", "ray"], 2, len(set(run)) + 1)


def run_tier(tier: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a tier with pytest's --version in place of tests."""
    command = [sys.executable, "-m", "tools.run_tests", tier, "--version"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_tier_kubernetes_without_go_counts_as_not_run(tmp_path: Path) -> None:
    """An empty cache and a PATH without Go: the output names what is missing and what runs without it."""
    environment = os.environ | {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = run_tier("kubernetes", environment)
    assert done.returncode == node_probe.NOT_READY
    assert "there is no 'go' on PATH" in done.stderr
    assert "'make test' and 'make rehearse' at depth quick run without it." in done.stderr
    assert done.stderr.rstrip().endswith("NOT RUN: tests/kubernetes.")
    assert "pytest" not in done.stdout


def test_tier_slurm_without_its_packages_counts_as_not_run(tmp_path: Path) -> None:
    """Without root, root is what is missing."""
    done = run_tier("slurm", os.environ | {"PATH": str(tmp_path)})
    assert done.returncode == node_probe.NOT_READY
    assert "A real Slurm needs root on Linux, with namespaces, and `apt-get install -y slurm-wlm munge" in done.stderr
    assert done.stderr.rstrip().endswith("NOT RUN: tests/slurm.")


def test_tier_pods_without_its_packages_counts_as_not_run(tmp_path: Path) -> None:
    """A run in which every test was skipped is no pass. Without root, root is what is missing."""
    environment = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"} | {"PATH": str(tmp_path)}
    done = run_tier("pods", environment)
    assert done.returncode == node_probe.NOT_READY
    assert "Real pods need " in done.stderr
    assert done.stderr.rstrip().endswith("NOT RUN: tests/pods.")
