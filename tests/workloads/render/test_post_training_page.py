"""docs/post-training.md: its commands are accepted for its stack files, by `run --dry-run` and `render`."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

import workloads.client.kinds  # noqa: F401  # its defaults are the streams before a test replaces them
from tests.workloads.conftest import write_outputs
from tests.workloads.stack_outputs import outputs
from workloads.cli import main
from workloads.exits import Exit

PAGE = (Path(__file__).parents[3] / "docs" / "post-training.md").read_text(encoding="utf-8")
STACK_FILES = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
BLOCKS = "".join(re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)).replace("\\\n", "")
COMMANDS = [shlex.split(line.removeprefix("$ rdma-ray ")) for line in BLOCKS.splitlines()]
RUNS = [command for command in COMMANDS if command[0] == "run"]
RENDERED = [command for command in COMMANDS if command[0] == "render"]


def test_page_has_two_stack_files_and_its_commands() -> None:
    assert (len(STACK_FILES), len(RUNS), len(RENDERED)) == (2, 4, 1)
    drivers = [command[command.index("--") + 1 :] for command in RUNS if "--nodes" not in command]
    assert [driver[:3] for driver in drivers] == [
        ["python3", "-m", "verl.trainer.main_ppo"],
        ["env", "--chdir=/opt/nemo-rl", "uv"],
    ]


@pytest.mark.parametrize("command", RUNS, ids=" ".join)
def test_run_is_accepted(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_outputs(outputs(gpus=8, most=4), tmp_path / "outputs.json")
    (code := tmp_path / "code").mkdir()
    monkeypatch.chdir(code)
    monkeypatch.setenv("RDMA_RAY_OUTPUTS", str(file))
    assert main(["run", "--dry-run", "--json", "-", *command[1:]]) == Exit.OK
    found = json.loads(capsys.readouterr().out)
    assert found["command"] == command[command.index("--") + 1 :]
    assert (found["mode"], found["nodes"]) == (("ranks", 4) if "--nodes" in command else ("driver", None))


@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize("command", RENDERED, ids=" ".join)
def test_render_prints_a_job_with_head_and_nodes(
    command: list[str], number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "Pulumi.grpo.yaml").write_text(STACK_FILES[number])
    verb, kind, *rest = command
    assert main([verb, kind, "--stack-file", str(file), *rest]) == Exit.OK
    job = list(yaml.safe_load_all(capsys.readouterr().out))[-1]
    cluster = job["spec"]["rayClusterSpec"]
    assert job["spec"]["entrypoint"].endswith(shlex.join(["rdma-ray", *rest[rest.index("run") :]]))
    assert [group["maxReplicas"] for group in cluster["workerGroupSpecs"]] == [4]
    [head, *_] = cluster["headGroupSpec"]["template"]["spec"]["containers"]
    assert head["resources"]["limits"]["memory"] == "48Gi"
    for pod in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        [ray, *_] = pod["template"]["spec"]["containers"]
        assert {"secretRef": {"name": "huggingface"}} in ray["envFrom"]
