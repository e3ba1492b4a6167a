"""Result of a training run: the outcome that its workers return, and the document that the driver writes. Pure.

Times in seconds, memory in bytes, shares from 0 to 1. A field that does not apply or was not measured is None, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from workloads.hardware.gpu import Gpu
from workloads.results.documents import JobResult, ResultPart
from workloads.train.options import Request

SCHEMA = "rdma-ray/train/4"


class TrainWorker(ResultPart):
    """A rank and its place.

    `compute_s`, `data_s` and `waiting_s` are the medians of a measured step: own work (passes, optimizer), the wait for
    data, and the wait for the gradients' reduction after the rank has computed its own. `health` is its GPU's over the
    run; `missing` lists its values that could not be read, and why.
    """

    rank: int
    host: str
    node_id: str
    device: str
    gpu: str | None
    rows: int
    compute_s: float | None = None
    data_s: float | None = None
    waiting_s: float | None = None
    health: Gpu | None = None
    missing: list[str] | None = None


class Straggler(ResultPart):
    """A rank that the others wait for, step after step.

    `own_s` is the median of what a step takes until it has computed its gradients and after their reduction, `usual_s`
    that of the usual rank. `share` of a step is what the others wait for it. `cause`: what of it takes longer.
    """

    rank: int
    host: str
    own_s: float
    usual_s: float
    share: float
    cause: Literal["data", "compute"]


class StepTime(ResultPart):
    """Seconds of a measured step on its slowest rank, including the wait for data."""

    mean: float
    p50: float
    p95: float
    max: float


class Communication(ResultPart):
    """Cost of the reduction of the gradients: passes with it and without it (DDP's `no_sync`), after the run.

    `with_s` and `without_s` are the slowest rank's medians of a forward and backward pass. `exposed` is the share of a
    pass that the backward pass does not hide, 1 − without / with; below 0 it is noise.
    """

    exposed: float
    with_s: float
    without_s: float
    passes: int


class Scaling(ResultPart):
    """`efficiency` = rate ÷ (workers × rate of one worker), whose result was read from `file`."""

    efficiency: float
    single_units_per_s: float
    file: str


class TrainFigures(ResultPart):
    """Figures over the measured steps: those of the last attempt after its `warm_up_steps`.

    `units` are the outcome's. `units_per_s` counts all workers, over the time of the slowest rank. `mfu` is the share
    of `peak_flops` (one GPU, dense bf16 whatever the run's precision) that `flops_per_unit` amount to. `data_wait` is
    the largest share of its time that a rank waited for data. `compile_s` covers the passes before the first step (see
    Clock). `peak_memory` is that of the fullest GPU, as PyTorch's allocator counts it. `stragglers` is None if they are
    not known.
    """

    steps: int
    warm_up_steps: int
    units: int
    units_per_s: float
    units_per_s_per_worker: float
    steps_per_s: float
    step_s: StepTime
    flops_per_unit: float | None
    peak_flops: float | None
    mfu: float | None
    data_wait: float
    compile_s: float | None
    warm_up_s: float
    peak_memory: int | None
    communication: Communication | None
    scaling: Scaling | None
    stragglers: list[Straggler] | None = None


class Curve(ResultPart):
    """Curves over the steps, thinned for a plot: loss of the whole run, step times of the last attempt.

    `loss` are [step, mean loss since the previous one]. `step_s` are [last step of a stretch, median, longest] of the
    slowest rank's times, including warm-up.
    """

    loss: list[tuple[int, float]]
    step_s: list[tuple[int, float, float]]


class Phase(ResultPart):
    """Phase before the end of the first step. `source` is the Kubernetes object or clock that recorded its end."""

    name: str
    began: float
    ended: float
    source: str

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Timeline(ResultPart):
    """Consecutive phases from the submission to the end of the first step, in seconds since 1970.

    `unknown` are phases that nothing recorded, with the reason. A phase of 0 s ran in parallel with an earlier one.
    """

    began: float
    ended: float
    phases: list[Phase]
    unknown: dict[str, str]


class Goodput(ResultPart):
    """Share of the wall time in steps that were kept, and all of the wall time in seconds by name."""

    share: float
    wall_s: float
    parts_s: dict[str, float]


@dataclass(frozen=True)
class AttemptFailure:
    """Ray's report of a failed attempt: one line per rank."""

    time: float
    preemption: bool
    errors: dict[int, str]


class Survival(ResultPart):
    """Failures and preemptions of a run over all of its jobs.

    `attempts` counts starts of the workers. `mttr_s` is the mean time from the last update before a failure to the next
    attempt's first step. `errors` are the journal's failures.
    """

    attempts: int
    jobs: int
    failures: int
    preemptions: int
    lost_steps: int
    mttr_s: float | None
    between_jobs_s: float
    errors: list[AttemptFailure]
    injected_fault: str | None


class Outcome(ResultPart):
    """Outcome of a run and its measurements. The defaults are those of a run that could not begin.

    `batch` counts the samples of a step, and `units_per_sample` the units (images, or tokens of a sequence) of each.
    `loss` and `accuracy` are the last ones, `evaluation` all figures of the last evaluation. `steps` is the planned end
    of the run and `step` its actual end. `resumed_at` is the step that the run resumed from, `resumed_from` the epochs
    that were done by then, `skipped` the newer checkpoints that could not be used, each with the reason. `stopped` is
    why the run ended early and can be resumed. `gradients_equal` counts the steps whose gradients were equal on all
    ranks (None: not compared).
    """

    world: int | None = None
    device: str | None = None
    batch: int | None = None
    unit: Literal["images", "tokens"] = "images"
    units_per_sample: int = 1
    steps: int | None = None
    step: int | None = None
    epoch_steps: int | None = None
    resumed_at: int | None = None
    resumed_from: int | None = None
    skipped: dict[str, str] | None = None
    stopped: str | None = None
    parameters: int | None = None
    loss: float | None = None
    accuracy: float | None = None
    evaluation: dict[str, float] | None = None
    epochs: list[dict[str, float]] | None = None
    gradients_equal: int | None = None
    figures: TrainFigures | None = None
    curve: Curve | None = None
    timeline: Timeline | None = None
    task: dict[str, Any] | None = None
    workers: list[TrainWorker] | None = None
    seconds: dict[str, float] | None = None


class Record(Outcome):
    """A finished or cleanly stopped run, as rank 0 returns it.

    `preempted`: the run stopped to continue immediately on other nodes. `error` is the message of a failure, `code` its
    exit code.
    """

    preempted: bool = False
    error: str | None = None
    code: int = 0


class TrainResult(JobResult, Outcome):
    """Result of a whole run. `spec` is the request; goodput and survival include earlier jobs of the run."""

    writer: ClassVar[str] = "rdma-ray train …"

    schema_: str = SCHEMA
    spec: Request
    model: str
    goodput: Goodput | None = None
    survival: Survival | None = None
