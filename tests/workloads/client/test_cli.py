"""Command line without a cluster: quick help, usage errors, and the wrapper from any folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra.outputs import Outputs
from infra.settings import CloudSettings, from_stack_file
from tests.clone import executable
from tests.console import BLOCK, agrees, commands
from tests.unit.stacks import KUBERNETES, changed
from tests.workloads.conftest import ROOT
from tests.workloads.stack_outputs import GKE, LOCAL, TOKEN
from workloads.cli import main, prepared
from workloads.client.commands import cost_now
from workloads.exits import Exit


def test_help_needs_neither_ray_nor_torch() -> None:
    code = "import sys, workloads.cli; print(sorted({'ray', 'torch', 'pydantic', 'pulumi'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True) == "[]\n"


def test_drivers_import_nothing_that_a_cluster_lacks() -> None:
    """The image of a cluster has Ray and PyTorch, and of this project the package `workloads` only."""
    drivers = ("train.driver", "nccl.driver", "nccl.multigpu", "nccl.hunt.driver", "monitor.driver")
    blocked = "import sys; sys.modules |= dict.fromkeys(['cyclopts', 'infra', 'pulumi', 'rich'])"
    imports = "; ".join(f"import workloads.{driver}" for driver in drivers)
    subprocess.run([sys.executable, "-c", f"{blocked}; {imports}"], cwd=ROOT, check=True)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("", "Usage: rdma-ray"),
        ("bench nccl", "[default: pairs]"),  # brackets are no markup in plain-text help
        ("train digits", "Usage: rdma-ray train digits"),
    ],
)
def test_help_is_no_error(command: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == Exit.OK
    assert shown in " ".join(capsys.readouterr().out.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "nccl", "-n", "0"], "--iterations 0: input should be greater than or equal to 1"),
        (["bench", "judge", "--results", "x.json"], "--machine: required\n--nodes: required"),
        (["train", "digits", "--epoch", "1"], "Unknown option: --epoch. Did you mean --epochs?"),
    ],
)
def test_usage_errors_name_option_value_and_what_is_allowed(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == Exit.ERROR
    assert capsys.readouterr() == ("", f"{message}\n")


def test_json_without_a_file_is_stdout() -> None:
    assert prepared(["compare", "--json", "a", "b"]) == ["compare", "--json", "a", "b"]
    assert " ".join(prepared(["judge", "--json", "-s", "x", "--json"])) == "judge --json - -s x --json -"
    assert prepared(["list", "--json", "-"]) == ["list", "--json", "-"]
    # The user's own command keeps its arguments.
    assert prepared(["run", "--json", "--", "x", "--json", "--y"]) == [
        "run",
        "--json",
        "-",
        "--",
        "x",
        "--json",
        "--y",
    ]


def test_the_wrapper_finds_the_project_through_a_link_and_spaces(tmp_path: Path) -> None:
    project = tmp_path / "a project"
    (project / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "bin" / "rdma-ray", project / "bin")
    link = tmp_path / "a link"
    link.symlink_to(Path("a project") / "bin" / "rdma-ray")

    bare = subprocess.run([link], capture_output=True, text=True, check=False)
    assert bare.returncode == 1
    assert re.search(rf"no environment in {project}/.venv.*make setup", bare.stderr, re.DOTALL)

    executable(project / ".venv" / "bin" / "python", '#!/bin/sh\nprintf "%s\\n" "$PYTHONPATH" "$@"\n')
    said = subprocess.check_output([link, "bench", "a b"], text=True, env={"PATH": "/usr/bin:/bin"})
    assert said.splitlines() == [str(project), "-P", "-m", "workloads.cli", "bench", "a b"]


def test_the_wrapper_runs_no_code_of_the_folder_it_is_in(tmp_path: Path) -> None:
    """Such as a clone that its user has not read."""
    (tmp_path / "workloads").mkdir()
    attack = "raise SystemExit('code of the folder ran')"
    names = ("workloads/__init__", "workloads/cli", "yaml", "cyclopts", "pydantic", "rich", "json", "re", "re2")
    for name in (*names, "sitecustomize", "usercustomize"):
        (tmp_path / f"{name}.py").write_text(attack)
    command = [str(ROOT / "bin" / "rdma-ray"), "plan", str(ROOT / "Pulumi.gke.yaml")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "Gbit/s per node" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize(("stack", "ranges", "nics"), [("gke", 13, 8), ("eks", 5, 16)])
def test_plan_of_a_cloud_stack(stack: str, ranges: int, nics: int, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(ROOT / f"Pulumi.{stack}.yaml")
    assert main(["plan", file, "--json", "-"]) == Exit.OK
    plan = json.loads(capsys.readouterr().out)
    assert (len(plan["ranges"]), plan["fabric"]["nics"], plan["fabric"]["gbpsPerNode"]) == (ranges, nics, 3200)
    assert plan["pod"]["container"]["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert main(["plan", file]) == Exit.OK
    assert "3200 Gbit/s per node" in capsys.readouterr().out


STEPS = {
    "gke-first": r"^\| \[\d\. (\w+)\]\S+ \| (\S+) \|",
    "eks-first": r"^\| (\w+) \| `.+eks-first.* \| (\S+) \|$",
}
"""Rows of the guide: step and price."""


def test_guide_of_a_first_up_has_the_plan_and_the_prices_of_the_catalog(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Alone, with two nodes, or nothing: no step of the guide costs another amount."""
    page = (ROOT / "docs" / "first-up.md").read_text(encoding="utf-8")
    [command] = [each for _, block in BLOCK.findall(page) for each in commands(block) if " plan " in each.text]
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["plan", str(ROOT / command.text.split()[-1])]) == Exit.OK
    assert agrees(command.shown, [line.rstrip() for line in capsys.readouterr().out.splitlines()])
    for stack, region in (("gke-first", "us-central1"), ("eks-first", "us-east-2")):
        settings = from_stack_file(ROOT / f"Pulumi.{stack}.yaml")
        assert isinstance(settings, CloudSettings)
        cost, node = settings.cost, settings.cost.workers.each.dollars
        assert settings.region == region
        assert cost.idle is not None
        assert node is not None
        steps = re.findall(STEPS[stack], page, re.MULTILINE)
        assert [name for name, _ in steps][:2] == ["plan", "rehearse"]
        assert [name for name, _ in steps][-1] == "down"
        assert {price for _, price in steps} == {"0", f"{cost.idle:.2f}", f"{cost.idle + 2 * node:.2f}"}
        assert f"${node:.2f} an hour" in page.replace("\n", " ")
        if stack == "gke-first":
            assert 2 * (cost.idle + 2 * node) < 5


