"""A run's result: its schema, its report on a terminal, its picture, and reading it from a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from tests.workloads.nccl.test_evidence_gpu import gpu
from tests.workloads.train.training import measured, rank, record, result
from workloads.cli import main
from workloads.exits import Exit
from workloads.results.events import Event
from workloads.train.figures import communication
from workloads.train.lines import lines
from workloads.train.plot import picture
from workloads.train.report import TrainView, show
from workloads.train.result import Record, TrainResult

H200 = [rank(i, [2.0, 0.5] + [0.1] * 48, gpu="NVIDIA H200", memory=60 * 2**30) for i in range(4)]
MEASURED = measured(
    H200,
    batch=512,
    warm_up=2,
    flops_per_sample=92.1e9,
    communication=communication([[1.0, 0.1, 0.1]] * 4, [[1.0, 0.09, 0.09]] * 4),
)
RUN = record(
    MEASURED,
    task={"compile": {"way": "model", "backend": "inductor", "graphs": 1, "parts": 7, "graph_breaks": 0}},
    gradients_equal=5,
)
PNG = b"\x89PNG"
CONSOLE = Console(width=100, force_terminal=False)


def test_the_schema() -> None:
    """Renaming or removing a field breaks readers, and requires a new number in SCHEMA."""
    written = json.loads(result(RUN).as_json())
    assert written["schema"] == "rdma-ray/train/4"
    assert sorted(written) == [
        *("accuracy", "backend", "batch", "cluster", "command", "curve", "device", "epoch_steps", "epochs"),
        *("evaluation", "exit_code", "figures", "finished", "goodput", "gradients_equal", "job", "loss", "model"),
        *("parameters", "reason", "resumed_at", "resumed_from", "schema", "seconds", "skipped", "spec", "started"),
        *("step", "steps", "stopped", "survival", "task", "timeline", "unit", "units_per_sample", "versions"),
        *("workers", "world"),
    ]
    assert sorted(written["figures"]) == [
        *("communication", "compile_s", "data_wait", "flops_per_unit", "mfu", "peak_flops", "peak_memory"),
        *("scaling", "step_s", "steps", "steps_per_s", "stragglers", "units", "units_per_s"),
        *("units_per_s_per_worker", "warm_up_s", "warm_up_steps"),
    ]
    assert TrainResult.model_validate(written) == result(RUN)


def test_a_run_that_could_not_begin_is_a_result_too() -> None:
    found = result(Record(), exit_code=1, reason="no such folder", goodput=None, survival=None)
    assert picture(found).startswith(PNG)
    with CONSOLE.capture() as said:
        show(found, CONSOLE)
    assert said.get() == "no such folder\n"


def test_the_report_on_a_terminal() -> None:
    shown = dict(lines(result(RUN)))
    assert shown == {
        "speed": "5,120 img/s over 4 workers, 1,280 each, 10.00 steps/s",
        "step": "p50 100.0 ms, p95 100.0 ms, max 100.0 ms (48 steps after 2 of warm-up)",
        "MFU": "11.9 % of the GPU's bf16 peak",
        "data": "waited for 10.0 % of the time",
        "gradients' reduction": "10.0 % of a pass exposed: 100.0 ms with it, 90.0 ms without, 2 passes each",
        "before": "7 s to compile, 2.5 s of warm-up, not in the averages",
        "peak memory": "60.0 GiB on the fullest GPU",
        "ranks": "compute 80.0 ms to 80.0 ms of a step, wait for the reduction 10.0 ms to 10.0 ms",
        "graphs": "1 compiled by inductor, 7 after the split at DDP's buckets; 0 graph breaks",
        "gradients": "equal on all ranks, bit for bit, at 5 steps",
        "loss": "1.0000 at first, 0.0200 in the end",
        "first step": (
            "after 39 s: cluster formed 10 s, worker started 20 s, restored 1 s, compiled 7 s, first step 1 s"
        ),
        "goodput": "40.0 % of 60 s; provisioning 20 s, start 9 s, data 4 s, checkpoint 3 s",
        "survived": "1 failures, 0 preemptions, 3 steps lost",
        "checkpoints": "/storage/train/first",
    }


def test_the_report_names_stragglers_and_unhealthy_gpus() -> None:
    hot = gpu(limited_s={"HwThermalSlowdown": 12.3}, xids=[79])
    slow = rank(9, [0.1] * 40, wait=[0.0] * 40, waiting=[0.01] * 40, gpu="NVIDIA H200", health=hot)
    fast = [
        rank(number, [0.1] * 40, wait=[0.0] * 40, waiting=[0.04] * 40, gpu="NVIDIA H200", health=gpu())
        for number in (0, 1)
    ]
    found = result(record(measured([*fast, slow])))
    shown = dict(lines(found))
    assert shown["ranks"] == "compute 60.0 ms to 90.0 ms of a step, wait for the reduction 10.0 ms to 40.0 ms"
    assert shown["straggler"] == (
        "rank 9 on node-1 takes 90.0 ms itself, usual are 60.0 ms: longer for its compute;"
        " the others wait 30.0 % of a step"
    )
    assert shown["GPU"] == (
        "rank 9 on node-1: throttled: 00000000:3b:00.0 (HwThermalSlowdown 12.3 of 60.0 s, 40 °C), Xid 79"
    )
    assert TrainResult.model_validate_json(found.as_json()) == found
    few = dict(lines(result(record(measured([rank(number, [0.1] * 10) for number in (0, 1)])))))
    assert few["ranks"].endswith("; fewer than 20 steps show no straggler")
    assert "straggler" not in few


@pytest.mark.parametrize("found", [result(RUN), result(record(measured([rank(0, [0.1] * 2)])), goodput=None)])
def test_the_picture(found: TrainResult) -> None:
    drawn = picture(found, "svg").decode()
    assert drawn == picture(found, "svg").decode()
    for text in ("loss", "step time, ms", "a step of each rank, ms", "convnext base tuned: first", "to the first step"):
        assert text in drawn
    assert ("goodput 40.0 %: where 60 s went" in drawn) == (found.goodput is not None)


def test_progress_without_a_terminal_is_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    view = TrainView(CONSOLE)
    look: Event = {"kind": "look", "step": 60, "steps": 100, "loss": 0.5, "seconds": 0.02}
    with CONSOLE.capture() as said, view:
        view.event({"kind": "phase", "name": "workers"})
        view.event({"kind": "note", "text": "checkpoint step-000000060 is skipped: it has no checkpoint.json"})
        view.event({"kind": "plan", "steps": 100, "step": 50, "epochs": 10, "done": 5, "workers": 4})
        view.event(look)
        monkeypatch.setattr(view, "noted", -1e9)
        view.event(look | {"step": 70})
        view.event({"kind": "epoch", "epoch": 7, "loss": 0.4, "accuracy": 0.9, "seconds": 1.5})
        view.event({"kind": "failure", "preemption": False, "ranks": [1, 3]})
        view.event({"kind": "preempted", "reason": "the nodes of ranks [0] are preempted", "step": 80})
    assert said.get().splitlines() == [
        "starting the workers",
        "checkpoint step-000000060 is skipped: it has no checkpoint.json",
        "training on 4 workers, from epoch 6",
        "step 70: loss 0.5000, 20.0 ms a step",
        "epoch 7: loss 0.4000, test accuracy 0.9000, 1.50 s",
        "ranks 1, 3 failed: continuing from the last checkpoint",
        "the nodes of ranks [0] are preempted: a checkpoint was written at step 80, continuing from it",
    ]


def test_report_shows_a_result_again_with_kubernetes_objects(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "result.json"
    file.write_text(result(RUN).as_json())
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:16:45Z"}
    pod = {"kind": "Pod", "metadata": {"name": "worker-a"}, "status": {"conditions": [ready]}}
    objects, nodes = tmp_path / "objects.json", tmp_path / "nodes.json"
    objects.write_text(json.dumps({"kind": "List", "items": [pod]}))
    nodes.write_text(json.dumps({"kind": "List", "items": []}))
    out = tmp_path / "out"
    done = main(["train", "report", str(file), "--objects", str(objects), "--objects", str(nodes), "--out", str(out)])
    assert done == Exit.OK
    assert "pod ready 5 s, cluster formed 5 s" in " ".join(capsys.readouterr().out.split())
    assert (out / "run.png").read_bytes().startswith(PNG)
    again = json.loads((out / "result.json").read_text())
    assert again["timeline"]["phases"][0]["name"] == "pod ready"


def test_an_unreadable_result_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "result.json"
    assert main(["train", "report", str(file)]) == Exit.ERROR
    assert "cannot read" in capsys.readouterr().err
    file.write_text("{}")
    assert main(["train", "report", str(file)]) == Exit.ERROR
    assert "is not a result of this version: its schema is None" in capsys.readouterr().err
