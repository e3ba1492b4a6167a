"""Reference losses of the language model: one short run, which every launch of it must reproduce.

A launch starts the run on two ranks with `start(…)`, or continues one of another launch on another number of ranks with
`more(…)`; both are the words after `gpt`. `assert_reference` compares its result with `losses(…)`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.workloads.gloo_ranks import on_ranks
from workloads.train import trainer
from workloads.train.options import REQUEST, GPTOptions
from workloads.train.place import TrainerRank
from workloads.train.request import Launched, StartedRanks, resolve_gpt
from workloads.train.result import Record

FIRST, LAST = 6, 12
"""Steps of a start, and of a run that was continued."""
SAME = 1e-6
"""Relative difference between launches on the same number of ranks. They do the same operations in the same order, and
a sum of two ranks does not depend on it: in practice their losses are equal."""
RESUMED = 1e-5
"""The same on another number of ranks: float32 sums over ranks round differently, by 6e-8 (2**-24) of a gradient. After
twelve steps the losses of 1 to 3 ranks differ by less than 1e-7 (measured 2026-11); other CPUs may round otherwise."""
SETTINGS = {"look_every": 1, "decay_steps": 40, "warmup_steps": 2}
WORDS = ("--global-batch", "12", "--evaluate-every", str(FIRST), *(f"--set={n}={v}" for n, v in SETTINGS.items()))


def start(storage: Path, name: str) -> list[str]:
    """Return the words that start the run under this name, for its first steps."""
    return ["--checkpoint-dir", str(storage), "--name", name, "--steps", str(FIRST), *WORDS]


def more(storage: Path, name: str) -> list[str]:
    """Return the words that continue it to its end."""
    return ["--checkpoint-dir", str(storage), "--resume", name, "--steps", str(LAST), *WORDS]


def request(storage: Path, name: str, world: int, **changes: Any) -> GPTOptions:
    """Return the same request without a command line; `changes` may include other `steps`."""
    chosen = {"steps": LAST, "global_batch": 12, "evaluate_every": FIRST} | SETTINGS | changes
    options = GPTOptions(name=name, checkpoint_dir=str(storage), **chosen)
    return resolve_gpt(Launched(StartedRanks(slots_per_node=world, gpus_per_node=0)), options)


def train(spec: GPTOptions, world: int) -> Record:
    """Train on gloo ranks of this machine, without a launcher, and return rank 0's record."""
    return on_ranks(_rank, world, spec.model_dump_json())[0]


def _rank(rank: int, world: int, spec: str) -> Record:
    return trainer.train(REQUEST.validate_json(spec), TrainerRank(rank, world, torch.device("cpu")), time.time())


def losses(record: Record) -> list[tuple[int, float]]:
    """Return the losses of a record, step by step."""
    assert record.curve is not None, record.error
    return record.curve.loss


def assert_reference(result: Mapping[str, Any], expected: Sequence[tuple[int, float]], *, world: int) -> None:
    """Assert that a JSON result of `start` (two ranks) or `more` (another number) has the expected losses."""
    assert (result["exit_code"], result["world"]) == (0, world), result["reason"]
    resumed = result["resumed_at"] is not None
    assert (result["resumed_at"], result["step"]) == ((FIRST, LAST) if resumed else (None, FIRST))
    found = [(step, loss) for step, loss in result["curve"]["loss"]]
    assert [step for step, _ in found] == [step for step, _ in expected][: result["step"]]
    for (step, loss), (_, right) in zip(found, expected, strict=False):
        assert loss == pytest.approx(right, rel=RESUMED if resumed else SAME), step
