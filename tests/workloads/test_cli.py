"""Command line without a cluster: quick help, usage errors, and the wrapper from any folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.pins import RAY
from tests.workloads.conftest import ROOT
from workloads.cli import json_to_stdout, main
from workloads.exits import Exit


def test_help_needs_neither_ray_nor_torch() -> None:
    code = "import sys, workloads.cli; print(sorted({'ray', 'torch', 'pydantic', 'pulumi'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_drivers_import_nothing_that_a_cluster_lacks() -> None:
    """The image of a cluster has Ray and PyTorch, and of this project the package `workloads` only."""
    drivers = ("train.driver", "nccl.driver", "nccl.multigpu", "nccl.hunt.driver")
    blocked = "import sys; sys.modules |= dict.fromkeys(['cyclopts', 'infra', 'pulumi', 'rich'])"
    imports = "; ".join(f"import workloads.{driver}" for driver in drivers)
    subprocess.run([sys.executable, "-c", f"{blocked}; {imports}"], cwd=ROOT, check=True)


@pytest.mark.parametrize("arguments", [["--help"], ["bench", "nccl", "--help"], ["train", "digits", "--help"]])
def test_help_is_no_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == Exit.OK
    assert "Usage: rdma-ray" in capsys.readouterr().out


def test_help_names_defaults_of_stack_and_preset(capsys: pytest.CaptureFixture[str]) -> None:
    """Brackets are no markup in plain-text help."""
    assert main(["bench", "nccl", "--help"]) == Exit.OK
    assert "[default: pairs]" in " ".join(capsys.readouterr().out.replace("│", " ").split())


@pytest.mark.parametrize(
    "arguments",
    [["--nope"], ["bench", "nccl", "-n", "0"], ["bench", "nccl", "-c", "-1"], ["train", "digits", "--epochs", "x"]],
)
def test_usage_errors_are_1_because_2_means_below(arguments: list[str]) -> None:
    assert main(arguments) == Exit.ERROR


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "nccl", "-n", "0"], "--iterations 0: input should be greater than or equal to 1"),
        (["train", "digits", "--epochs", "0"], "--epochs 0: input should be greater than or equal to 1"),
        (["train", "digits", "--epoch", "1"], "Unknown option: --epoch. Did you mean --epochs?"),
    ],
)
def test_usage_errors_name_option_value_and_what_is_allowed(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == Exit.ERROR
    assert capsys.readouterr() == ("", f"{message}\n")


def test_json_without_a_file_is_stdout() -> None:
    assert json_to_stdout(["compare", "--json", "a", "b"]) == ["compare", "--json", "a", "b"]
    assert json_to_stdout(["judge", "--json", "-s", "x", "--json"]) == [
        "judge",
        "--json",
        "-",
        "-s",
        "x",
        "--json",
        "-",
    ]
    assert json_to_stdout(["list", "--json", "-"]) == ["list", "--json", "-"]


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


GKE = """config:
  rdma-ray:target: gke
  rdma-ray:location: us-central1-b
  rdma-ray:nodes: {machine: a3-ultragpu-8g, max: 4}
  rdma-ray:ray: {image: 'rayproject/ray:2.60.0-py311-cu128'}
"""
EKS = """config:
  rdma-ray:target: eks
  rdma-ray:location: us-east-1a
  rdma-ray:nodes: {machine: p5en.48xlarge, max: 4}
  rdma-ray:ray: {image: 'example/ray:2.60.0-py311-cu128'}
"""


@pytest.mark.parametrize(("text", "ranges", "nics"), [(GKE, 13, 8), (EKS, 5, 16)])
def test_plan_of_a_cloud_stack(
    text: str, ranges: int, nics: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "Pulumi.cloud.yaml"
    file.write_text(text)
    assert main(["plan", str(file), "--json", "-"]) == Exit.OK
    plan = json.loads(capsys.readouterr().out)
    assert len(plan["ranges"]) == ranges
    assert plan["fabric"]["nics"] == nics
    assert plan["fabric"]["gbpsPerNode"] == 3200
    assert plan["pod"]["container"]["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert main(["plan", str(file)]) == Exit.OK
    assert "3200 Gbit/s per node" in capsys.readouterr().out


def test_plan_of_a_wrong_stack_prints_every_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "Pulumi.cloud.yaml"
    file.write_text(GKE.replace("max: 4", "maxRunHours: 200").replace("location", "loction"))
    assert main(["plan", str(file)]) == Exit.ERROR
    said = capsys.readouterr()
    assert "has 2 problems" in said.err
    assert said.out == ""


def test_every_stack_file_of_the_project_has_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    files = list(ROOT.glob("Pulumi.*.yaml"))
    assert files
    for file in files:
        assert main(["plan", str(file)]) == Exit.OK, capsys.readouterr().err


def test_plan_names_a_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "Pulumi.nowhere.yaml"]) == Exit.ERROR
    assert "cannot read Pulumi.nowhere.yaml" in capsys.readouterr().err


def test_outputs_are_whole_and_hide_the_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the engine prints them, nulls left out; as we print them, with nulls and without the token."""
    given: dict[str, Any] = {
        "target": "local",
        "nodes": {"min": 2, "max": 2, "gpusPerNode": 0, "cpusPerNode": 2},
        "fabric": {"transport": "socket", "nics": None, "gbpsPerNic": None, "floors": []},
        "ray": {
            "cluster": "local",
            "version": RAY,
            "dashboard": "http://127.0.0.1:1",
            "jobs": "http://127.0.0.1:1",
            "client": "ray://127.0.0.1:1",
            "token": "hush",
        },
    }
    file = tmp_path / "outputs.json"
    file.write_text(json.dumps(given))
    assert main(["outputs", "--outputs", str(file)]) == Exit.OK
    said = capsys.readouterr().out
    assert "hush" not in said
    assert json.loads(said) == given | {
        "ray": given["ray"] | {"mode": "cluster", "token": "**********"}
    } | dict.fromkeys(["location", "machine", "kubeconfig", "namespace", "storage", "queue"])
