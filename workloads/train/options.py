"""Options of the training commands. A command's options model is also the request that its driver reads.

`workloads.train.request` fills in what the stack decides; the same model then travels to the cluster as JSON.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter, model_validator

from workloads.options import WAIT_S, Hidden, by_gpus, option
from workloads.train.data.source import DataOptions

STEPS = (50, 500)  # of `train convnext` without GPUs, and with


class TrainRunOptions(BaseModel, frozen=True, extra="forbid"):
    """A training run. Steps count from 0 over the whole run, including resumed parts.

    At looks (every `look_every` steps, at checkpoints and at evaluations) the ranks exchange their losses and agree how
    to continue. Between looks no rank waits for its device. Checkpoints are written every `checkpoint_every` steps, at
    evaluations and at the end.
    """

    task: Hidden[str] = Field("", description="Model to train: see `workloads.train.task`.")
    epochs: int | None = Field(None, ge=1, description="Total epochs, including those of a resumed run.")
    steps: Hidden[int | None] = Field(None, ge=1, description="Total steps, instead of epochs.")
    global_batch: Hidden[int] = Field(0, ge=0, description="Samples of all workers in a step.")
    workers: Annotated[int, option(show_default=False)] = Field(
        0, ge=0, description="Workers. [default: one per GPU or CPU slot]"
    )
    name: str = Field("", description="Name of a new run. [default: by date and time]")
    resume: Annotated[str, option(metavar="NAME")] = Field("", description="Resume the run of this name.")
    checkpoint_dir: str = Field(
        "", description="Path or URI that every node can write to. [default: the stack's storage]"
    )
    checkpoint_every: Hidden[int | None] = Field(None, ge=1, description="Steps between checkpoints.")
    evaluate_every: Hidden[int | None] = Field(
        None, ge=1, description="Steps between evaluations, instead of an evaluation at each end of an epoch."
    )
    max_run: float | None = Field(
        None, gt=0, description="Hours until the nodes are reclaimed: stop with a checkpoint shortly before."
    )
    log: Literal["tensorboard"] | None = Field(
        None, description="Write TensorBoard files of the curves to the run's folder."
    )
    profile: bool = Field(False, description="Write a trace of five steps after the warm-up to the run's folder.")
    wait: float = Field(WAIT_S, ge=1, description="Seconds to wait for the workers.")
    inject_fault: Annotated[str | None, option(show=False)] = Field(None, description="See workloads/train/faults.py.")

    seed: Hidden[int] = Field(0, ge=0, description="Seed of weights and data.")
    look_every: Hidden[int] = Field(10, ge=1, description="Steps between checks of the loss.")
    keep: Hidden[int] = Field(2, ge=1, description="Checkpoints to keep.")
    ema: Hidden[float | None] = Field(None, gt=0, lt=1, description="Decay of an exponential average of the weights.")
    warm_up: Hidden[int] = Field(5, ge=0, description="First steps of a start, which no figure includes.")
    probe: Hidden[int] = Field(
        0, ge=0, description="Passes with and without the reduction of the gradients, timed after the run."
    )
    check_gradients: Hidden[bool] = Field(
        False, description="Compare gradients over all ranks, and exit with 3 if they differ."
    )
    max_failures: Hidden[int] = Field(3, ge=0, description="Restarts after failures; preemptions do not count.")
    min_accuracy: Hidden[float | None] = Field(None, ge=0, le=1, description="Exit with 2 below this test accuracy.")

    use_gpu: Hidden[bool] = Field(False, description="Set from the stack: a GPU per worker.")
    elastic: Hidden[bool] = Field(False, description="Set from the stack: an autoscaler may add nodes.")
    submitted: Hidden[float] = Field(0.0, description="Set at submission: seconds since 1970.")

    @property
    def dumps(self) -> str:
        """Prefix of this job's dumps of NCCL's flight recorder in the run's folder. torch appends the rank."""
        return f"flight-recorder/{self.submitted:.0f}-rank-"


class DigitsOptions(TrainRunOptions):
    """Options of `train digits`."""

    task: Hidden[Literal["digits"]] = "digits"
    epochs: int | None = Field(8, ge=1, description="Total epochs, including those of a resumed run.")
    global_batch: Hidden[int] = Field(64, ge=1)
    min_accuracy: float | None = Field(0.97, ge=0, le=1, description="Exit with 2 below this test accuracy.")


