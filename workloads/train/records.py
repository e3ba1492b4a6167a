"""What the trainer hands back: plain data, the same for every task. Figures and goodput are made from it elsewhere."""

from __future__ import annotations

from typing import TypedDict


class RankRecord(TypedDict):
    """One rank's part of the last attempt. `step_s[i]` and `wait_s[i]` are of step `first_step + i`, in seconds.

    `step_s` is a whole step, from the end of the one before it to its own end on the device, so `wait_s`, the time
    in which the loop stood still for its data, is a part of it; the time of checkpoints and evaluations is in neither.
    Compilation came before the first step. The first `warm_up` steps (allocations, clocks) belong to no average.
    """

    rank: int
    host: str
    node_id: str
    device: str
    gpu: str | None
    rows: int
    first_step: int
    warm_up: int
    step_s: list[float]
    wait_s: list[float]
    peak_memory: int | None


class Probe(TypedDict):
    """Forward and backward passes timed with and without the gradients' reduction, one after the other by turns (s).

    Taken after the last step, so that nothing of the run depends on it. By rank, then by pass.
    """

    with_s: list[list[float]]
    without_s: list[list[float]]


class Clock(TypedDict):
    """When the last attempt got where, in seconds since 1970 by rank 0's clock; None: it did not get there.

    `compiled` is the end of the passes before the first step: they compile the model and let DDP find its buckets.
    """

    submitted: float
    driver: float
    worker: float
    restored: float
    compiled: float | None
    first_step: float | None
    trained: float | None


class Record(TypedDict):
    """A finished or cleanly stopped run, as rank 0 returns it.

    `losses` are [step, mean loss over all ranks of the steps since the one before] of the whole run, `history` its
    epochs, `evaluation` the last one. `stopped` says why the run ended early (and can be resumed; `preempted`: at once,
    elsewhere), `error` what broke, `code` the exit code that it stands for.
    """

    world: int
    device: str
    batch: int
    steps: int
    step: int
    epoch_steps: int | None
    resumed_from: int | None
    parameters: int
    flops_per_sample: float | None
    losses: list[tuple[int, float]]
    history: list[dict[str, float]]
    evaluation: dict[str, float]
    gradients: int | None
    """Steps whose gradients were compared over all ranks and found equal; None: not asked for."""
    ranks: list[RankRecord]
    probe: Probe | None
    clock: Clock
    task: dict[str, object]
    stopped: str | None
    preempted: bool
    error: str | None
    code: int
