"""From the options of `train convnext` to what is run: defaults, and what is refused before any cluster is asked."""

from __future__ import annotations

import inspect
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from infra.outputs import Fabric, Nodes, Outputs, Ray, Storage
from tests.workloads.training import rank, record, result
from workloads.cli import main
from workloads.exits import Exit, WorkloadError
from workloads.train.commands import KNOBS, train_convnext
from workloads.train.convnext.settings import PRESETS, Settings, settings
from workloads.train.convnext_request import Options, request
from workloads.train.result import Result
from workloads.train.spec import Spec


def outputs(gpus: int = 0) -> Outputs:
    return Outputs(
        target="gke" if gpus else "local",
        nodes=Nodes(min=2, max=2, gpus_per_node=gpus, cpus_per_node=2),
        fabric=Fabric(transport="socket", nics=None, gbps_per_nic=None, floors=[]),
        ray=Ray(
            cluster="c",
            version="2.60.0",
            dashboard="http://d",
            jobs="http://j",
            client="ray://c",
            token="hush",
        ),
        storage=Storage(path="/storage"),
    )


def asked(gpus: int = 8, **options: Any) -> Spec:
    spec, _ = request(outputs(gpus), Options(**options))
    return Spec.from_json(spec.to_json())


def test_every_setting_is_a_flag() -> None:
    parameters = inspect.signature(train_convnext).parameters
    names = {field.name for field in fields(Settings)} - {"preset", "compile"}
    assert names == set(KNOBS)
    assert names <= set(parameters)
    assert "compile_" in parameters


