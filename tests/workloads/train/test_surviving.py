"""Failures that a run survives and failures that end it: processes on gloo, a tiny model, compared bit for bit."""

from __future__ import annotations

import gzip
import json
import re
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.workloads.train.train_ranks import record, run, specification
from tests.workloads.train.training import scalars
from workloads.exits import Exit
from workloads.train import journal, shards
from workloads.train.checkpoints import RunFolder
from workloads.train.result import Record

WORLD = 4
LENGTH: dict[str, Any] = {"steps": 30, "checkpoint_every": 10, "look_every": 5}


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("storage")


@pytest.fixture(scope="module")
def whole(storage: Path) -> Record:
    """Run without interruption."""
    return record(specification(storage, "whole", ema=0.9, check_gradients=True, probe=3, **LENGTH), WORLD)


def saved(storage: Path, name: str) -> dict[str, Any]:
    folder = RunFolder(str(storage), name)
    return shards.load(folder, folder.checkpoints()[-1])


def losses(run: Record) -> list[tuple[int, float]]:
    """Return the losses of a run that is short enough for a curve of all of them."""
    assert run.curve is not None
    return run.curve.loss


same = partial(torch.testing.assert_close, rtol=0, atol=0)
"""Compares two states bit for bit."""


def test_a_whole_run_compares_gradients_and_keeps_the_last_checkpoints(whole: Record, storage: Path) -> None:
    assert (whole.step, whole.error, whole.stopped, whole.resumed_at) == (30, None, None, None)
    assert whole.gradients_equal == 6
    assert whole.figures is not None
    assert whole.figures.communication is not None
    assert whole.figures.communication.passes == 3
    assert [step for step, _ in losses(whole)] == [5, 10, 15, 20, 25, 30]
    assert losses(whole)[-1][1] < losses(whole)[0][1]
    assert RunFolder(str(storage), "whole").checkpoints() == ["step-000000020", "step-000000030"]
    assert whole.curve is not None
    assert [step for step, _, _ in whole.curve.step_s] == list(range(30))
    assert [worker.rank for worker in whole.workers or []] == list(range(WORLD))
    state = saved(storage, "whole")
    assert not torch.equal(state["average"][0], next(iter(state["model"].values())))


def test_a_killed_worker_costs_what_came_after_the_last_checkpoint_and_not_one_bit(
    whole: Record, storage: Path
) -> None:
    spec = specification(storage, "killed", ema=0.9, inject_fault="kill:2:17", **LENGTH)
    outcomes = run(spec, WORLD)
    # The process of rank 2 ended, and the others' next collective failed.
    assert [isinstance(outcome, BrokenProcessPool) for outcome in outcomes] == [False, False, True, False]
    assert all(isinstance(outcome, RuntimeError) for outcome in outcomes), outcomes
    again = record(spec, WORLD)  # what Ray Train does: the same start once more
    assert again.resumed_at == 10
    assert losses(again) == losses(whole)
    same(saved(storage, "killed"), saved(storage, "whole"))
    attempts, _ = journal.read(RunFolder(str(storage), "killed"))
    assert [attempt.resumed_from for attempt in attempts] == [0, 10]
    assert attempts[1].ended == "finished"
    # The journal may lag a second behind: 17 steps were trained, 10 of them kept.
    assert 0 <= journal.goodput(attempts)[1].lost_steps <= 7


def test_another_number_of_workers_continues_over_the_same_data(storage: Path) -> None:
    """Without drop-out (each rank draws for itself) and batch norm's own rows, the loss differs by rounding only."""
    four = record(specification(storage, "four", mixing=False, **LENGTH), WORLD)
    first = record(specification(storage, "two", mixing=False, **LENGTH | {"steps": 10}), WORLD)
    rest = record(specification(storage, "two", mixing=False, **LENGTH), 2)
    uneven = record(specification(storage, "five", mixing=False, **LENGTH), 5)  # 12 images: shares of 2 and of 3
    assert (first.step, rest.resumed_at, rest.world) == (10, 10, 2)
    # float32 sums in another order: some 1e-7 a step, a few of them on top of each other
    for other in (rest, uneven):
        for (step, loss), (_, expected) in zip(losses(other), losses(four), strict=True):
            assert loss == pytest.approx(expected, rel=1e-4), step


@pytest.mark.parametrize(
    ("fault", "steps", "code", "says", "last"),
    [
        ("nan:23", 30, Exit.ERROR, "the loss is nan in steps 20 … 24", "step-000000020"),
        ("disk:30", 30, Exit.ERROR, "No space left on device; the last good one is", "step-000000020"),
        ("disk:10", 2000, Exit.ERROR, "there was none before it", None),
        ("gradient:1", 30, Exit.WRONG_DATA, "0.weight", None),
    ],
)
def test_a_repeatable_error_ends_the_run_at_once_and_leaves_the_last_good_checkpoint(
    tmp_path: Path, fault: str, steps: int, code: Exit, says: str, last: str | None
) -> None:
    spec = specification(tmp_path, "faulty", inject_fault=fault, check_gradients=True, **LENGTH | {"steps": steps})
    broken = record(spec, 2)
    assert broken.code == code
    assert says in (broken.error or "")
    assert broken.step is not None
    assert broken.step <= min(steps, 1000)
    folder = RunFolder(str(tmp_path), "faulty")
    found = folder.checkpoints()
    assert (found[-1] if found else None) == last
    assert [name for name in folder.names() if name.startswith("step-")] == found
    if last:
        assert last in (broken.error or "")
        mended = record(spec.model_copy(update={"inject_fault": None, "steps": 30}), 2)
        assert (mended.error, mended.step, mended.resumed_at) == (None, 30, int(last.removeprefix("step-")))


