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
from tests.clone import wait_until
from tests.workloads.conftest import ROOT, Cluster
from tests.workloads.stack_outputs import LOCAL
from workloads.cli import main
from workloads.client import run
from workloads.client.api import Job, JobsApi
from workloads.client.entry_point import run_driver
from workloads.client.stack import read_outputs
from workloads.exits import Exit
from workloads.gang.masked import JOB_CONFIG
from workloads.nccl.options import BenchOptions
from workloads.nccl.result import BenchResult
from workloads.options import StackOptions
from workloads.results.events import new_id
from workloads.run import driver as launcher
from workloads.secrecy import REDACTED, Masker
from workloads.terminal.progress import View

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

    def driver(job_id: str, module: str, request: str, *_: Any, **__: Any) -> Job:
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


def test_entry_point_finds_rays_own_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else `doctor` and `top` are refused where the description of the stack has no token."""
    monkeypatch.setenv(JOB_STACK, HERE)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RDMA_RAY_OUTPUTS"):
        monkeypatch.delenv(name, raising=False)
    assert read_outputs(StackOptions()).ray.token.get_secret_value() == ""
    (tmp_path / "token").write_text("of a file\n")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    found = read_outputs(StackOptions()).ray.token
    assert found.get_secret_value() == "of a file"
    assert "of a file" not in repr(found)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "first")
    assert read_outputs(StackOptions()).ray.token.get_secret_value() == "first"


Started = list[tuple[dict[str, Any], dict[str, str], dict[str, Any]]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Started:
    """Runs in an entry point whose driver or command is recorded: request, variables, and the rest."""
    found: Started = []

    def run_driver(job_id: str, _: str, request: str, environment: Any, *__: Any, **rest: Any) -> Job:
        found.append((json.loads(request), dict(environment), rest))
        return Job(job_id, "FAILED", "", None, None, 9, {})

    def execute(command: tuple[str, ...], environment: dict[str, str], masker: Masker, record: None) -> None:
        found.append(({"command": list(command)}, environment, {"working_dir": str(Path.cwd())}))
        assert (masker.text("of the pod"), record) == (REDACTED, None), "a stack without storage"
        raise PermissionError(13, "recorded")

    monkeypatch.setattr(run, "run_driver", run_driver)
    monkeypatch.setattr(launcher, "run_masked", execute)
    monkeypatch.setenv(JOB_STACK, HERE)
    monkeypatch.setenv("HF_TOKEN", "of the pod")
    monkeypatch.delenv("RDMA_RAY_OUTPUTS", raising=False)
    monkeypatch.chdir(tmp_path)
    return found


def test_gang_of_an_entry_point_uploads_nothing(started: Started, tmp_path: Path) -> None:
    """The nodes have its folder, and its secrets are variables of the driver alone: Ray records the others."""
    options = ["--env", "A=1", "--secret", "HF_TOKEN", "--max-restarts", "2", "--nodes", "2"]
    assert main(["run", *options, "--", "torchrun", "train.py"]) == 9
    [(request, variables, rest)] = started
    assert request == {
        "nodes": 2,
        "per_node": 1,
        "max_restarts": 2,
        "command": ["torchrun", "train.py"],
        "mode": "torchrun",
        "environment": {"A": "1"},
        "secrets": ["HF_TOKEN"],
        "secrets_here": True,
    }
    assert "HF_TOKEN" not in variables
    assert rest == {"working_dir": f"local://{tmp_path}", "private": {"HF_TOKEN": "of the pod"}, "record": None}


@pytest.mark.parametrize(
    ("options", "job", "expected"),
    [
        (["--working-dir", "/"], {"working_dir": "gcs://a.zip"}, "local:///"),
        (["--working-dir", "s3://b/code.zip"], {}, "s3://b/code.zip"),
        ([], {"working_dir": "gcs://a.zip"}, None),
    ],
)
def test_working_directory_of_a_gang(
    options: list[str], job: dict[str, str], expected: str | None, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that was submitted with a working directory keeps it: every node has it by Ray."""
    monkeypatch.setenv(JOB_CONFIG, json.dumps({"runtime_env": job}))
    assert main(["run", "--nodes", "1", *options, "--", "true"]) == 9
    [(_, _, rest)] = started
    assert rest["working_dir"] == expected