@pytest.mark.parametrize("command", ["convnext", "digits"])
def test_help_says_what_the_preset_or_the_stack_decides(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Brackets are no markup in plain-text help."""
    assert main(["train", command, "--help"]) == Exit.OK
    # How the words are cut into lines depends on the terminal's width.
    assert capsys.readouterr().out.count("[default:") >= 6


@pytest.mark.parametrize("preset", list(PRESETS))
def test_a_preset_on_gpus_is_what_it_says(preset: str) -> None:
    spec = asked(preset=preset)
    assert Settings(**spec.config) == settings(preset)  # type: ignore[arg-type]
    assert spec.plan.batch == 16 * spec.config["batch"]
    assert (spec.plan.steps, spec.plan.epochs) == (500, None)
    assert spec.extra["preset"] == preset
    assert spec.storage == "/storage/train"


def test_explicit_options_win_over_the_preset() -> None:
    spec = asked(preset="tuned", changes={"precision": "fp32", "tf32": False, "batch": 32, "compile": None})
    assert (spec.config["precision"], spec.config["tf32"], spec.config["batch"]) == ("fp32", False, 32)
    assert spec.config["compile"] == "model"
    assert spec.config["channels_last"] is True


def test_without_gpus_it_is_small_and_says_so() -> None:
    spec, notes = request(outputs(), Options())
    assert (spec.config["size"], spec.config["batch"], spec.plan.steps, spec.workers) == ("tiny", 16, 50, 4)
    assert notes == [
        "no GPUs in this stack: --size tiny --batch 16 --backend aot_eager --loader 0, unless you say otherwise"
    ]
    spec, notes = request(outputs(), Options(changes={"size": "small", "batch": 4, "compile": "off", "loader": 1}))
    assert (spec.config["size"], spec.config["batch"], notes) == ("small", 4, [])


def test_a_global_batch_stays_whatever_the_number_of_workers() -> None:
    for workers in (2, 3, 4):
        spec = asked(0, global_batch=64, workers=workers)
        assert spec.plan.batch == 64
        assert spec.config["batch"] == -(-64 // workers)


def test_epochs_and_the_rest_of_the_plan() -> None:
    plan = asked(epochs=3, checkpoint_every=7, keep=5, ema=0.99, max_run_h=2, probe=0, seed=4, look_every=3).plan
    assert (plan.steps, plan.epochs, plan.checkpoint_every, plan.keep) == (None, 3, 7, 5)
    assert (plan.ema, plan.max_run_s, plan.probe, plan.seed, plan.look_every) == (0.99, 7200, 0, 4, 3)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"preset": "fast"}, "preset 'fast': use one of baseline, tuned"),
        ({"changes": {"size": "huge"}}, "size 'huge'"),
        ({"changes": {"data": "cifar"}}, "data 'cifar': use one of synthetic"),
        ({"changes": {"data": "imagefolder"}}, "--data-path"),
        ({"changes": {"image": 100}}, "image 100.*multiple of 32"),
        ({"changes": {"stream": "bf16", "precision": "fp32"}}, "stream bf16"),
        ({"steps": 1, "epochs": 1}, "--steps and --epochs"),
        ({"changes": {"batch": 8}, "global_batch": 64}, "--batch counts images per worker"),
        ({"global_batch": 15}, "--global-batch 15: 16 workers"),
        ({"workers": 17}, "--workers 17"),
        ({"name": "a", "resume": "b"}, "one of the two"),
        ({"ema": 1.0}, "--ema 1.0"),
        ({"compare": Path("/nowhere.json")}, "cannot read /nowhere.json.*--workers 1 --json"),
    ],
)
def test_what_cannot_be_is_refused_with_setting_value_and_fix(options: dict[str, Any], says: str) -> None:
    with pytest.raises(WorkloadError, match=says):
        asked(**options)


def test_what_this_stack_cannot_is_refused(tmp_path: Path) -> None:
    ray = {"data": "ray", "data_path": str(tmp_path)}
    with pytest.raises(WorkloadError, match=r"--data ray reads by tasks.*use --workers 3"):
        asked(0, changes=ray)
    assert asked(0, changes=ray, workers=3).config["data"] == "ray"
    assert asked(8, changes=ray).workers == 16
    with pytest.raises(WorkloadError, match="--data-path /nowhere: no such folder on this machine"):
        asked(0, changes={"data": "imagefolder", "data_path": "/nowhere"})
    with pytest.raises(WorkloadError, match="--kernels fused: they are for GPUs"):
        asked(0, changes={"kernels": "fused"})


def write(file: Path, found: Result) -> Path:
    file.write_text(json.dumps(found.model_dump(mode="json", by_alias=True)))
    return file


def test_the_scaling_efficiency_is_against_the_same_work_of_one_worker(tmp_path: Path) -> None:
    alone = asked(workers=1)
    spec = {"name": "one", "storage": "/s", "config": alone.config, "extra": {}}
    one = result(record([rank(0, [1.0, 0.5, 0.5])], batch=100), spec=spec)
    file = write(tmp_path / "one.json", one)
    assert asked(compare=file).extra["single"] == {"images_per_s": 200.0, "file": str(file)}

    with pytest.raises(WorkloadError, match="batch was 128 there and is 64 here"):
        asked(compare=file, changes={"batch": 64})
    two = result(record([rank(i, [1.0, 0.5]) for i in range(2)]), spec=spec)
    with pytest.raises(WorkloadError, match=r"the result of 2 workers.*--workers 1"):
        asked(compare=write(tmp_path / "two.json", two))
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(WorkloadError, match="no result of training"):
        asked(compare=tmp_path / "no.json")


def test_refusals_reach_the_user_without_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "outputs.json"
    file.write_text(outputs().model_dump_json(by_alias=True))
    refused = ["train", "convnext", "--outputs", str(file), "--data", "imagefolder"]
    assert main(refused) == Exit.ERROR
    assert "data imagefolder: it needs the place of the images, --data-path" in capsys.readouterr().err
    assert main(["train", "convnext", "--outputs", str(file), "--detach", "--out", str(tmp_path)]) == Exit.ERROR
    assert "--detach does not wait for a result: leave out --out" in capsys.readouterr().err