def test_a_preemption_and_max_run_leave_a_checkpoint(tmp_path: Path) -> None:
    warned = record(specification(tmp_path, "warned", **LENGTH), 2, preempted=True)
    assert (warned.preempted, warned.step) == (True, 5)
    assert "the nodes of ranks [1] are preempted in" in (warned.stopped or "")
    late = specification(tmp_path, "late", max_run=1e-3 / 3600, **LENGTH)
    stopped = record(late, 2)
    assert (stopped.preempted, stopped.step) == (False, 5)
    assert "--resume late" in (stopped.stopped or "")
    for name in ("warned", "late"):
        rest = record(specification(tmp_path, name, **LENGTH), 2)
        assert (rest.resumed_at, rest.step) == (5, 30)
    same(saved(tmp_path, "warned")["model"], saved(tmp_path, "late")["model"])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"missing_on": 1}, "rank 1 on .*: no data set at /nowhere"),
        ({"checkpoint_dir": "/proc/nowhere"}, "cannot write to /proc/nowhere/refused"),
        ({"checkpoint_dir": "no/whole/path"}, "neither an absolute path nor a known URI"),
        ({"global_batch": 1}, "a batch of 1 has no share for each of 2 workers"),
        ({"steps": None}, "length of the run is unknown: set --steps or --epochs"),
        ({"seed": 1}, "started with seed 0"),
        ({"ema": 0.5}, "must be on or off for the whole run"),
        ({"folder": "{rank}"}, "choose a folder that all nodes share"),  # only rank 0 finds its checkpoints
    ],
)
def test_a_run_that_cannot_begin_reports_why_on_every_rank(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    spec = specification(tmp_path / "0", "refused", steps=1)
    if changes.keys() <= {"seed", "ema", "folder"}:
        assert record(spec, 2).error is None
    if folder := changes.get("folder"):
        changes = {"checkpoint_dir": f"{tmp_path}/{folder}"}
    for outcome in run(spec.model_copy(update=changes), 2):
        assert isinstance(outcome, Record)
        assert outcome.code == Exit.ERROR
        assert re.search(says, outcome.error or ""), outcome.error


def test_an_error_of_one_rank_ends_the_job_at_its_next_start(tmp_path: Path) -> None:
    spec = specification(tmp_path, "doomed", broken_at=7)
    assert not any(isinstance(outcome, Record) for outcome in run(spec, 2, submitted=1000.0))
    again = record(spec, 2, submitted=1000.0)
    assert (again.error, again.code) == ("image 7 of the data set cannot be read", Exit.ERROR)
    # Another job may find it mended.
    mended = record(spec.model_copy(update={"broken_at": -1}), 2, submitted=2000.0)
    assert (mended.error, mended.step) == (None, 30)


def test_epochs_end_with_an_evaluation_and_a_checkpoint_of_their_own(tmp_path: Path) -> None:
    spec = specification(tmp_path, "epochs", epoch=7, steps=None, epochs=2, ema=0.9, log="tensorboard", profile=True)
    ended = record(spec, 2)
    assert (ended.resumed_at, ended.resumed_from) == (None, None)
    assert ended.epochs is not None
    assert [row["epoch"] for row in ended.epochs] == [1, 2]
    assert all(0 <= row["accuracy"] <= 1 and row["images"] == 7 * 12 for row in ended.epochs)
    assert ended.evaluation == {"accuracy": ended.epochs[-1]["accuracy"]}
    assert ended.accuracy == ended.epochs[-1]["accuracy"]
    assert RunFolder(str(tmp_path), "epochs").checkpoints() == ["step-000000007", "step-000000014"]
    # A trace of five steps, which are in no figure; curves that TensorBoard reads.
    [trace] = (tmp_path / "epochs" / "traces").iterdir()
    traced = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert [event["name"] for event in traced].count("Optimizer.step#AdamW.step") == 5
    assert ended.figures is not None
    assert (ended.figures.warm_up_steps, ended.figures.steps) == (12, 2)
    curves = scalars(tmp_path / "epochs" / "tensorboard")
    assert [step for step, _ in curves["loss"]] == [5, 7, 10, 14]
    assert curves["epoch/accuracy"] == [(7 * row["epoch"], pytest.approx(row["accuracy"])) for row in ended.epochs]
    assert {"learning_rate", "step_s"} < curves.keys()
    more = record(spec.model_copy(update={"epochs": 3}), 2)
    assert (more.resumed_at, more.resumed_from, more.step) == (14, 2, 21)
