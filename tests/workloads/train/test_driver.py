"""Results of the driver from a record and a run's journal: exit codes, reasons, survived failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic_core import to_json

from tests.workloads.train.train_ranks import specification
from tests.workloads.train.training import measured, rank, record
from workloads.exits import Exit, WorkloadError
from workloads.results.events import parse
from workloads.train import driver, faults, journal, outcome, shards, task
from workloads.train.checkpoints import RunFolder
from workloads.train.result import AttemptFailure


@pytest.mark.parametrize(
    ("changes", "least", "code", "says"),
    [
        ({}, None, Exit.OK, "10 steps, loss 0.1000"),
        ({"accuracy": 0.98}, 0.97, Exit.OK, "test accuracy 0.9800, at least 0.9700"),
        ({"accuracy": 0.96}, 0.97, Exit.BELOW, "below the requested 0.9700"),
        ({"stopped": "the time is over", "step": 4}, 0.97, Exit.BELOW, "the time is over: 4 of 10 steps are done"),
        ({"error": "the loss is nan", "code": 1}, None, Exit.ERROR, "the loss is nan"),
        ({"error": "gradients differ", "code": 3}, None, Exit.WRONG_DATA, "gradients differ"),
    ],
)
def test_a_record_becomes_an_exit_code(changes: dict[str, Any], least: float | None, code: Exit, says: str) -> None:
    found, reason = outcome.judge(record(measured([rank(0, [0.1] * 10)]), **changes), least)
    assert found == code
    assert says in reason


def test_an_unwritable_folder_and_an_unknown_fault_fail_before_workers_start(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="cannot write to /proc/nowhere/one"):
        driver.train(specification(Path("/proc/nowhere"), "one"), 0.0)
    with pytest.raises(WorkloadError, match="kill:RANK:STEP"):
        driver.train(specification(tmp_path, "two", inject_fault="kill:1"), 0.0)
    assert faults.parse("nan:3") == ("nan", 3)


def test_an_image_that_lacks_what_the_trainer_calls_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.check_image()
    monkeypatch.delattr("ray.train.get_preemption_info")
    with pytest.raises(WorkloadError, match=r"Ray 2\.\S+ has no ray\.train\.get_preemption_info; set ray\.image"):
        driver.train(specification(tmp_path, "old"), 0.0)


def test_a_torch_without_an_option_of_ddp_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "DistributedDataParallel", lambda _model, _device_ids: None)
    monkeypatch.setattr(task, "place", lambda: (0, 2))
    with pytest.raises(WorkloadError, match=r"has no forward_sync_buffers; set ray\.image"):
        task.parallel(torch.nn.Linear(1, 1), torch.device("cpu"), forward_sync_buffers=False)


def test_a_run_starts_once_and_resumes_only_after_its_start(tmp_path: Path) -> None:
    spec = specification(tmp_path, "once")
    shards.save(RunFolder(str(tmp_path), "once"), "step-000000003", {"progress": {"step": 3}}, keep=2)
    with pytest.raises(WorkloadError, match="--resume once"):
        driver.train(spec, 0.0)
    with pytest.raises(WorkloadError, match="--name other"):
        driver.train(spec.model_copy(update={"name": "other", "resume": "other"}), 0.0)


def test_failures_and_preemptions_are_counted_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = specification(tmp_path, "run")
    assert outcome.survived(spec) == {}
    folder = RunFolder(str(tmp_path), "run")
    attempt = journal.Attempt(0.0, 10.0, 2, 0, 40.0, 20.0, [journal.Span(0, 10, 20.0, 5.0)], ended="finished")
    journal.write(folder, "attempt", attempt.worker, to_json(attempt))
    failures = driver.Failures(spec)
    failures.after_exception(None, {1: RuntimeError("first line\nconnection reset")})
    drained = RuntimeError("the node was drained")
    vars(drained)["preempted"] = True  # as Ray marks the death of an actor whose node was drained
    failures.after_exception(None, {0: RuntimeError("gone"), 1: drained})
    found = outcome.survived(spec)
    assert found["goodput"].share == pytest.approx(15 / 40)
    assert sum(found["goodput"].parts_s.values()) == pytest.approx(40)
    assert (found["survival"].failures, found["survival"].preemptions) == (1, 1)
    assert found["survival"].errors[0].errors == {1: "connection reset"}
    events = [parse(line) for line in capsys.readouterr().out.splitlines()]
    assert [event and (event["kind"], event["preemption"], event["ranks"]) for event in events] == [
        ("failure", False, [1]),
        ("failure", True, [0, 1]),
    ]


def test_two_failures_within_a_millisecond_are_both_kept(tmp_path: Path) -> None:
    folder = RunFolder(str(tmp_path), "run")
    for when in (1_780_000_000.1231, 1_780_000_000.1234):
        journal.write(folder, "failure", when, to_json(AttemptFailure(when, False, {})))
    assert len(journal.read(folder)[1]) == 2
