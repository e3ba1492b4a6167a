"""The command line before any cluster is asked: quick help, usage errors, and the wrapper from anywhere."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workloads.conftest import ROOT
from workloads.cli import main
from workloads.exits import Exit


def test_help_needs_neither_ray_nor_torch() -> None:
    code = "import sys, workloads.cli; print(sorted({'ray', 'torch', 'pydantic', 'pulumi'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("arguments", [["--help"], ["bench", "nccl", "--help"], ["train", "digits", "--help"]])
def test_help_is_no_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == Exit.OK
    assert "Usage: rdma-ray" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--nope"], ["bench", "nccl", "-n", "0"], ["train", "digits", "--epochs", "x"]])
def test_usage_errors_are_1_because_2_means_below(arguments: list[str]) -> None:
    assert main(arguments) == Exit.ERROR


def test_the_wrapper_finds_the_project_through_a_link_and_spaces(tmp_path: Path) -> None:
    project = tmp_path / "a project"
    (project / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "bin" / "rdma-ray", project / "bin")
    link = tmp_path / "a link"
    link.symlink_to(Path("a project") / "bin" / "rdma-ray")

    bare = subprocess.run([link], capture_output=True, text=True, check=False)
    assert bare.returncode == 1
    assert f"no environment in {project}/.venv" in bare.stderr
    assert "make setup" in bare.stderr

    (project / ".venv" / "bin").mkdir(parents=True)
    python = project / ".venv" / "bin" / "python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$PYTHONPATH" "$@"\n')
    python.chmod(0o700)
    done = subprocess.run(
        [link, "bench", "a b"], capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"}
    )
    assert done.stdout.splitlines() == [str(project), "-m", "workloads.cli", "bench", "a b"]
