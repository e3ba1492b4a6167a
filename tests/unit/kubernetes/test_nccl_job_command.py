"""`rdma-ray bench job`: its output on stdout and stderr, and errors."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from infra.settings import GkeSettings, from_stack_file
from workloads.cli import main

ROOT = Path(__file__).resolve().parents[3]
GKE, EKS = str(ROOT / "Pulumi.gke.yaml"), str(ROOT / "Pulumi.eks.yaml")
needs_ssh_keygen = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")


def test_manifest_goes_to_stdout_and_next_steps_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "job", GKE, "--op", "all_reduce", "-b", "1M", "-e", "4G", "--nodes", "2"]) == 0
    captured = capsys.readouterr()
    kinds = [each["kind"] for each in yaml.safe_load_all(captured.out)]
    assert kinds == ["NetworkPolicy", "ConfigMap", "Service", "Job"]
    assert "    set -uo pipefail\n" in captured.out, "scripts must be readable, not escaped"
    assert "PRIVATE KEY" not in captured.out
    settings = from_stack_file(Path(GKE))
    assert isinstance(settings, GkeSettings)
    machine = settings.nodes.machine
    assert f"rdma-ray bench judge --machine {machine} --nodes 2 --op all_reduce --results" in captured.err
    assert "batch.kubernetes.io/job-completion-index=0" in captured.err
    assert "ssh-key" not in captured.err


def test_stack_option_names_stack_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "job", "--stack", "gke"]) == 0
    by_name = capsys.readouterr().out
    assert main(["bench", "job", GKE]) == 0
    assert capsys.readouterr().out == by_name


@pytest.mark.parametrize(
    ("arguments", "no_floor", "remark"),
    [
        ([GKE], False, ""),
        ([GKE, "--op", "all_to_all"], True, "no figure is published for this"),
        ([GKE, "--split", "rails"], True, "no figure is published for this"),
        ([EKS], True, "no figure is published for this"),
        ([GKE, "-e", "512M"], False, "-e 512M: the judge requires a row of 1G or more"),
    ],
)
def test_missing_figure_is_reported_before_the_run(
    arguments: list[str], no_floor: bool, remark: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "job", *arguments]) == 0
    captured = capsys.readouterr().err
    assert ("--no-floor\n" in captured) == no_floor
    assert remark in captured


@needs_ssh_keygen
def test_each_key_pair_is_new_and_matches(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files = []
    for _ in range(2):
        assert main(["bench", "job", EKS, "--ssh-key"]) == 0
        captured = capsys.readouterr()
        (secret,) = yaml.safe_load_all(captured.out)
        assert (secret["kind"], secret["metadata"]["name"]) == ("Secret", "nccl-all-reduce-ssh")
        assert captured.err == ""
        files.append(secret["stringData"])
    assert files[0]["ssh-privatekey"] != files[1]["ssh-privatekey"]
    key = tmp_path / "key"
    key.write_text(files[0]["ssh-privatekey"])
    key.chmod(0o600)
    derived = subprocess.run(["ssh-keygen", "-y", "-f", str(key)], check=True, capture_output=True, text=True).stdout
    assert derived.split()[:2] == files[0]["ssh-publickey"].split()[:2]


def test_private_key_is_not_printed_to_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["bench", "job", EKS, "--ssh-key"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "a private key must not be shown on a terminal; add `| kubectl apply -f -`" in captured.err


def test_missing_ssh_keygen_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["bench", "job", EKS, "--ssh-key"]) == 1
    assert "there is no ssh-keygen on PATH" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([GKE, "--ssh-key"], "the image of this stack already has a key pair"),
        ([GKE, "--stack", "eks"], "--stack eks: .*Pulumi.gke.yaml already names a stack"),
        (["--stack", "nowhere"], "Pulumi.nowhere.yaml has 1 problem"),
        (["--stack", "local"], "target local: .* use `rdma-ray bench nccl`"),
        ([GKE, "--split", "rail"], "--split rail: input should be 'world' or 'rails'"),
        ([GKE, "--nodes", "1", "-b", "x"], "(?s)--nodes 1: .*-b x: "),
        ([str(ROOT / "pyproject.toml")], "not YAML|no map `config:`"),
    ],
)
def test_invalid_job_is_an_error(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "job", *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.search(message, captured.err), captured.err


def test_docs_show_the_commands_output(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "nccl-job.md").read_text(encoding="utf-8")
    assert main(["bench", "job", GKE]) == 0
    assert f"```\n{capsys.readouterr().err}```\n" in page


def test_documented_options_exist(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "nccl-job.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \| `(--[^`]+)`", page, flags=re.MULTILINE)
    assert len(rows) >= 5
    for row in rows:
        arguments = row.replace("LOCALQUEUE", "gpus").replace("--image", "--image x").split()
        assert main(["bench", "job", GKE, *arguments]) == 0, row
        capsys.readouterr()
