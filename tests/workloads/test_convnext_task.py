"""ConvNeXt as a task: settings, what they do to a step, no silent fallback to eager code, the verdict on overlap."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from tests.workloads import overlap
from tests.workloads.gloo_ranks import on_ranks
from workloads.exits import WorkloadError
from workloads.train.convnext import compilation
from workloads.train.convnext.model import ConvNeXt
from workloads.train.convnext.task import ConvNeXtTask
from workloads.train.data.source import Share
from workloads.train.options import PRESETS, REQUEST, ConvNeXtOptions, ConvNeXtSettings
from workloads.train.task import load

CPU = torch.device("cpu")
SMALL: dict[str, Any] = {"size": "tiny", "image": 32, "batch": 4, "data": "synthetic", "backend": "aot_eager"}


def settings(preset: str, **changes: Any) -> ConvNeXtOptions:
    return ConvNeXtOptions.model_validate({"preset": preset, **changes})


def made(preset: str = "tuned", **changes: Any) -> ConvNeXtTask:
    return ConvNeXtTask(settings(preset, **{**SMALL, **changes}))


def built(one: ConvNeXtTask) -> tuple[ConvNeXt, nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = one.model(CPU)
    return model, one.prepare(model, CPU), one.optimizer(model)


def losses(one: ConvNeXtTask, steps: int) -> list[float]:
    """Return the losses of seeded steps, each with an update."""
    _, called, optimizer = built(one)
    called.train()
    found = []
    for step, batch in enumerate(one.data.batches(Share(0, 1, 0, steps, one.settings.batch, 0), CPU)):
        torch.manual_seed(step)
        loss = one.loss(called, batch)
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        found.append(loss.item())
    return found


class TestSettings:
    def test_baseline_is_the_published_table(self) -> None:
        found = settings("baseline")
        assert (found.size, found.image, found.classes, found.batch) == ("base", 224, 1000, 64)
        assert (found.precision, found.compile, found.channels_last, found.data) == ("fp32", "off", False, "fakedata")
        assert (found.optimizer, found.learning_rate, found.momentum, found.weight_decay) == ("sgd", 0.1, 0.9, 5e-4)
        assert (found.stochastic_depth, found.items, found.loader, found.decay_steps) == (0.5, 1_280_000, 4, None)
        assert found.model_dump(include=set(ConvNeXtSettings.model_fields)) == ConvNeXtSettings().model_dump()

    @pytest.mark.parametrize("preset", list(PRESETS))
    def test_a_request_survives_the_way_to_the_cluster(self, preset: str) -> None:
        asked = settings(preset, size="tiny", data="synthetic", workers=2, global_batch=8)
        found = load(REQUEST.validate_json(asked.model_dump_json()))
        assert isinstance(found, ConvNeXtTask)
        assert found.settings == asked
        assert found.flops_per_sample == pytest.approx(ConvNeXtTask(asked).flops_per_sample)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"precision": "fp8"}, "precision\n  Input should be 'fp32' or 'bf16'"),
            ({"image": 100}, "image\n  Input should be a multiple of 32"),
            ({"batch": 0}, "batch\n  Input should be greater than or equal to 1"),
            ({"stochastic_depth": 1.0}, "stochastic_depth\n  Input should be less than 1"),
            ({"bucket_mb": 0.5}, "bucket_mb 0.5: .* at least 1"),
            ({"compile": "off", "compile_mode": "max-autotune"}, "only inductor has modes"),
            ({"precision": "fp32", "stream": "bf16"}, "stream bf16 with precision fp32"),
            ({"data": "imagefolder"}, "--data-path"),
            ({"color": "red"}, "color\n  Extra inputs are not permitted"),
            ({"set": ("momentom=1",)}, "no setting 'momentom'; did you mean momentum"),
            ({"set": ("momentum",)}, "--set momentum: use KEY=VALUE"),
            ({"preset": "fast"}, "'baseline' or 'tuned'"),
        ],
    )
    def test_invalid_settings_are_named(self, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(ValidationError, match=message):
            settings(**{"preset": "tuned", **changes})

    def test_the_rate(self) -> None:
        one = made(warmup_steps=4, decay_steps=10)
        assert [one.rate(step) for step in (0, 3, 4, 9, 14, 99)] == pytest.approx([0.25, 1, 1, 0.5, 0, 0])
        assert made().rate(10**6) == 1


class TestBackend:
    def test_auto_takes_inductor_where_it_can_work(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = settings("tuned")
        assert compilation.backend(asked, torch.device("cuda"))[0] == "inductor"
        monkeypatch.setattr("shutil.which", lambda _name: None)
        assert compilation.backend(asked, CPU) == ("aot_eager", "no C++ compiler for inductor")
        monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}" if name == "clang++" else None)
        monkeypatch.delenv("CXX", raising=False)
        assert compilation.backend(asked, CPU) in [
            ("inductor", "a C++ compiler, clang++"), ("aot_eager", "no Python.h for inductor")
        ]  # fmt: skip

    def test_a_requested_backend_is_used(self) -> None:
        assert compilation.backend(settings("tuned", backend="aot_eager"), CPU) == ("aot_eager", "requested")


def test_tuned_learns_what_baseline_learns() -> None:
    """The same optimizer and images; bf16 has 8 bits of mantissa, so losses of 2.3 differ by 0.02 at most."""
    same = {"optimizer": "sgd", "learning_rate": 0.05, "weight_decay": 0.0, "stochastic_depth": 0.0}
    baseline, tuned = losses(made("baseline", **same), 8), losses(made("tuned", **same), 8)
    assert tuned == pytest.approx(baseline, abs=0.02)
    assert baseline[-1] < baseline[0]


def test_tuned_is_channels_last_with_fused_adamw() -> None:
    one = made()
    model, called, optimizer = built(one)
    convolution = model.features[0][0]  # type: ignore[index]
    assert convolution.weight.is_contiguous(memory_format=torch.channels_last)
    assert isinstance(optimizer, torch.optim.AdamW)
    assert optimizer.defaults["fused"]
    (batch,) = one.data.batches(Share(0, 1, 0, 1, 4, 0), CPU)
    assert batch[0].is_contiguous(memory_format=torch.channels_last)
    kinds = []
    model.classifier[2].register_forward_hook(lambda _module, _inputs, out: kinds.append(out.dtype))
    with pytest.raises(WorkloadError, match="the data is NCHW"):
        one.loss(called, (batch[0].contiguous(), batch[1]))
    assert made("baseline").report()["compile"] == {"way": "off"}


@pytest.fixture
def fresh() -> None:
    """Discard what Dynamo compiled in other tests."""
    torch._dynamo.reset()


class Breaking(nn.Module):
    """Layer that Dynamo cannot capture."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return images


