"""The language model: its text, its operations, its checkpoints under DDP and FSDP2, and its request."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests.workloads.conftest import ROOT
from tests.workloads.gloo_ranks import on_ranks
from tests.workloads.train.gpt_reference import FIRST, LAST, RESUMED, losses, request, train
from tests.workloads.train.training import measured, outputs, rank, record, result
from workloads.cli import main
from workloads.exits import Exit, WorkloadError
from workloads.train import shards, trainer
from workloads.train.checkpoints import RunFolder
from workloads.train.data.source import RankShare
from workloads.train.gpt.data import BUILT_IN, Sequences, Text
from workloads.train.gpt.flops import SIZES, Size, parameters_in_products, per_token
from workloads.train.gpt.model import GPT
from workloads.train.lines import heading, lines
from workloads.train.options import REQUEST, GPTOptions, settable
from workloads.train.place import TrainerRank
from workloads.train.request import resolve_gpt

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("storage")


@pytest.fixture(scope="module")
def expected(storage: Path) -> list[tuple[int, float]]:
    """Losses of a run on two ranks, DDP, without interruption."""
    return losses(train(request(storage, "whole", 2), 2))


def test_operations_are_those_that_torch_counts() -> None:
    """With attention as matrix products: torch counts the fused kernels' backward pass with what it repeats."""
    size = Size(layers=2, width=32, heads=4, context=48)
    model, tokens = GPT(size), torch.randint(256, (3, size.context))
    with FlopCounterMode(display=False) as counted, sdpa_kernel(SDPBackend.MATH):
        model(tokens).sum().backward()
    assert counted.get_total_flops() == per_token(size) * tokens.numel()
    for size in SIZES.values():
        with torch.device("meta"):
            model = GPT(size)
        assert (
            sum(p.numel() for p in model.parameters() if p.ndim > 1) == parameters_in_products(size) + size.width * 256
        )


def test_a_token_depends_on_earlier_ones_only() -> None:
    model, tokens = GPT(SIZES["tiny"]), torch.randint(256, (1, 20))
    changed = tokens.clone()
    changed[0, 12] = (tokens[0, 12] + 1) % 256
    differs = (model(tokens) != model(changed))[0].any(dim=1)
    assert differs.tolist() == [False] * 12 + [True] * 8


