"""The comparison of training loops: turns, ratios by round, and that ours is the trainer's own loop."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock, patch

from tests.workloads.gloo_ranks import on_ranks
from tests.workloads.train.bench_gpu import alternate, table, tuned
from workloads.train.checkpoints import RunFolder
from workloads.train.run import TrainRun


def test_ratios_are_taken_within_rounds() -> None:
    """The second round is slow for all loops, which does not change its ratio."""
    text = table({"ours": [0.05, 0.10, 0.05], "theirs": [0.06, 0.12, 0.055]}, 128, "images/s")
    assert "2,560.0" in text
    assert "ours ÷ theirs: 1.200, 1.100 to 1.200" in text


def test_loops_take_turns_after_a_round_of_warm_up() -> None:
    turns: list[str] = []
    loops = {name: lambda count, name=name: turns.append(f"{name}{count}") for name in "ab"}
    found = alternate(loops, 2, 3)
    assert turns == ["b1", "b3", "a1", "a3", "a1", "a3", "b1", "b3", "b1", "b3", "a1", "a3"]
    assert {name: len(times) for name, times in found.items()} == {"a": 2, "b": 2}


def _steps(_rank: int, _world: int, storage: str) -> tuple[list[int], list[int], str]:
    """Take twelve steps in two turns: the trainer's steps, its looks, the class of its model."""
    steps, looks = Mock(wraps=TrainRun._step), Mock(wraps=TrainRun._look)
    with (
        patch.object(TrainRun, "_step", lambda *call: steps(*call)),
        patch.object(TrainRun, "_look", lambda *call: looks(*call)),
    ):
        train = tuned("tiny", 2, "cpu", Path(storage))
        train(8)
        train(4)
    numbers = [[call.args[1] for call in made.call_args_list] for made in (steps, looks)]
    return numbers[0], numbers[1], type(steps.call_args.args[0].wrapped).__name__


def test_ours_is_the_trainers_own_loop_without_ddp(tmp_path: Path) -> None:
    assert on_ranks(_steps, 1, str(tmp_path)) == [(list(range(12)), [10], "ConvNeXt")]
    assert "journal" in " ".join(RunFolder(str(tmp_path), "tuned").names())
