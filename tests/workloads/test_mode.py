"""Commands on a stack whose Ray runs one entry point, from the command line to the exit code.

Nothing listens at the address in the outputs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.outputs import Outputs
from tests.workloads.test_stack import DOCUMENT
from workloads.cli import main
from workloads.exits import Exit

SUBMITTING = (["bench", "nccl"], ["bench", "nccl", "--detach"], ["bench", "hunt"], ["train", "digits"])
ASKING = (["status"], ["list"], ["logs", "train-1"], ["stop", "train-1"])


def written(folder: Path, mode: str | None) -> Path:
    ray: dict[str, Any] = {**DOCUMENT["ray"], **({} if mode is None else {"mode": mode})}
    file = folder / "outputs.json"
    file.write_text(json.dumps({**DOCUMENT, "ray": ray, "storage": {"path": "/bucket"}}))
    return file


@pytest.mark.parametrize("command", SUBMITTING, ids=" ".join)
@pytest.mark.parametrize("mode", ["job", "indexed-job"])
def test_jobs_are_rejected_with_an_alternative(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str, command: list[str]
) -> None:
    assert main([*command, "--outputs", str(written(tmp_path, mode))]) == Exit.ERROR
    said = capsys.readouterr().err
    assert f"the stack's ray.mode is {mode}" in said
    assert "set ray.mode to cluster" in said
    assert "rdma-ray bench job" in said
    assert "does not answer" not in said, "it connected before it refused"


@pytest.mark.parametrize("command", ASKING, ids=" ".join)
@pytest.mark.parametrize(("mode", "look"), [("job", "get rayjob a3u"), ("indexed-job", "get job a3u")])
def test_without_a_head_the_error_says_where_to_look(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str, look: str, command: list[str]
) -> None:
    assert main([*command, "--outputs", str(written(tmp_path, mode))]) == Exit.ERROR
    said = capsys.readouterr().err
    assert "does not answer at http://127.0.0.1:1" in said
    assert f"ray.mode is {mode}" in said
    assert f"kubectl -n ray {look}" in said


@pytest.mark.parametrize("mode", [None, "cluster"])
def test_clusters_accept_jobs_also_without_a_mode_in_their_outputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str | None
) -> None:
    file = written(tmp_path, mode)
    assert Outputs.model_validate_json(file.read_text()).ray.mode == "cluster"
    assert main(["bench", "nccl", "--outputs", str(file)]) == Exit.ERROR
    said = capsys.readouterr().err
    assert "does not answer" in said
    assert "Is the cluster 'a3u' up?" in said
