"""The result of a training run, typed: the driver writes it on the cluster; terminal, plot and comparison read it.

Times in seconds, memory in bytes, shares from 0 to 1. A field that does not apply or was not measured is None, never 0.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

SCHEMA = "rdma-ray/train/2"


class Part(BaseModel):
    """A part of the result: frozen, and strict about names, so that a renamed field cannot pass unnoticed."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class StepTime(Part):
    """Seconds of a measured step on the rank that was slowest in it, the wait for its data included."""

    mean: float
    p50: float
    p95: float
    max: float


class Communication(Part):
    """What the gradients' reduction costs: passes with it and without it (DDP's `no_sync`), by turns, after the run.

    `with_s` and `without_s` are the slowest rank's medians of one forward and backward pass; `exposed` is the share of
    a pass that is not hidden behind the backward pass, 1 − without / with. Below 0 it is lost in the noise.
    """

    exposed: float
    with_s: float
    without_s: float
    passes: int


class Scaling(Part):
    """`efficiency` = images/s here ÷ (workers × images/s of one worker); `file` is where that one was read from."""

    efficiency: float
    single_images_per_s: float
    file: str


class Figures(Part):
    """A run's figures over its measured steps: those of the last attempt after its `warm_up_steps`.

    `images_per_s` counts all workers, over the time of the slowest rank. `mfu` is the share of `peak_flops` (of one
    GPU, dense bf16 whatever the run computed in) that `flops_per_image` come to. `data_wait` is the share of its time
    that the rank which waited most stood still for data. `compile_s` are the passes before the first step, in which
    the model is compiled and DDP finds its buckets; `warm_up_s` are the steps that belong to no average.
    `peak_memory` is the fullest GPU's, as PyTorch's allocator counts it.
    """

    steps: int
    warm_up_steps: int
    images: int
    images_per_s: float
    images_per_s_per_worker: float
    steps_per_s: float
    step_s: StepTime
    flops_per_image: float | None
    peak_flops: float | None
    mfu: float | None
    data_wait: float
    compile_s: float | None
    warm_up_s: float
    peak_memory: int | None
    communication: Communication | None
    scaling: Scaling | None


class Curve(Part):
    """The run over its steps, thinned for a plot: loss of the whole run, step times of the last attempt.

    `loss` are [step, mean loss since the one before]; `step_s` are [last step of a stretch, median, longest] of the
    slowest rank's times, the warm-up included.
    """

    loss: list[tuple[int, float]]
    step_s: list[tuple[int, float, float]]


class Phase(Part):
    """One phase on the way to the first step; `source` is what told its end: an object of Kubernetes, or a clock."""

    name: str
    began: float
    ended: float
    source: str

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Timeline(Part):
    """From the submission to the end of the first step, in seconds since 1970, phase after phase.

    `unknown` are phases that nothing told of, each with the reason. A phase of 0 s took place while another one did.
    """

    began: float
    ended: float
    phases: list[Phase]
    unknown: dict[str, str]


class Worker(Part):
    """Who a rank was and where."""

    rank: int
    host: str
    node_id: str
    device: str
    gpu: str | None
    rows: int


class Goodput(Part):
    """The share of the wall time that went into steps that were kept, and where all of it went, in seconds by name."""

    share: float
    wall_s: float
    parts_s: dict[str, float]


class Result(Part):
    """A whole run. What came before training failed is None; `stopped` says why it ended early and can be resumed.

    `loss` and `accuracy` are the last ones; `steps` is where the run was to end, `step` where it did, `resumed_at` the
    step that it went on from (None: it began anew) and `resumed_from` the epochs that were done by then.
    """

    schema_: str = SCHEMA
    started: float
    finished: float
    spec: dict[str, Any]
    exit_code: int
    reason: str
    model: str | None = None
    backend: Literal["nccl", "gloo"] | None = None
    world: int | None = None
    device: str | None = None
    batch: int | None = None
    steps: int | None = None
    step: int | None = None
    epoch_steps: int | None = None
    resumed_at: int | None = None
    resumed_from: int | None = None
    stopped: str | None = None
    parameters: int | None = None
    loss: float | None = None
    accuracy: float | None = None
    evaluation: dict[str, float] | None = None
    epochs: list[dict[str, float]] | None = None
    gradients_equal: int | None = None
    figures: Figures | None = None
    curve: Curve | None = None
    timeline: Timeline | None = None
    goodput: Goodput | None = None
    survival: dict[str, Any] | None = None
    task: dict[str, Any] | None = None
    workers: list[Worker] | None = None
    versions: dict[str, str | None] | None = None
    seconds: dict[str, float] | None = None
    job: str | None = None
    cluster: str | None = None
    command: list[str] | None = None

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=lambda name: name.rstrip("_"), populate_by_name=True
    )
