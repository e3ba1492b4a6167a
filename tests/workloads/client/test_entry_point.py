"""Commands as the entry point of a job: no Pulumi, and the driver runs in place of a submitted job."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.outputs import JOB_STACK, job_stack
from infra.settings import CloudSettings, from_stack_file
from tests.workloads.conftest import ROOT, Cluster
from tests.workloads.stack_outputs import LOCAL
from workloads.cli import main
from workloads.client import run
from workloads.client.api import Api, Job
from workloads.client.entry_point import run_driver
from workloads.client.view import View
from workloads.exits import Exit
from workloads.nccl.options import BenchOptions
from workloads.nccl.result import Result

HERE = json.dumps(LOCAL | {"ray": LOCAL["ray"] | {"token": "", "mode": "job"}})


def stack_files() -> list[Path]:
    """Every stack file with an entry point."""
    return [file for file in sorted(ROOT.glob("Pulumi.*.yaml")) if "entrypoint:" in file.read_text()]


@pytest.mark.parametrize("file", stack_files(), ids=lambda file: file.name)
def test_entry_point_of_a_stack_file_measures_all_its_nodes(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, requests = from_stack_file(file), []
    assert isinstance(settings, CloudSettings)
    program, *arguments = shlex.split(str(settings.ray.entrypoint))
    assert program == "rdma-ray"
    monkeypatch.setenv(JOB_STACK, job_stack(settings, "run"))

    def driver(job_id: str, module: str, request: str, *_: Any) -> Job:
        requests.append((module, BenchOptions.from_json(request)))
        return Job(job_id, "FAILED", "", None, None, 4, {})

    monkeypatch.setattr(run, "run_driver", driver)
    assert main(arguments) == 4, "the driver's exit code"
    [(module, asked)] = requests
    assert module == "workloads.nccl.driver"
    assert (asked.nodes, asked.per_node, asked.machine) == (settings.ray.max_workers, 8, settings.nodes.machine)
    assert (asked.use_gpu, asked.elastic, asked.limits is not None) == (True, False, True)
    assert max(asked.sizes) == 2**33


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--detach"], "--detach: the cluster of an entry point ends with it"),
        (["--nodes", "3"], "--nodes 3: the stack has at most 2"),
        (["--stack", "nowhere"], "nowhere"),
    ],
)
def test_wrong_options_of_an_entry_point(
    arguments: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """--stack names another stack, which Pulumi would know."""
    monkeypatch.setenv(JOB_STACK, HERE)
    assert main(["bench", "nccl", *arguments]) == Exit.ERROR
    assert says in capsys.readouterr().err


def test_variable_of_another_origin_is_no_stack(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(JOB_STACK, "{}")
    assert main(["bench", "nccl"]) == Exit.ERROR
    assert "the variable RDMA_RAY_STACK do not fit the contract" in capsys.readouterr().err


DRIVER = """
import json, os, sys
print(sys.argv[1], os.environ["OWN"])
print(json.dumps(json.loads(os.environ["RAY_JOB_CONFIG_JSON_ENV_VAR"])["runtime_env"]), file=sys.stderr)
sys.stdout.write("no line end")
os.kill(os.getpid(), 9) if sys.argv[1] == "killed" else sys.exit(5)
"""


@pytest.mark.parametrize(("request_", "code"), [("exits", 5), ("killed", -9)])
def test_driver_gets_its_variables_and_its_exit_code_counts(
    request_: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ray.init` passes the job's variables to every worker, together with those that Ray's job server has set."""
    (tmp_path / "a_driver.py").write_text(DRIVER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", '{"runtime_env": {"env_vars": {"A": "1"}, "pip": ["b"]}}')
    lines: list[str] = []
    job = run_driver("id", "a_driver", request_, {"OWN": "2", "PYTHONUNBUFFERED": "1"}, lines.append)
    assert (job.id, job.status, job.exit_code) == ("id", "FAILED", code)
    assert lines[0] == f"{request_} 2"
    assert json.loads(lines[1]) == {"env_vars": {"A": "1", "OWN": "2", "PYTHONUNBUFFERED": "1"}, "pip": ["b"]}
    assert lines[2:] == (["no line end"] if code == 5 else lines[2:])


def test_benchmark_inside_a_job_is_judged_and_written(cluster: Cluster) -> None:
    """On real Ray: the job's own driver measures on all nodes, and the job's exit code is that of the verdict."""
    api = Api.of(cluster.outputs)
    file = cluster.folder / "inside.json"
    command = f"{sys.executable} -m workloads.cli bench nccl --op all_reduce -b 4K -e 4K -n 2 --json {file}"
    job_id = run.new_id("inside")
    run.submit_driver(api, job_id, command, {}, {JOB_STACK: HERE, "PYTHONPATH": str(ROOT)})
    ended = run.attend(api, job_id, View(), stop_on_interrupt=False)
    assert (ended.code, ended.job.status) == (1, "SUCCEEDED"), "no event of the inner driver is in the job's log"
    result = Result.read(file)
    assert (result.exit_code, result.world and result.world.ranks) == (0, 4)
    assert result.verdict is not None
