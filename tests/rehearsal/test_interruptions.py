"""Crashes and Ctrl-C: no process is left, and the next run works."""

from __future__ import annotations

import subprocess

import pytest

from tests.clone import Clone, interrupt, wait_until
from tools.go_build import module_cache

RAY = ("gcs_server", "raylet")


def read_until(process: subprocess.Popen[str], phrase: str) -> str:
    """Read the output of a command until it contains `phrase`."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if phrase in line:
            return said
    raise AssertionError(f"ended without saying {phrase!r}:\n{said}")


def assert_nothing_left(clone: Clone) -> None:
    wait_until(lambda: clone.processes() == [], f"no process is left; still there: {clone.processes()}")
    assert not clone.folder().path.exists()


def test_killed_engine_and_provider_leave_nothing_running(fresh_clone: Clone) -> None:
    """SIGKILL to all of Pulumi during a create: the starting node ends without help."""
    clone = fresh_clone
    clone.pulumi("stack", "select", "--create")
    engine = clone.start("bin/pulumi", "up", "--yes", "--skip-preview", "--stack", "local", "--non-interactive")
    wait_until(lambda: clone.processes(*RAY), "a node starts")
    for process in clone.engine_processes():
        process.kill()
    engine.communicate()
    wait_until(lambda: clone.processes() == [], "the starting node to end")
    # Neither the engine's lock nor the unfinished head in its state prevents the next run.
    clone.run("make", "down")
    assert_nothing_left(clone)


def test_ctrl_c_while_cluster_starts(fresh_clone: Clone) -> None:
    make = fresh_clone.start("make", "up")
    wait_until(lambda: fresh_clone.processes(*RAY), "a node starts")
    interrupt(make)
    said, _ = make.communicate(timeout=300)
    assert make.returncode != 0
    assert "Taking down the resources that this run created" in said
    assert_nothing_left(fresh_clone)


def test_ctrl_c_during_benchmark(fresh_clone: Clone) -> None:
    make = fresh_clone.start("make", "up")
    said = read_until(make, "== benchmark ==") + read_until(make, "measuring on")
    interrupt(make)
    rest, _ = make.communicate(timeout=300)
    assert make.returncode != 0
    assert "Taking down the resources that this run created" in rest, said + rest
    assert_nothing_left(fresh_clone)


def test_ctrl_c_while_the_engine_is_built(fresh_clone: Clone) -> None:
    """With an empty build cache: no compiler continues, and an unfinished engine is not used."""
    if (fresh_clone.path / ".tools" / "bin" / "pulumi").is_symlink():
        pytest.skip("this machine has a Pulumi of its own, so no engine is built on it")
    cache = fresh_clone.path / "cache"
    fresh_clone.environment |= {
        "XDG_CACHE_HOME": str(cache),
        "GOCACHE": str(cache / "go-build"),
        "GOMODCACHE": str(module_cache()),
    }
    make = fresh_clone.start("make", "setup")
    wait_until(lambda: fresh_clone.processes("compile"), "the compiler runs")
    interrupt(make)
    # The compiler finishes its current packages, which takes time on a busy machine.
    said, _ = make.communicate(timeout=300)
    assert make.returncode != 0, said
    wait_until(lambda: fresh_clone.processes() == [], "the compiler ends")
    assert list(cache.rglob("pulumi*")) == []