def test_sequences_cover_the_text_once_an_epoch_and_leave_the_end_out(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes(bytes(range(250)) * 4)
    text = Text(str(file))
    assert text.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    data = Sequences(text, 10)
    steps = data.order(8, seed=0).epoch_steps
    assert steps == 11  # 899 // 10 sequences, 8 a step
    seen = []
    for world_rank in range(2):
        for tokens, following in data.batches(RankShare(world_rank, 2, 0, steps, 8, 0), CPU):
            assert torch.equal(tokens[:, 1:], following[:, :-1])
            seen += [tuple(row) for row in tokens.tolist()]
    starts = {row[0] for row in seen}
    assert (len(seen), starts) == (88, {start % 250 for start in range(0, 900, 10)} & starts)
    # Ranks evaluate each held-out sequence once, in equally many passes.
    passes = [list(data.test_batches(number, 2, 4)) for number in range(2)]
    assert [len(of) for of in passes] == [2, 2]
    used = [batch[0][row, 0].item() for of in passes for batch, count in of for row in range(count)]
    assert sorted(used) == [start % 250 for start in range(900, 990, 10)]


def test_texts_are_read_from_folders_and_what_is_none_is_named(tmp_path: Path) -> None:
    for name, content in (("b", b"2"), ("a/z", b"1"), ("c", b"3")):
        (tmp_path / "texts" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "texts" / name).write_bytes(content)
    assert bytes(Text(str(tmp_path / "texts")).data) == b"123"
    (tmp_path / "empty").touch()
    (tmp_path / "none").mkdir()
    for name, why in (("empty", "empty"), ("none", "empty"), ("missing", "No such file")):
        with pytest.raises(WorkloadError, match=f"--data-path {tmp_path}/{name}: .*{why}.*every node"):
            Text(str(tmp_path / name))
    with pytest.raises(WorkloadError, match=r"3 bytes, .* too few for sequences of 128 tokens: .*context=N"):
        Sequences(Text(str(tmp_path / "texts")), 128)
    assert Text(None).name == BUILT_IN
    assert len(Text(None).data) > 200_000


@pytest.mark.parametrize(
    ("first", "rest"),
    [
        ((2, {"parallel": "ddp"}), (3, {"parallel": "fsdp"})),
        ((3, {"parallel": "fsdp"}), (1, {"parallel": "ddp"})),
        ((2, {"parallel": "fsdp", "checkpoint_activations": True}), (2, {"parallel": "ddp"})),
    ],
    ids=["ddp-to-fsdp", "fsdp-to-ddp", "activations"],
)
def test_a_run_continues_on_other_ranks_with_other_parallelism(
    first: tuple[int, Any], rest: tuple[int, Any], tmp_path: Path, expected: list[tuple[int, float]]
) -> None:
    for (world, changes), steps in ((first, FIRST), (rest, LAST)):
        done = train(request(tmp_path, "run", world, steps=steps, **changes), world)
        assert (done.error, done.step) == (None, steps)
    assert [step for step, _ in losses(done)] == [step for step, _ in expected]
    for (step, loss), (_, right) in zip(losses(done), expected, strict=True):
        assert loss == pytest.approx(right, rel=RESUMED), step
    assert (done.evaluation or {})["validation_loss"] < (done.epochs or [])[0]["validation_loss"]


def test_fsdp_writes_a_shard_per_rank_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    """The weights' rows do not divide by three, so that the shards differ in size."""
    changes: dict[str, Any] = {"parallel": "fsdp", "precision": "bf16"}
    train(request(tmp_path, "whole", 3, **changes), 3)
    train(request(tmp_path, "parts", 3, steps=FIRST, **changes), 3)
    label = RunFolder(str(tmp_path), "parts").checkpoints()[-1]
    folder = RunFolder(str(tmp_path), "parts")
    chunks = shards.ShardReader(shards.FolderStorage(folder, label, folder.card(label))).metadata.state_dict_metadata
    assert [chunk.sizes[0] for chunk in chunks["['model']['blocks.0.projection.weight']"].chunks] == [22, 22, 20]
    train(request(tmp_path, "parts", 3, **changes), 3)
    whole, parts = (shards.load(RunFolder(str(tmp_path), name), f"step-{LAST:09}") for name in ("whole", "parts"))
    for name in ("model", "optimizer", "schedule"):
        torch.testing.assert_close(parts[name], whole[name], rtol=0, atol=0)
    assert parts["progress"]["losses"] == whole["progress"]["losses"]
    assert parts["text"] == whole["text"] == Text(None).sha256
    assert all(type(leaf) is torch.Tensor for leaf in whole["model"].values())


def _with_text(number: int, world: int, spec: str) -> str | None:
    """Train with this rank's own text."""
    own = REQUEST.validate_json(spec.replace("{rank}", str(number)))
    return trainer.train(own, TrainerRank(number, world, CPU), 0.0).error


def test_another_text_is_refused_between_ranks_and_on_resume(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("0", "1"):
        (tmp_path / name).write_bytes(rng.bytes(5000))
    spec = request(tmp_path, "run", 2, data_path=f"{tmp_path}/{{rank}}", steps=1).model_dump_json()
    errors = on_ranks(_with_text, 2, spec)
    assert all("rank 1 on " in (error or "") and "a different text from rank 0" in (error or "") for error in errors)
    assert on_ranks(_with_text, 1, spec) == [None]
    [error] = on_ranks(_with_text, 1, spec.replace("{rank}", "1"))
    assert "the run started with text " in (error or "")


def test_defaults_depend_on_the_stack() -> None:
    small = resolve_gpt(outputs(), GPTOptions())
    assert (small.size, small.batch, small.steps, small.precision, small.global_batch) == ("tiny", 8, 100, "fp32", 32)
    large = resolve_gpt(outputs(8), GPTOptions(set=("precision=fp32", "least-rate=0")))
    assert (large.size, large.batch, large.steps, large.precision, large.least_rate) == ("small", 16, 500, "fp32", 0)
    assert resolve_gpt(outputs(8), GPTOptions(epochs=2)).steps is None
    assert REQUEST.validate_json(large.model_dump_json()) == large


def test_every_setting_is_documented() -> None:
    text = (ROOT / "docs" / "language-model.md").read_text() + (ROOT / "docs" / "training.md").read_text()
    names = settable(GPTOptions)
    assert [key for key in names if f"`{key}`" not in text and f"--{key.replace('_', '-')}" not in text] == []


def test_errors_reach_the_user_without_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "outputs.json"
    file.write_text(outputs().model_dump_json(by_alias=True))
    for arguments, message in (
        (["--size", "huge"], "--size"),
        (["--set", "learing_rate=1"], "--set learing_rate=1: no setting 'learing_rate'; did you mean learning_rate?"),
        (["--set", "context=0"], "context 0: input should be greater than or equal to 1"),
        (["--steps", "1", "--epochs", "1"], "--steps and --epochs both set the length"),
        (["--batch", "1", "--global-batch", "8"], "--batch counts sequences per worker"),
        (["--parallel", "fsdp", "--set", "ema=0.9"], "ema with --parallel fsdp"),
        (["--parallel", "fsdp", "--set", "check_gradients=true"], "check_gradients with --parallel fsdp"),
        (["--data-path", "/nowhere"], "--data-path /nowhere: no such file or folder on this machine"),
        (["--workers", "99"], "--workers 99: the stack has"),
        (["--global-batch", "2"], "--global-batch 2: 4 workers need a sample each"),
    ):
        assert main(["train", "gpt", "--outputs", str(file), *arguments]) == Exit.ERROR
        assert message in capsys.readouterr().err


def test_rates_count_tokens() -> None:
    spec = request(Path("/storage"), "first", 2)
    found = measured(
        [rank(0, [0.1] * 10), rank(1, [0.1] * 10)], batch=12, unit="tokens", units=128, flops_per_sample=128e6
    )
    shown = result(record(found), spec=spec, model="gpt")
    assert shown.figures is not None
    assert shown.figures.flops_per_unit == 1e6
    assert heading(shown).startswith("gpt tiny, ddp, 10 of 10 steps of 1,536 tokens on 2 workers")
    assert dict(lines(shown))["speed"].startswith("15,360 tokens/s over 2 workers, 7,680 each")
