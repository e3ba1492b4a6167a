"""`make test-kubernetes` where its programs cannot be had: it says so, and does not pass."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tools.kubernetes import tier

ROOT = Path(__file__).resolve().parents[2]


def test_without_go_the_tier_counts_as_not_run(tmp_path: Path) -> None:
    """An empty cache and a PATH without Go: it names what is missing, what runs without it, and runs no test."""
    environment = os.environ | {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "tools.kubernetes.tier", "--version"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == tier.NOT_RUN
    assert "there is no 'go' on PATH" in done.stderr
    assert "'make test' and 'make rehearse' at depth quick run without it." in done.stderr
    assert done.stderr.rstrip().endswith("NOT RUN: the tests of the tier kubernetes (tests/kubernetes).")
    assert "pytest" not in done.stdout


def test_a_build_that_fails_counts_as_not_run(tmp_path: Path) -> None:
    """A Go that is recent enough and fails: its own words are shown."""
    go = tmp_path / "go"
    go.write_text(
        "#!/bin/sh\ncase $1 in version) echo go version go1.99.0 linux/amd64;; *) echo no space left >&2; exit 1;; esac"
    )
    go.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:/usr/bin:/bin", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "tools.kubernetes.tier", "--version"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == tier.NOT_RUN
    assert "no space left" in done.stderr
    assert "NOT RUN" in done.stderr


def test_make_runs_the_tier_by_this_command() -> None:
    """What CI runs: test_ci.py."""
    make = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "test-kubernetes: setup-dev" in make
    assert "-m tools.kubernetes.tier $(PYTEST)" in make