IMAGES = {"base": (224, 1000), "small": (64, 10), "tiny": (64, 10)}
"""Side of an image in pixels and number of classes, by size of ConvNeXt."""


class ConvNeXtSettings(DataOptions):
    """Computation of a worker in a step. The defaults are the preset `baseline`."""

    size: Hidden[Literal["base", "small", "tiny"]] = Field("base", description="Size of the model.")
    batch: Annotated[int, option(show_default=False)] = Field(
        64, ge=1, description="Images of each worker in a step. [default: the preset's]"
    )
    stochastic_depth: Hidden[float] = Field(0.5, ge=0, lt=1, description="Probability that the last block is skipped.")

    precision: Hidden[Literal["fp32", "bf16"]] = Field(
        "fp32", description="bf16 is autocast: parameters, gradients and norms stay fp32, without gradient scaling."
    )
    tf32: Hidden[bool] = Field(
        False,
        description="fp32 matrix products on TF32 tensor cores (10 bits of mantissa). PyTorch's default is cuDNN only.",
    )
    cudnn_benchmark: Hidden[bool] = Field(False, description="cuDNN times its algorithms and uses the fastest.")
    compile: Hidden[Literal["off", "model"]] = Field(
        "off", description="model: one graph, which torch.compile splits at DDP's buckets."
    )
    backend: Hidden[Literal["inductor", "aot_eager"]] = Field(
        "inductor", description="Backend of torch.compile; aot_eager needs no compiler."
    )

    optimizer: Hidden[Literal["sgd", "adamw"]] = Field("sgd", description="Optimizer.")
    learning_rate: Hidden[float] = Field(0.1, gt=0, description="Learning rate.")
    momentum: Hidden[float] = Field(0.9, description="Momentum of SGD.")
    weight_decay: Hidden[float] = Field(5e-4, description="Weight decay.")
    fused: Hidden[bool] = Field(False, description="Fused optimizer.")
    warmup_steps: Hidden[int] = Field(0, ge=0, description="Steps of a linear warm-up of the learning rate.")
    decay_steps: Hidden[int | None] = Field(None, ge=1, description="Steps of a half cosine to 0 after the warm-up.")

    label_smoothing: Hidden[float] = Field(
        0.0, ge=0, lt=1, description="Share of each label that is spread evenly over all classes."
    )
    mixup: Hidden[float] = Field(
        0.0, ge=0, description="Alpha of torchvision's MixUp of the images of a batch; 0 is off."
    )
    cutmix: Hidden[float] = Field(0.0, ge=0, description="Alpha of CutMix; with mixup, each step uses one of the two.")

    gradient_as_bucket_view: Hidden[bool] = Field(False, description="DDP's option.")
    static_graph: Hidden[bool] = Field(False, description="DDP's option.")
    broadcast_buffers: Hidden[bool] = Field(True, description="DDP's option.")
    bucket_mb: Hidden[float] = Field(25.0, gt=0, description="DDP's bucket_cap_mb.")

    @model_validator(mode="after")
    def _check(self) -> ConvNeXtSettings:
        if self.compile != "off" and self.bucket_mb < 1:
            raise ValueError(f"bucket_mb {self.bucket_mb}: Dynamo's DDP optimizer requires at least 1 (DDP's first)")
        return self


PRESETS: dict[str, dict[str, Any]] = {
    # The published trainer that this project compares with: torchvision's convnext_base on FakeData in fp32, DDP on Ray
    # Train, without compile (232 images/s per H200 on two nodes, 2025).
    "baseline": {},
    "tuned": {
        "batch": 128,
        "precision": "bf16",
        "tf32": True,
        "cudnn_benchmark": True,
        "channels_last": True,
        "compile": "model",
        "optimizer": "adamw",
        "learning_rate": 1e-3,
        "weight_decay": 0.05,
        "fused": True,
        "gradient_as_bucket_view": True,
        "static_graph": True,
        "broadcast_buffers": False,
        "data": "synthetic",
    },
}


