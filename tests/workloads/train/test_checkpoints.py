"""Damaged checkpoints: whatever is broken in the newest one, a run continues from the one before it and says so."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_loader

from tests.workloads.gloo_ranks import on_ranks
from workloads.exits import WorkloadError
from workloads.train import shards
from workloads.train.checkpoints import CARD, RunFolder

OLD, NEW = "step-000000010", "step-000000020"


def state(step: int) -> dict[str, Any]:
    """A state with every kind of leaf and a memory format to keep."""
    weight = torch.arange(192.0).add(step).view(4, 3, 4, 4).to(memory_format=torch.channels_last)
    model = {"weight": weight, "bias": torch.full((64,), step).bfloat16(), "tracked": torch.tensor(step)}
    optimizer = {"state": {0: {"step": torch.tensor(1.0)}}, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.99)}]}
    return {"model": model, "optimizer": optimizer, "average": [], "progress": {"step": step, "losses": [(1, 0.5)]}}


def write(rank: int, world: int, storage: str) -> None:
    """Write two checkpoints on this rank. Buffers are rank 0's."""
    del world
    for step in (10, 20):
        mine = state(step)
        if rank:
            del mine["model"]["tracked"]
        shards.save(RunFolder(storage, "run"), f"step-{step:09}", mine, 2, dist.group.WORLD)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder with two checkpoints of two ranks."""
    storage = tmp_path_factory.mktemp("storage")
    on_ranks(write, 2, str(storage))
    return storage / "run"


@pytest.fixture
def run(written: Path, tmp_path: Path) -> Path:
    """A copy of it, to damage."""
    return Path(shutil.copytree(written, tmp_path / "run"))


def alone(value: Any) -> list[Any]:
    """Gather of a single rank."""
    return [value]


def newest(run: Path, gather: Callable[[Any], list[Any]] = alone) -> shards.Found:
    return shards.newest(RunFolder(str(run.parent), run.name), gather)


def shard(run: Path, number: int = 1) -> Path:
    return run / NEW / f"__{number}_0.distcp"


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def folder_instead(file: Path) -> None:
    file.unlink()
    file.mkdir()


def card(run: Path, **changes: Any) -> None:
    file = run / NEW / CARD
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def forge(run: Path, file: str, content: bytes) -> None:
    """Replace a file, and its entry in the card as well."""
    (run / NEW / file).write_bytes(content)
    files = json.loads((run / NEW / CARD).read_text())["files"]
    card(run, files=files | {file: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}})


HARMED = Path(tempfile.gettempdir(), f"harmed-{os.getpid()}")


class Harmful:
    """What pickle would run."""

    def __reduce__(self) -> Any:
        return Path.touch, (HARMED,)


DIGEST = {"bytes": 1, "sha256": "0" * 64}
DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "flipped bit of a tensor": (lambda run: flip(shard(run), 999), "__1_0.distcp has changed"),
    "truncated": (lambda run: shard(run).write_bytes(shard(run).read_bytes()[:-9]), "__1_0.distcp has .*, but had"),
    "empty": (lambda run: shard(run, 0).write_bytes(b""), "__0_0.distcp has 0 bytes"),
    "missing shard of a rank": (lambda run: shard(run).unlink(), "__1_0.distcp cannot be read: No such file"),
    "no metadata": (lambda run: (run / NEW / ".metadata").unlink(), ".metadata cannot be read: No such file"),
    "damaged metadata": (lambda run: flip(run / NEW / ".metadata", 99), ".metadata has changed"),
    "damaged state": (lambda run: flip(run / NEW / "state.pt", 99), "state.pt has changed"),
    "no card": (lambda run: (run / NEW / CARD).unlink(), "writing it did not finish"),
    "empty card": (lambda run: (run / NEW / CARD).write_bytes(b""), "is not a manifest of this version"),
    "damaged card": (lambda run: flip(run / NEW / CARD, 0), "is not a manifest of this version"),
    "card of another format": (
        lambda run: card(run, format="rdma-ray/checkpoint/2"),
        "is not a manifest of this version",
    ),
    "card of another step": (lambda run: shutil.copy(run / OLD / CARD, run / NEW / CARD), "is from step 10"),
    "card that lacks files": (lambda run: card(run, files={}), "does not name state.pt"),
    "wrong digest": (lambda run: card(run, files={"state.pt": DIGEST}), "state.pt has .* had 1 when"),
    "shard of another step": (lambda run: shutil.copy(run / OLD / "__1_0.distcp", run / NEW), "distcp has changed"),
    "unreadable": (lambda run: folder_instead(shard(run)), "__1_0.distcp cannot be read"),
    "more than was written": (lambda run: shard(run).open("ab").write(b"more"), "__1_0.distcp has .*, but had"),
    "code as metadata": (lambda run: forge(run, ".metadata", pickle.dumps(Harmful())), "Path.touch is not part"),
    "code as state": (lambda run: forge(run, "state.pt", pickle.dumps(Harmful())), "it cannot be read"),
}  # fmt: skip


def test_two_ranks_write_disjoint_shares_that_one_rank_reads(written: Path) -> None:
    found = newest(written)
    torch.testing.assert_close(found.state, state(20), rtol=0, atol=0)
    assert found.state is not None
    assert found.state["model"]["weight"].is_contiguous(memory_format=torch.channels_last)
    assert found.skipped == {}
    assert sorted(file.name for file in (written / NEW).iterdir()) == [
        *(".metadata", "__0_0.distcp", "__1_0.distcp", CARD, "state.pt")
    ]
    # torch's own reader reads them, too.
    bias = {"['model']['bias']": torch.empty(64, dtype=torch.bfloat16)}
    state_dict_loader.load(bias, checkpoint_id=written / NEW, no_dist=True)
    assert set(bias.popitem()[1].tolist()) == {20}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_run_continues_from_the_last_good_checkpoint(run: Path, kind: str) -> None:
    damage, says = DAMAGE[kind]
    damage(run)
    found = newest(run)
    torch.testing.assert_close(found.state, state(10), rtol=0, atol=0)
    assert [*found.skipped] == [NEW]
    assert re.search(says, found.skipped[NEW]), found.skipped
    assert not HARMED.exists()


def test_a_checkpoint_that_one_rank_cannot_read_is_used_by_none(run: Path) -> None:
    asked = []

    def gather(value: Any) -> list[Any]:
        asked.append(value)
        return [value, "state.pt cannot be read: Input/output error" if len(asked) == 2 else value]

    found = newest(run, gather)
    assert found.skipped == {NEW: "on rank 1, state.pt cannot be read: Input/output error"}
    torch.testing.assert_close(found.state, state(10), rtol=0, atol=0)


def test_damaged_checkpoints_alone_are_an_error_and_unfinished_ones_a_start(run: Path) -> None:
    for label in (OLD, NEW):
        flip(run / label / "state.pt", 99)
    with pytest.raises(WorkloadError, match=f"no checkpoint .* can be used .{NEW}: state.pt has changed.*; {OLD}: "):
        newest(run)
    for label in (OLD, NEW):
        (run / label / CARD).unlink()
    found = newest(run)
    assert (found.state, [*found.skipped]) == (None, [NEW, OLD])


def test_what_a_fall_back_may_need_is_kept(run: Path) -> None:
    """Two are kept. The damaged one is not among them, and is replaced when the run comes to its step again."""
    folder = RunFolder(str(run.parent), run.name)
    flip(shard(run), 99)
    writer = shards.Writer(folder, run.name, 2, None, newest(run).skipped)
    assert writer.good() == OLD
    for step, kept in ((15, [10, 15, 20]), (20, [15, 20]), (25, [20, 25])):
        writer.save(f"step-{step:09}", state(step))
        writer.wait()
        assert folder.started() == [f"step-{step:09}" for step in kept]
    assert newest(run).skipped == {}
