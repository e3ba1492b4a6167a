"""From the options of `train convnext` to its request: defaults, and errors that need no cluster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.workloads import stack_outputs
from tests.workloads.conftest import ROOT
from tests.workloads.train.training import measured, outputs, rank, record, result
from workloads.cli import main
from workloads.exits import Exit, WorkloadError
from workloads.train.options import REQUEST, ConvNeXtOptions, settable
from workloads.train.request import environment, resolve_convnext
from workloads.train.result import TrainResult


def asked(gpus: int = 8, **options: Any) -> ConvNeXtOptions:
    request, _ = resolve_convnext(outputs(gpus), ConvNeXtOptions(**options))
    assert REQUEST.validate_json(request.model_dump_json()) == request
    return request


def test_every_setting_is_documented() -> None:
    text = (ROOT / "docs" / "training.md").read_text()
    assert [key for key in settable() if f"`{key}`" not in text and f"--{key.replace('_', '-')}" not in text] == []


def test_options_override_the_preset() -> None:
    chosen = ("precision=fp32", "tf32=false", "stochastic-depth=0.1", "keep=5")
    spec = asked(preset="tuned", batch=32, epochs=3, set=chosen)
    assert (spec.precision, spec.tf32, spec.stochastic_depth, spec.keep) == ("fp32", False, 0.1, 5)
    assert (spec.batch, spec.epochs, spec.steps) == (32, 3, None)
    assert (spec.compile, spec.channels_last) == ("model", True)


def test_without_gpus_the_defaults_are_small() -> None:
    spec, notes = resolve_convnext(outputs(), ConvNeXtOptions())
    assert (spec.size, spec.image, spec.batch, spec.steps, spec.workers) == ("tiny", 64, 16, 50, 4)
    assert notes == ["no GPUs in this stack: size tiny, batch 16, backend aot_eager, loader 0 by default"]
    spec, notes = resolve_convnext(outputs(), ConvNeXtOptions(batch=4, set=("size=small", "compile=off", "loader=1")))
    assert (spec.size, spec.batch, notes) == ("small", 4, [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 17}, "--workers 17"),
        ({"global_batch": 15}, "--global-batch 15: 16 workers"),
        ({"name": "a", "resume": "b"}, "only one of them"),
        ({"name": "../a"}, "folder"),
        ({"log": "tensorboard", "checkpoint_dir": "gs://bucket/a"}, "object stores cannot append"),
        ({"compare": Path("/nowhere.json")}, "cannot read /nowhere.json.*--workers 1 --json"),
    ],
)
def test_a_stack_rejects_what_it_cannot_run(options: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        asked(**options)


def test_a_local_stack_rejects_what_it_cannot_run(tmp_path: Path) -> None:
    ray: dict[str, Any] = {"data": "ray", "data_path": str(tmp_path)}
    with pytest.raises(WorkloadError, match=r"--data ray reads in tasks.*use --workers 3"):
        asked(0, **ray)
    assert asked(0, **ray, workers=3).data == "ray"
    assert asked(8, **ray).workers == 16
    with pytest.raises(WorkloadError, match="--data-path /nowhere: no such folder on this machine"):
        asked(0, data="imagefolder", data_path="/nowhere")
    with pytest.raises(WorkloadError, match="--checkpoint-dir"):
        resolve_convnext(stack_outputs.outputs(), ConvNeXtOptions())


def test_flight_recorder_dumps_into_the_folder_of_the_run() -> None:
    on_gpus = environment(asked(8, name="a"), outputs(8))
    assert on_gpus["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"
    assert re.fullmatch(r"/storage/train/a/flight-recorder/\d+-rank-", on_gpus["TORCH_FR_DUMP_TEMP_FILE"])
    remote = environment(asked(8, name="a", checkpoint_dir="gs://bucket"), outputs(8))
    assert "TORCH_FR_DUMP_TEMP_FILE" not in remote  # torch writes to files only


def write(file: Path, found: TrainResult) -> Path:
    file.write_text(found.as_json())
    return file


def test_the_scaling_efficiency_compares_the_same_work_of_one_worker(tmp_path: Path) -> None:
    one = result(record(measured([rank(0, [1.0, 0.5, 0.5])], batch=100)), spec=asked(workers=1))
    file = write(tmp_path / "one.json", one)
    single = asked(compare=file).single
    assert single is not None
    assert (single.units_per_s, single.file) == (200.0, str(file))

    with pytest.raises(WorkloadError, match="batch was 128 there and is 64 here"):
        asked(compare=file, batch=64)
    two = result(record(measured([rank(i, [1.0, 0.5]) for i in range(2)])), spec=asked(workers=1))
    with pytest.raises(WorkloadError, match=r"the result of 2 workers.*--workers 1"):
        asked(compare=write(tmp_path / "two.json", two))
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(WorkloadError, match=r"not a result of this version.*--workers 1 --json"):
        asked(compare=tmp_path / "no.json")


def test_errors_reach_the_user_without_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "outputs.json"
    file.write_text(outputs().model_dump_json(by_alias=True))
    command = ["train", "convnext", "--outputs", str(file)]
    for arguments, message in (
        (["--data", "imagefolder"], "--data imagefolder: choose the folder of the images with --data-path\n"),
        (["--set", "momentom=1"], "--set momentom=1: no setting 'momentom'; did you mean momentum?\n"),
        (["--set", "precision=fp8"], "precision fp8: input should be 'fp32' or 'bf16'\n"),
        (["--batch", "0"], "--batch 0: input should be greater than or equal to 1\n"),
    ):
        assert main([*command, *arguments]) == Exit.ERROR
        assert capsys.readouterr().err == message
    assert main([*command, "--detach", "--out", str(tmp_path)]) == Exit.ERROR
    assert "--detach does not wait for a result: omit --out" in capsys.readouterr().err