@pytest.mark.usefixtures("fresh")
class TestNoSilentEager:
    def test_the_whole_model_is_one_graph(self) -> None:
        one = made()
        losses(one, 3)
        found = one.report()["compile"]
        assert (found["graphs"], found["graph_breaks"], found["backend"]) == (1, 0, "aot_eager")

    def test_blocks_are_a_graph_for_each_stage(self) -> None:
        one = made(compile="blocks")
        losses(one, 2)
        found = one.report()["compile"]
        assert (found["graphs"], found["graph_breaks"]) == (4, 0)

    def test_a_graph_break_is_an_error(self) -> None:
        one = made()
        torch.manual_seed(0)
        model = one.model(CPU)
        model.classifier = nn.Sequential(Breaking(), *model.classifier)
        called = one.prepare(model, CPU)
        (batch,) = one.data.batches(Share(0, 1, 0, 1, 4, 0), CPU)
        with pytest.raises(torch._dynamo.exc.Unsupported):
            one.loss(called, batch)

    def test_a_recompile_limit_is_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Blocks with different stochastic depths, compiled one by one without fullgraph."""
        one = made(stochastic_depth=0.5)
        found = compilation.Compilation(one.settings, CPU)
        monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 1)
        model = one.model(CPU)
        for block in model.blocks():
            block.compile(dynamic=False, backend="eager")
        (batch,) = one.data.batches(Share(0, 1, 0, 1, 4, 0), CPU)
        one.loss(model.train(), batch)
        with pytest.raises(WorkloadError, match="fell back to eager code: Dynamo recompile limit exceeded"):
            found.check()

    def test_compilation_that_is_switched_off_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(nn.Module, "compile", lambda _self, **_options: None)
        with pytest.raises(WorkloadError, match="ran in eager code: 0 graphs compiled"):
            losses(made(), 2)


def _overlap(rank: int, world: int) -> list[dict[str, Any]]:
    """Judge the overlap with and without Dynamo's DDP optimizer, and compare all ranks' gradients."""
    import torch.distributed as dist

    answers = []
    for optimize_ddp in (True, False):
        torch._dynamo.reset()
        one = made(size="small", image=64, batch=16, bucket_mb=1.0, optimize_ddp=optimize_ddp)
        model, called, _ = built(one)
        watch = overlap.watch(called, CPU)
        called.train()
        passes = []
        for batch in one.data.batches(Share(rank, world, 0, 8, 16 * world, 0), CPU):
            model.zero_grad(set_to_none=True)
            passes.append(watch.backward(one.loss(called, batch)))
        flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])
        everywhere = [torch.empty_like(flat) for _ in range(world)]
        dist.all_gather(everywhere, flat)
        try:
            verdict: Any = overlap.check(passes[3:])
        except WorkloadError as error:
            verdict = str(error)
        equal = all(torch.equal(flat, other) for other in everywhere)
        fired = passes[-1].fired
        answers.append({"verdict": verdict, "equal": equal, "fired": fired, "report": one.report()["compile"]})
    return answers


def test_gradients_are_reduced_during_the_backward_pass() -> None:
    """In the middle of it with Dynamo's DDP optimizer; all at its end without it, which is the injected fault."""
    for sound, faulty in on_ranks(_overlap, 1):
        assert isinstance(sound["verdict"], float), sound
        assert sound["equal"]
        assert len(sound["fired"]) >= 3
        assert (sound["report"]["graphs"], sound["report"]["graph_breaks"]) == (1, 0)
        assert sound["report"]["parts"] >= 3  # split at the buckets
        assert "of the gradients left before 60%" in str(faulty["verdict"]), faulty
        assert faulty["equal"]
        assert faulty["report"]["parts"] == 1


def test_overlap_is_judged_by_bytes_and_needs_buckets() -> None:
    assert overlap.check([overlap.Backward(1.0, [(0.2, 60), (1.0, 40)])]) == pytest.approx(0.6)
    with pytest.raises(WorkloadError, match="40% of the gradients left"):
        overlap.check([overlap.Backward(1.0, [(0.2, 40), (1.0, 60)])])
    with pytest.raises(WorkloadError, match="1 bucket holds all"):
        overlap.check([overlap.Backward(1.0, [(0.2, 40)])])
    with pytest.raises(WorkloadError, match="no gradients are reduced"):
        overlap.watch(nn.Linear(1, 1), CPU)
