"""What is to be trained: written by the client, read by the driver and by every worker. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Plan:
    """How long a run is and what it does on its way. Steps count from 0 over the whole run, resumptions included.

    `batch` counts the images of one step over all workers. Of `steps` and `epochs` one is given. Every `look_every`
    steps, at checkpoints and at the ends of epochs the ranks look at the loss and agree how to go on; between looks no
    rank waits for its device. Checkpoints: every `checkpoint_every` steps, at the ends of epochs and at the end; the
    last `keep` stay. `ema` is the decay of an exponential moving average of the weights (None: none). `probe`: how
    many passes with and without the gradients' reduction are timed at the end. `max_run_s`: the machines go away this
    long after the submission. `fault`: see `workloads.train.faults`.
    """

    batch: int
    steps: int | None = None
    epochs: int | None = None
    seed: int = 0
    look_every: int = 10
    checkpoint_every: int | None = None
    keep: int = 2
    ema: float | None = None
    warm_up: int = 5
    probe: int = 0
    check_gradients: bool = False
    max_run_s: float | None = None
    fault: str | None = None


@dataclass(frozen=True)
class Spec:
    """One training run. `storage` is a path or URI that every node sees; `resume` says that `name` must exist there.

    `task` and `config` name the model, see `workloads.train.task`. `elastic` says that an autoscaler may add nodes, so
    that workers that do not fit yet are no error. `max_failures` counts restarts after failures of workers;
    preemptions are counted apart and are not limited.
    """

    task: str
    config: dict[str, Any]
    plan: Plan
    name: str
    storage: str
    resume: bool
    workers: int
    use_gpu: bool
    wait_s: float
    elastic: bool
    min_accuracy: float | None = None
    max_failures: int = 3
    extra: dict[str, Any] = field(default_factory=dict)
    """What the client knows and the result repeats (the preset, the command's options)."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Spec:
        fields = json.loads(text)
        return Spec(**(fields | {"plan": Plan(**fields["plan"])}))