def test_command_without_ranks_runs_in_the_entry_point(started: Started, tmp_path: Path) -> None:
    """It gets the signals of the entry point, and its exit code counts; its actors get --env, not the secret."""
    (tmp_path / "code").mkdir()
    options = ["--env", "A=1", "--secret", "HF_TOKEN", "--working-dir", "code"]
    assert main(["run", *options, "--", "python", "train.py"]) == launcher.NOT_RUN
    [(request, environment, rest)] = started
    assert request == {"command": ["python", "train.py"]}
    assert (environment["A"], environment["HF_TOKEN"]) == ("1", "of the pod")
    runtime_env = json.loads(environment[JOB_CONFIG])["runtime_env"]
    assert runtime_env["working_dir"] == f"local://{tmp_path}/code"
    assert runtime_env["env_vars"]["A"] == "1"
    assert "HF_TOKEN" not in runtime_env["env_vars"]
    assert rest == {"working_dir": f"{tmp_path}/code"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--detach -- x", "--detach: an entry point is the one job"),
        ("--request-id a -- x", "--request-id: an entry point is the one job"),
        ("--pip einops -- x", "packages that its nodes have"),
        ("--nodes 3 -- x", "at most 2"),
        ("--secret MISSING -- x", "MISSING is not set in this environment"),
        ("--json out.json -- x", "--json: the command has no ranks"),
        ("--working-dir https://h/code.zip -- x", "add --nodes 1"),
        ("--nodes 1 --working-dir https://h/code.rar -- x", "Ray downloads a .zip"),
        ("--nodes 1 --working-dir nowhere -- x", "nowhere: no such folder"),
    ],
)
def test_wrong_options_of_run_in_an_entry_point(
    arguments: str, says: str, started: Started, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *arguments.split()]) == Exit.ERROR
    assert says in capsys.readouterr().err
    assert started == []


def test_variable_of_another_origin_is_no_stack(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(JOB_STACK, "{}")
    assert main(["bench", "nccl"]) == Exit.ERROR
    assert "the variable RDMA_RAY_STACK do not match the contract" in capsys.readouterr().err


DRIVER = """
import json, os, sys
print(sys.argv[1], os.environ["OWN"])
print(json.dumps(json.loads(os.environ["RAY_JOB_CONFIG_JSON_ENV_VAR"])["runtime_env"]), file=sys.stderr)
sys.stdout.write("no line end")
os.kill(os.getpid(), 9) if sys.argv[1] == "killed" else sys.exit(5)
"""


STOPPED = """
import os, signal, sys
def stop(*_):
    print("saved", "x" * 100_000, flush=True)
    sys.exit(130)
signal.signal(signal.SIGTERM, stop)
os.kill(os.getppid(), signal.SIGTERM)
signal.pause()
"""


def test_signal_reaches_the_driver_and_its_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal to the entry point alone, as of Slurm: its driver ends in its own way, with more output than a pipe."""
    (tmp_path / "a_driver.py").write_text(STOPPED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    lines: list[str] = []
    assert run_driver("id", "a_driver", "", {}, lines.append).exit_code == 130
    assert lines == [f"saved {'x' * 100_000}"]


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
    api = JobsApi.of(cluster.outputs)
    file = cluster.folder / "inside.json"
    words = ["bench", "nccl", "--op", "all_reduce", "--per-node", "1", "-e", "4K", "-n", "2", "--json", str(file)]
    command = [sys.executable, "-m", "workloads.cli", *words]
    job_id = new_id("inside")
    run.submit_driver(api, job_id, command, {}, {JOB_STACK: HERE, "PYTHONPATH": str(ROOT)})
    ended = run.attend(api, job_id, View(), stop_on_interrupt=False)
    assert (ended.code, ended.job.status) == (1, "SUCCEEDED"), "no event of the inner driver is in the job's log"
    result = BenchResult.read(file)
    assert (result.exit_code, result.world and result.world.ranks) == (0, 2)
    assert result.verdict is not None


def test_gang_inside_a_job_is_stopped_with_its_grace(cluster: Cluster) -> None:
    """On real Ray: the ranks of both nodes start in the folder, with the secret of the entry point, and save. `shell`
    finds them."""
    api, folder = JobsApi.of(cluster.outputs), ROOT / "tests" / "workloads" / "gang" / "scripts"
    code = "import os; t = os.environ['HF_TOKEN']; print(t[::-1], t, flush=True); exec(open('user.py').read())"
    options = ["--nodes", "2", "--secret", "HF_TOKEN", "--all", "--working-dir", str(folder), "--json", "-"]
    command = [sys.executable, "-m", "workloads.cli", "run", *options, "--", "python", "-c", code, "sleep"]
    variables = {"PYTHONPATH": str(ROOT), "RAY_JOB_STOP_WAIT_TIME_S": "45", "HF_TOKEN": "secret for ranks"}
    job_id = new_id("inside")
    run.submit_driver(api, job_id, command, {}, {JOB_STACK: HERE, **variables})
    wait_until(lambda: api.logs(job_id).count("in attempt 0") >= 2, lambda: api.logs(job_id), 60)
    assert api.logs(job_id).count(f"sknar rof terces {REDACTED}") == 2
    inside = cluster.rdma_ray("shell", "rank:1", "--job", job_id, "--", "sh", "-c", "echo $RANK; ls; exit 3")
    assert (inside.returncode, inside.stdout.split()[:1], "user.py" in inside.stdout) == (3, ["1"], True), inside.stderr
    assert api.stop(job_id).status == "STOPPED"
    said = api.logs(job_id)
    assert said.count("saved a checkpoint") == 2
    assert '"exit_code": 130' in said