class Single(BaseModel, frozen=True, extra="forbid"):
    """Rate of one worker alone, for the scaling efficiency."""

    units_per_s: float
    file: str


class ConvNeXtOptions(TrainRunOptions, ConvNeXtSettings):
    """Options of `train convnext`. Options and `--set` override the preset, and the preset overrides the defaults."""

    task: Hidden[Literal["convnext"]] = "convnext"
    preset: Literal["baseline", "tuned"] = Field(
        "tuned", description="baseline is the published trainer; options override the preset."
    )
    set: Annotated[tuple[str, ...], option(metavar="KEY=VALUE")] = Field(
        (), description="Any other setting of docs/training.md. May be repeated."
    )
    steps: int | None = Field(None, ge=1, description=f"Total steps. {by_gpus(*STEPS)}")
    epochs: int | None = Field(None, ge=1, description="Total epochs, instead of --steps.")
    global_batch: Annotated[int, option(show_default=False)] = Field(
        0,
        ge=0,
        description="Images of all workers in a step, instead of --batch: to resume on other workers; 0 uses --batch.",
    )
    checkpoint_every: int | None = Field(
        None, ge=1, description="Steps between checkpoints. [default: at ends of epochs and at the end]"
    )
    min_accuracy: float | None = Field(
        None, ge=0, le=1, description="Exit with 2 below this accuracy on the images of --data-path's folder val."
    )
    compare: Annotated[Path | None, option(metavar="FILE")] = Field(
        None, description="Result of one worker (--workers 1 --json FILE), for the scaling efficiency."
    )
    wait: Hidden[float] = Field(WAIT_S, ge=1, description="Seconds to wait for the workers.")
    probe: Hidden[int] = Field(10, ge=0, description="Passes with and without the reduction of the gradients.")
    single: Hidden[Single | None] = Field(None, description="Set from --compare.")
    given: Hidden[tuple[str, ...]] = Field((), description="Settings that the user chose; the preset chose the rest.")

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, values: dict[str, Any]) -> dict[str, Any]:
        if "given" in values:
            return values  # as the client resolved it
        given = dict(values)
        for text in given.pop("set", ()):
            key, value = _setting(text, settable())
            given[key] = value
        chosen = PRESETS.get(given.get("preset", "tuned"), {}) | given
        if (size := chosen.get("size", "base")) in IMAGES:
            chosen = dict(zip(("image", "classes"), IMAGES[size], strict=True)) | chosen
        return chosen | {"given": tuple(given)}

    @model_validator(mode="after")
    def _check_options(self) -> ConvNeXtOptions:
        if self.steps is not None and self.epochs is not None:
            raise ValueError("--steps and --epochs both set the length of the run: use only one of them")
        if {"batch", "global_batch"} <= {*self.given}:
            raise ValueError("--batch counts images per worker and --global-batch over all: use only one of them")
        if self.min_accuracy is not None and self.data in ("synthetic", "fakedata"):
            raise ValueError(f"--min-accuracy with --data {self.data}, which is noise: use --data imagefolder or ray")
        return self


GPT: dict[str, tuple[Any, Any]] = {
    "size": ("tiny", "small"), "batch": (8, 16), "precision": ("fp32", "bf16"), "steps": (100, STEPS[1]),
}  # fmt: skip
"""Defaults without GPUs, and with."""
_GPT = {name: by_gpus(*pair) for name, pair in GPT.items()}


