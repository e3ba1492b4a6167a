"""Logs of a run: what reaches TensorBoard, Weights & Biases and MLflow, and what may not."""

from __future__ import annotations

import os
import pickle
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch
import torch.distributed as dist

from tests.workloads.gloo_ranks import on_ranks
from tests.workloads.train.train_ranks import specification
from tests.workloads.train.training import scalars
from workloads.exits import WorkloadError
from workloads.train import journal
from workloads.train.checkpoints import RunFolder
from workloads.train.logs import Logs, forwarded

SECRET = "0123456789abcdef"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_"))]:
        monkeypatch.delenv(name)


def module(monkeypatch: pytest.MonkeyPatch, name: str) -> MagicMock:
    """Return a double of a package, importable under its name."""
    double = MagicMock(__spec__=ModuleSpec(name, None))
    monkeypatch.setitem(sys.modules, name, double)
    return double


def test_weights_and_biases_and_mlflow_follow_their_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb, mlflow = module(monkeypatch, "wandb"), module(monkeypatch, "mlflow")
    spec = specification(tmp_path, "run")
    for variables in ({}, {"WANDB_MODE": "offline"}, {"MLFLOW_TRACKING_URI": "http://server", "WANDB_API_KEY": SECRET}):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        for folder in (None, str(tmp_path)):
            logs = Logs(spec, folder)
            logs.write(5, {"loss": 0.5})
            logs.close()
    assert [call.kwargs["id"] for call in wandb.init.call_args_list] == ["run", "run"]
    assert [call.args for call in wandb.init.return_value.log.call_args_list] == [({"loss": 0.5},)] * 2
    assert wandb.init.return_value.finish.call_count == 2
    mlflow.log_metrics.assert_called_once_with({"loss": 0.5}, step=5)
    mlflow.end_run.assert_called_once_with()
    assert SECRET not in str(wandb.mock_calls + mlflow.mock_calls)


def test_a_logger_that_fails_ends_neither_the_run_nor_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wandb, mlflow = module(monkeypatch, "wandb"), module(monkeypatch, "mlflow")
    wandb.init.side_effect = RuntimeError(f"the key {SECRET} is unknown")
    mlflow.log_metrics.side_effect = [None, ConnectionError(f"http://me:{SECRET}@server")]
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://server")
    logs = Logs(specification(tmp_path, "run", log="tensorboard"), str(tmp_path))
    for step in (1, 2, 3):
        logs.write(step, {"loss": 1 / step})
    logs.close()
    assert [step for step, _ in scalars(tmp_path / "tensorboard")["loss"]] == [1, 2, 3]
    assert mlflow.log_metrics.call_count == 2
    said = capsys.readouterr().out
    assert "no more logs to wandb: RuntimeError" in said
    assert "no more logs to mlflow: ConnectionError" in said
    assert SECRET not in said


def test_no_secret_is_sent_with_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", SECRET)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://server/a@b")
    assert forwarded() == {"WANDB_MODE": "offline", "MLFLOW_TRACKING_URI": "http://server/a@b"}
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:{SECRET}@server")
    with pytest.raises(WorkloadError, match="MLFLOW_TRACKING_URI has a user or a password") as refused:
        forwarded()
    assert SECRET not in str(refused.value)


def dump(rank: int, world: int, prefix: str) -> None:
    """Reduce, and write what torch would write when a collective of NCCL exceeds its time."""
    from torch._C._distributed_c10d import _dump_fr_trace_file

    os.environ["TORCH_FR_DUMP_TEMP_FILE"] = prefix
    dist.all_reduce(torch.ones(world))
    _dump_fr_trace_file(rank)


def test_dumps_of_the_flight_recorder_are_found_where_torch_writes_them(tmp_path: Path) -> None:
    """gloo's flight recorder, dumped on request; NCCL's writes the same file and reads the same variable."""
    spec, folder = specification(tmp_path, "run", submitted=1000.4), RunFolder(str(tmp_path), "run")
    assert journal.dumped(folder, spec) == ""
    prefix = tmp_path / "run" / spec.dumps
    prefix.parent.mkdir(parents=True)
    on_ranks(dump, 2, str(prefix))
    assert journal.dumped(folder, spec) == f"flight recorder dumps of ranks 0, 1: {tmp_path}/run/flight-recorder"
    assert journal.dumped(folder, spec.model_copy(update={"submitted": 2000.0})) == ""
    entries = pickle.loads(prefix.with_name(f"{prefix.name}1").read_bytes())["entries"]
    assert [entry["profiling_name"] for entry in entries] == ["gloo:all_reduce"]
