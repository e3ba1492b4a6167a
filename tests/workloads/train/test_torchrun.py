"""The trainer under torchrun, without Ray."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra.local.loopback import free_ports
from tests.workloads.conftest import ROOT
from tests.workloads.train.gpt_reference import SAME, losses, request, start, train
from workloads.exits import Exit
from workloads.train.__main__ import main


def test_torchrun_gives_the_reference_losses_across_a_restart(tmp_path: Path) -> None:
    """Rank 1 is killed before step 4. torchrun starts all ranks again, which continue from step 3, without Ray."""
    expected = losses(train(request(tmp_path, "whole", 2, steps=6), 2))
    result = tmp_path / "result.json"
    words = [*start(tmp_path, "run"), "--checkpoint-every", "3", "--inject-fault", "kill:1:4", "--json", str(result)]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"]
    (tmp_path / "ray.py").write_text("raise ImportError('no Ray under torchrun')")
    done = subprocess.run(
        [*torchrun, "-m", "workloads.train", "gpt", *words],
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}", "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == Exit.OK, done.stderr
    found = json.loads(result.read_text())
    assert (found["resumed_at"], found["step"], found["world"], found["backend"]) == (3, 6, 2, "gloo")
    assert found["curve"]["loss"] == [[step, pytest.approx(loss, rel=SAME)] for step, loss in expected]
    assert found["survival"]["attempts"] == 2
    assert "6 of 6 steps of 1,536 tokens on 2 workers (gloo), from step 3" in done.stdout
    assert found["reason"] in done.stdout
    assert "@rdma-ray" not in done.stdout + done.stderr  # `rdma-ray run` would take it for its own events


def test_errors_name_the_option_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["gpt", "--batch", "0"]) == Exit.ERROR
    assert capsys.readouterr().err == "--batch 0: input should be greater than or equal to 1\n"
    assert main(["gpt"]) == Exit.ERROR
    assert "no RANK, WORLD_SIZE" in capsys.readouterr().err
    monkeypatch.setenv("RANK", "1")
    assert main(["gpt", "--batch", "0"]) == Exit.ERROR
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "torchrun has no storage that all nodes share: choose a path or URI with --checkpoint-dir"),
        (["--workers", "3"], "--workers 3: torchrun has started 1 ranks; leave it out"),
        (["--checkpoint-dir", "{tmp}", "--resume", "none"], "no run 'none' with a checkpoint in {tmp}"),
        (["--checkpoint-dir", "relative"], "neither an absolute path nor a known URI"),
        (["--checkpoint-dir", "{tmp}", "--data-path", "/nowhere"], "--data-path /nowhere: No such file or directory"),
    ],
)
def test_what_cannot_run_is_an_error_with_exit_code_1(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    place = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in place.items():
        monkeypatch.setenv(name, str(value))
    assert main(["gpt", *(word.format(tmp=tmp_path) for word in words)]) == Exit.ERROR
    assert message.format(tmp=tmp_path) in capsys.readouterr().err