class GPTSettings(BaseModel, frozen=True, extra="forbid"):
    """Computation of a worker in a step. The defaults are those without GPUs."""

    size: Annotated[Literal["tiny", "small", "medium", "large", "xl"], option(show_default=False)] = Field(
        GPT["size"][0], description=f"0.1, 85, 303, 680 or 1,208 million parameters. {_GPT['size']}"
    )
    batch: Annotated[int, option(show_default=False)] = Field(
        GPT["batch"][0], ge=1, description=f"Sequences of each worker in a step. {_GPT['batch']}"
    )
    context: Hidden[int | None] = Field(None, ge=1, description="Tokens of a sequence, instead of the size's.")
    data_path: Annotated[str | None, option(metavar="PATH")] = Field(
        None, description="Text file, or folder of files, on every node. [default: the Python reference, 0.5 MB]"
    )
    parallel: Literal["ddp", "fsdp"] = Field(
        "ddp", description="Every worker has the whole model (ddp), or a shard of it (fsdp)."
    )
    precision: Annotated[Literal["fp32", "bf16"], option(show_default=False)] = Field(
        GPT["precision"][0],
        description=f"Type of matrix products; parameters and their gradients' sums are fp32. {_GPT['precision']}",
    )
    checkpoint_activations: Hidden[bool] = Field(
        False, description="Keep only each block's input, and compute the block again in the backward pass."
    )
    learning_rate: Hidden[float] = Field(1e-3, gt=0, description="Highest learning rate.")
    least_rate: Hidden[float] = Field(0.1, ge=0, le=1, description="Share of it at the end of the cosine.")
    warmup_steps: Hidden[int] = Field(10, ge=0, description="Steps of a linear warm-up of the learning rate.")
    decay_steps: Hidden[int | None] = Field(None, ge=1, description="Steps of the cosine; up to the run's end.")
    weight_decay: Hidden[float] = Field(0.1, ge=0, description="Weight decay of AdamW.")
    clip: Hidden[float] = Field(1.0, gt=0, description="Largest norm of the gradients over all weights.")


class GPTOptions(TrainRunOptions, GPTSettings):
    """Options of `train gpt`. `--set` overrides the defaults."""

    task: Hidden[Literal["gpt"]] = "gpt"
    set: Annotated[tuple[str, ...], option(metavar="KEY=VALUE")] = Field(
        (), description="Any other setting of docs/language-model.md. May be repeated."
    )
    steps: int | None = Field(None, ge=1, description=f"Total steps. {_GPT['steps']}")
    epochs: int | None = Field(None, ge=1, description="Total passes over the text, instead of --steps.")
    global_batch: Annotated[int, option(show_default=False)] = Field(
        0, ge=0, description="Sequences of all workers in a step, instead of --batch: to resume on other workers."
    )
    checkpoint_every: int | None = Field(
        None, ge=1, description="Steps between checkpoints. [default: at evaluations and at the end]"
    )
    evaluate_every: int | None = Field(50, ge=1, description="Steps between evaluations on the held-out text.")

    @model_validator(mode="before")
    @classmethod
    def _apply_set(cls, values: dict[str, Any]) -> dict[str, Any]:
        return values | dict(_setting(text, settable(cls)) for text in values.get("set", ()))

    @model_validator(mode="after")
    def _check_options(self) -> GPTOptions:
        if self.submitted:
            return self  # as the client resolved it
        if self.steps is not None and self.epochs is not None:
            raise ValueError("--steps and --epochs both set the length of the run: use only one of them")
        if {"batch", "global_batch"} <= self.model_fields_set:
            raise ValueError("--batch counts sequences per worker and --global-batch over all: use only one of them")
        if self.parallel == "fsdp":
            if self.check_gradients:
                raise ValueError("check_gradients with --parallel fsdp: no two ranks have the same gradients; use ddp")
            if self.ema is not None:
                raise ValueError("ema with --parallel fsdp: the average would be whole on every rank; use ddp")
        return self


def _setting(text: str, known: list[str]) -> tuple[str, str]:
    """Return key and value of a `--set KEY=VALUE`. ValueError names the nearest key."""
    key, separator, value = text.partition("=")
    key = key.strip().replace("-", "_")
    if not separator:
        raise ValueError(f"--set {text}: use KEY=VALUE")
    if key not in known:
        near = difflib.get_close_matches(key, known, n=1)
        raise ValueError(f"--set {text}: no setting {key!r}" + (f"; did you mean {near[0]}?" if near else ""))
    return key, value


def settable(options: type[TrainRunOptions] = ConvNeXtOptions) -> list[str]:
    """Return the keys of `--set`."""
    decided = {"task", "set", "given", "single", "use_gpu", "elastic", "submitted", "min_accuracy"}
    return [name for name in options.model_fields if name not in decided]


Request = Annotated[DigitsOptions | ConvNeXtOptions | GPTOptions, Field(discriminator="task")]
REQUEST: TypeAdapter[DigitsOptions | ConvNeXtOptions | GPTOptions] = TypeAdapter(Request)
"""Reads the request of any training command."""