def test_plan_of_machines_without_gpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, first = tmp_path / "Pulumi.cpu.yaml", (ROOT / "Pulumi.gke-first.yaml").read_text(encoding="utf-8")
    file.write_text(first.replace("g2-standard-8", "n2d-standard-8"), encoding="utf-8")
    assert main(["plan", str(file)]) == Exit.OK
    shown = capsys.readouterr().out
    assert "no GPU, no RDMA NIC" in shown
    assert "the whole node: 6 CPUs, 22 GiB " in shown


def test_plan_of_a_users_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stack = changed(KUBERNETES, {"fabric": "rdma", "nodes.nics": 8, "nodes.machine": "p5en.48xlarge"})
    file = tmp_path / "Pulumi.ours.yaml"
    file.write_text(json.dumps({"config": {f"rdma-ray:{key}": value for key, value in stack.items()}}))
    assert main(["plan", str(file)]) == Exit.OK
    shown = capsys.readouterr().out
    for text in ("kubernetes ours, namespace team-a", "0 to 2 x p5en.48xlarge", "180 CPUs, 1800 GiB, 8 GPUs, 8 NICs"):
        assert text in shown
    assert main(["plan", str(file), "--json", "-"]) == Exit.OK
    plan = json.loads(capsys.readouterr().out)
    assert plan["pod"]["container"]["resources"]["limits"] | {"rdma/ib": "1"} == {
        "cpu": "180",
        "memory": "1800Gi",
        "nvidia.com/gpu": "8",
        "rdma/ib": "1",
    }


def test_plan_names_a_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "Pulumi.nowhere.yaml"]) == Exit.ERROR
    assert "cannot be read: No such file or directory" in capsys.readouterr().err


def test_outputs_are_whole_and_hide_the_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the engine prints them, nulls left out; as we print them, with nulls and without the token."""
    file = tmp_path / "outputs.json"
    file.write_text(json.dumps(LOCAL))
    assert main(["outputs", "--outputs", str(file)]) == Exit.OK
    said = capsys.readouterr().out
    assert TOKEN not in said
    unset = ["location", "machine", "kubeconfig", "context", "namespace", "storage", "queue", "cost", "teams"]
    assert json.loads(said) == LOCAL | {
        "schema": "rdma-ray/outputs/1",
        "nodes": LOCAL["nodes"] | {"others": []},
        "ray": LOCAL["ray"] | {"mode": "cluster", "serve": None, "serveToken": None, "token": "**********"},
    } | dict.fromkeys(unset)


@pytest.mark.parametrize(("gpus", "now"), [([0], 0.37), ([0, 0], 0.37), ([0, 8], 85.18), ([0, 8, 8, 0], 169.98)])
def test_status_counts_the_worker_nodes_that_ray_sees(gpus: list[int], now: float) -> None:
    """The head and workers without GPUs are on the CPU nodes."""
    cost = {"idle": 0.37, "most": 340.15, "node": 84.805, "workers": 339.22, "atMost": True}
    nodes = [{"role": "worker" if index else "head", "gpus": count} for index, count in enumerate(gpus)]
    assert cost_now(Outputs.model_validate(GKE | {"cost": cost}), nodes) == {
        "now": pytest.approx(now, abs=0.01),
        "most": 340.15,
    }
    assert cost_now(Outputs.model_validate(GKE), nodes) is None
