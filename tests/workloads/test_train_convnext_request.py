"""From the options of `train convnext` to its request: defaults, and errors that need no cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from infra.catalog.pins import RAY
from infra.outputs import Fabric, Nodes, Outputs, Ray, Storage
from tests.workloads.conftest import ROOT
from tests.workloads.training import measured, rank, record, result
from workloads.cli import main
from workloads.exits import Exit, WorkloadError
from workloads.train.options import PRESETS, REQUEST, ConvNeXtOptions, ConvNeXtSettings, settable
from workloads.train.request import resolve_convnext
from workloads.train.result import Result


def outputs(gpus: int = 0) -> Outputs:
    return Outputs(
        target="gke" if gpus else "local",
        nodes=Nodes(min=2, max=2, gpus_per_node=gpus, cpus_per_node=2),
        fabric=Fabric(transport="socket", nics=None, gbps_per_nic=None, floors=[]),
        ray=Ray(
            cluster="c",
            version=RAY,
            dashboard="http://d",
            jobs="http://j",
            client="ray://c",
            token="hush",
        ),
        storage=Storage(path="/storage"),
    )


def asked(gpus: int = 8, **options: Any) -> ConvNeXtOptions:
    request, _ = resolve_convnext(outputs(gpus), ConvNeXtOptions(**options))
    assert REQUEST.validate_json(request.model_dump_json()) == request
    return request


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_convnext_has_at_most_20_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "convnext", "--help"]) == Exit.OK
    options = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│ --")]
    assert 15 <= len(options) <= 20


def test_every_setting_is_documented() -> None:
    text = (ROOT / "docs" / "training.md").read_text()
    assert [key for key in settable() if f"`{key}`" not in text and f"--{key.replace('_', '-')}" not in text] == []


@pytest.mark.parametrize("command", ["convnext", "digits"])
def test_help_names_the_defaults_of_preset_and_stack(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", command, "--help"]) == Exit.OK
    text = shown(capsys)
    assert "Workers. [default: one per GPU or CPU slot]" in text
    assert "[default: by date and time]" in text


@pytest.mark.parametrize("preset", list(PRESETS))
def test_a_preset_on_gpus(preset: Any) -> None:
    spec = asked(preset=preset)
    chosen = ConvNeXtOptions(preset=preset)
    assert {name: getattr(spec, name) for name in ConvNeXtSettings.model_fields} == {
        name: getattr(chosen, name) for name in ConvNeXtSettings.model_fields
    }
    assert spec.global_batch == 16 * spec.batch
    assert (spec.steps, spec.epochs) == (500, None)
    assert spec.checkpoint_dir == "/storage/train"


def test_options_override_the_preset() -> None:
    spec = asked(preset="tuned", batch=32, set=("precision=fp32", "tf32=false", "stochastic-depth=0.1"))
    assert (spec.precision, spec.tf32, spec.batch, spec.stochastic_depth) == ("fp32", False, 32, 0.1)
    assert spec.compile == "model"
    assert spec.channels_last is True


def test_without_gpus_the_defaults_are_small() -> None:
    spec, notes = resolve_convnext(outputs(), ConvNeXtOptions())
    assert (spec.size, spec.image, spec.batch, spec.steps, spec.workers) == ("tiny", 64, 16, 50, 4)
    assert notes == ["no GPUs in this stack: size tiny, batch 16, backend aot_eager, loader 0 by default"]
    chosen = ConvNeXtOptions(batch=4, set=("size=small", "compile=off", "loader=1"))
    spec, notes = resolve_convnext(outputs(), chosen)
    assert (spec.size, spec.batch, notes) == ("small", 4, [])


def test_a_global_batch_stays_for_any_number_of_workers() -> None:
    for workers in (2, 3, 4):
        spec = asked(0, global_batch=64, workers=workers)
        assert spec.global_batch == 64
        assert spec.batch == -(-64 // workers)


def test_set_reaches_the_knobs_of_the_trainer() -> None:
    knobs = (
        "keep=5",
        "ema=0.99",
        "probe=0",
        "seed=4",
        "look_every=3",
        "wait=60",
        "max_failures=1",
        "check_gradients=1",
    )
    spec = asked(epochs=3, checkpoint_every=7, max_run=2, set=knobs)
    assert (spec.steps, spec.epochs, spec.checkpoint_every, spec.keep) == (None, 3, 7, 5)
    assert (spec.ema, spec.max_run, spec.probe, spec.seed, spec.look_every) == (0.99, 2, 0, 4, 3)
    assert (spec.wait, spec.max_failures, spec.check_gradients) == (60, 1, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 17}, "--workers 17"),
        ({"global_batch": 15}, "--global-batch 15: 16 workers"),
        ({"name": "a", "resume": "b"}, "one of the two"),
        ({"compare": Path("/nowhere.json")}, "cannot read /nowhere.json.*--workers 1 --json"),
    ],
)
def test_a_stack_rejects_what_it_cannot_run(options: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        asked(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": "cifar"}, "'synthetic', 'fakedata'"),
        ({"steps": 1, "epochs": 1}, "--steps and --epochs"),
        ({"batch": 8, "global_batch": 64}, "--batch counts images per worker"),
        ({"set": ("ema=1.0",)}, "ema\n  Input should be less than 1"),
    ],
)
def test_options_that_contradict_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        asked(**options)


def test_a_local_stack_rejects_what_it_cannot_run(tmp_path: Path) -> None:
    ray: dict[str, Any] = {"data": "ray", "data_path": str(tmp_path)}
    with pytest.raises(WorkloadError, match=r"--data ray reads in tasks.*use --workers 3"):
        asked(0, **ray)
    assert asked(0, **ray, workers=3).data == "ray"
    assert asked(8, **ray).workers == 16
    with pytest.raises(WorkloadError, match="--data-path /nowhere: no such folder on this machine"):
        asked(0, data="imagefolder", data_path="/nowhere")
    with pytest.raises(WorkloadError, match="kernels=fused: they require GPUs"):
        asked(0, set=("kernels=fused",))


def write(file: Path, found: Result) -> Path:
    file.write_text(found.as_json())
    return file


def test_the_scaling_efficiency_compares_the_same_work_of_one_worker(tmp_path: Path) -> None:
    one = result(record(measured([rank(0, [1.0, 0.5, 0.5])], batch=100)), spec=asked(workers=1))
    file = write(tmp_path / "one.json", one)
    single = asked(compare=file).single
    assert single is not None
    assert (single.images_per_s, single.file) == (200.0, str(file))

    with pytest.raises(WorkloadError, match="batch was 128 there and is 64 here"):
        asked(compare=file, batch=64)
    two = result(record(measured([rank(i, [1.0, 0.5]) for i in range(2)])), spec=asked(workers=1))
    with pytest.raises(WorkloadError, match=r"the result of 2 workers.*--workers 1"):
        asked(compare=write(tmp_path / "two.json", two))
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(WorkloadError, match=r"no result of this version.*--workers 1 --json"):
        asked(compare=tmp_path / "no.json")


def test_errors_reach_the_user_without_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "outputs.json"
    file.write_text(outputs().model_dump_json(by_alias=True))
    command = ["train", "convnext", "--outputs", str(file)]
    for arguments, message in (
        (["--data", "imagefolder"], "--data imagefolder: name the folder of the images by --data-path\n"),
        (["--set", "momentom=1"], "--set momentom=1: no setting 'momentom'; did you mean momentum?\n"),
        (["--set", "precision=fp8"], "precision fp8: input should be 'fp32' or 'bf16'\n"),
        (["--batch", "0"], "--batch 0: input should be greater than or equal to 1\n"),
    ):
        assert main([*command, *arguments]) == Exit.ERROR
        assert capsys.readouterr().err == message
    assert main([*command, "--detach", "--out", str(tmp_path)]) == Exit.ERROR
    assert "--detach does not wait for a result: leave out --out" in capsys.readouterr().err
