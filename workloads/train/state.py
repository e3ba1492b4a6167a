"""State of a run: everything that it needs to resume as if it had never stopped, and timing and trace of its steps.

The generators of random numbers (Python, NumPy, torch, CUDA) are seeded before every step by (seed, step, rank), and
the order of the data is a function of (seed, step). The step therefore replaces the state of both.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils._pytree import tree_leaves, tree_map

from workloads.exits import WorkloadError
from workloads.results.events import emit
from workloads.train.checkpoints import RunFolder, reason
from workloads.train.figures import communication
from workloads.train.place import TrainerRank
from workloads.train.result import Communication


@dataclass
class Progress:
    """Progress of a run. `losses` are [step, mean loss since the previous one]; `epoch_*` sum the unfinished epoch."""

    step: int = 0
    losses: list[tuple[int, float]] = field(default_factory=list)
    history: list[dict[str, float]] = field(default_factory=list)
    epoch_loss: float = 0.0
    epoch_steps: int = 0


class TrainState:
    """A model, its optimizer and schedule, the moving average of its weights, and the progress."""

    def __init__(self, model: nn.Module, ema: float | None) -> None:
        self.model = model
        self.progress = Progress()
        self.optimizer: torch.optim.Optimizer
        self.schedule: torch.optim.lr_scheduler.LRScheduler
        self.average: AveragedModel | None = None
        if ema is not None:
            ema_fn = get_ema_multi_avg_fn(ema)  # type: ignore[no-untyped-call]  # untyped in torch
            self.average = AveragedModel(model, multi_avg_fn=ema_fn)
            self.average.update_parameters(model)  # the first update copies: the average begins at these weights

    @property
    def evaluated(self) -> nn.Module:
        """The model with the averaged weights if there are any, otherwise the model itself."""
        return self.model if self.average is None else self.average.module

    def parts(self) -> dict[str, Any]:
        """Return model, optimizer, schedule and average: live tensors, not copies."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "average": self._averages(),
        }

    def _averages(self) -> list[torch.Tensor]:
        return [] if self.average is None else [weight.detach() for weight in self.average.parameters()]

    def finite(self) -> torch.Tensor:
        """Return whether this rank's state is finite, as a boolean on the device, without synchronization."""
        leaves = (leaf for leaf in tree_leaves(self.parts()) if isinstance(leaf, torch.Tensor))
        parts = (leaf.to_local() if isinstance(leaf, DTensor) else leaf for leaf in leaves)
        checks = [part.isfinite().all() for part in parts]
        device = next(self.model.parameters()).device
        return torch.stack([check.to(device) for check in checks]).all()

    def snapshot(self, identity: Mapping[str, Any], whole: bool = True) -> dict[str, Any]:
        """Return a copy in main memory that training no longer changes. Synchronizes the device once.

        `identity` has the values that a run that continues from it must share. A DTensor's copy is this rank's shard.
        Without `whole`, it lacks the buffers: the running statistics of batch norms differ between ranks, and DDP uses
        rank 0's. Everything else is equal on all ranks, bit for bit, because the reduced gradients are.
        """
        parts = self.parts()
        if not whole:
            parts["model"] = {name: parts["model"][name] for name, _ in self.model.named_parameters()}
        copied: dict[str, Any] = tree_map(_copied, parts)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        progress = vars(self.progress) | {
            "losses": list(self.progress.losses),
            "history": [dict(row) for row in self.progress.history],
        }
        return copied | {"progress": progress, **identity}

    def load_model(self, saved: dict[str, Any], identity: Mapping[str, Any]) -> None:
        """Load a checkpoint before the model is wrapped. WorkloadError if it is from a run with other settings."""
        for name, now in identity.items():
            if saved.get(name) != now:
                raise WorkloadError(
                    f"the run started with {name} {saved.get(name)} and cannot continue with {now}: use the same, or"
                    " start a run with another name"
                )
        if (self.average is not None) != bool(saved["average"]):
            raise WorkloadError("the moving average (ema) must be on or off for the whole run, as at its start")
        try:
            self.model.load_state_dict(saved["model"])
        except RuntimeError as error:
            raise WorkloadError(
                f"the checkpoint is from another model: {str(error).splitlines()[-1].strip()}"
            ) from error
        for mine, kept in zip(self._averages(), saved["average"], strict=True):
            mine.copy_(kept)
        self.progress = Progress(**saved["progress"])

    def load_optimizer(self, saved: dict[str, Any]) -> None:
        """Load optimizer and schedule, once they exist. A checkpoint's tensors are whole, on any number of ranks."""
        state = saved["optimizer"]["state"]
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        sharded = {
            at: {name: _as_parameter(value, parameters[at]) for name, value in of.items()} for at, of in state.items()
        }
        self.optimizer.load_state_dict(saved["optimizer"] | {"state": sharded})
        self.schedule.load_state_dict(saved["schedule"])


class Timer:
    """Times steps on the device, from the end of one to the end of the next, without waiting for the device.

    `settle` converts what a GPU recorded to seconds; after it, `step_s` and `wait_s` are complete. `pauses` are seconds
    by kind that do not belong to a step.
    """

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self.step_s: list[float] = []
        self.wait_s: list[float] = []
        self.pauses: dict[str, float] = {}
        self.marks: list[tuple[Any, Any, float, Any]] = []
        self.before = self.mark()

    def start(self) -> None:
        """Begin the next step now."""
        self.before = self.mark()

    def step(self, wait_s: float, arrived: Any = None) -> None:
        """End a step on this thread, which waited for data; the device may still run it.

        Args:
            wait_s: Time that the thread waited for the step's data.
            arrived: CUDA event at which the data came. Only waits while the device was idle count: the
                thread runs ahead, and may wait while the device computes the previous step.
        """
        now = self.mark()
        self.marks.append((self.before, now, wait_s, arrived))
        self.before = now

    def settle(self) -> None:
        """Convert marks to seconds. On a GPU, the thread must have waited for the device."""
        for before, after, wait_s, arrived in self.marks:
            self.step_s.append(self.seconds(before, after))
            idle_s = wait_s if arrived is None else max(0.0, self.seconds(before, arrived))
            self.wait_s.append(min(wait_s, idle_s))
        self.marks.clear()

    @contextmanager
    def pause(self, kind: str) -> Iterator[None]:
        """Time work outside the steps: a checkpoint, an evaluation."""
        began = time.perf_counter()
        yield
        self.pauses[kind] = self.pauses.get(kind, 0.0) + time.perf_counter() - began
        self.start()

    def seconds(self, before: Any, after: Any) -> float:
        """Return the seconds between two marks. On a GPU, the thread must have waited for the device."""
        return float(before.elapsed_time(after) / 1e3 if self.cuda else after - before)

    def mark(self) -> Any:
        """Mark the present: a CUDA event, or a time on a CPU."""
        if not self.cuda:
            return time.perf_counter()
        make: Any = torch.cuda.Event  # untyped in torch
        event = make(enable_timing=True)
        event.record()
        return event


class Trace:
    """Trace of `TRACED` steps of this rank after `skipped` ones, in Chrome's format, by torch.profiler.

    No figure may include the `AFFECTED` steps: the profiler prepares in the first, and ranks wait for this one in the
    step after it has written the trace.
    """

    TRACED, AFFECTED = 5, 7

    def __init__(self, folder: RunFolder, device: torch.device, first_step: int, skipped: int) -> None:
        self.folder, self.written = folder, False
        self.name = f"traces/step-{first_step + skipped + 1:09}-rank-0.json.gz"
        self.profiler = profile(
            activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])],
            schedule=schedule(wait=skipped, warmup=1, active=self.TRACED, repeat=1),
            on_trace_ready=self._write,
        )
        self.profiler.start()

    def step(self) -> None:
        """End a step."""
        self.profiler.step()

    def close(self) -> None:
        """End the trace. If the run was too short for it, report that."""
        self.profiler.stop()
        if not self.written:
            emit("note", text="no trace: the run ended in its warm-up")

    def _write(self, profiler: profile) -> None:
        self.written = True
        try:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "trace.json.gz")
                profiler.export_chrome_trace(str(file))
                self.folder.write(self.name, file.read_bytes())
            emit("note", text=f"trace of rank 0: {self.folder.shown}/{self.name}")
        except OSError as error:  # a full disk ends the run at its next checkpoint
            emit("note", text=f"no trace: {reason(error)}")


class Reduction:
    """Times how long each step waits for the reduction of the gradients after this rank has computed its own.

    DDP makes all ranks wait for the slowest, so their steps take equally long; the slowest waits least. DDP's own
    statistics (`_get_ddp_logging_data`) lack data and optimizer, and make the thread wait for the device before every
    step that they cover (pytorch: torch/csrc/distributed/c10d/reducer_cuda.cpp, read 2026-11).

    `waiting_s` stays empty without DDP, and if it broadcasts buffers (batch norm): ranks wait there, too.
    """

    def __init__(self, timer: Timer, model: nn.Module) -> None:
        self.timer = timer
        self.waiting_s: list[float] = []
        self.marks: list[tuple[Any, Any]] = []
        parallel: Any = _parallel(model)  # untyped in torch
        self.known = parallel is not None and not parallel.will_sync_module_buffers()

    @contextmanager
    def watched(self, loss: torch.Tensor) -> Iterator[None]:
        """Mark the end of this rank's part of a backward pass of `loss`, and the end of the reduction.

        The engine calls callbacks after all gradients are computed, in the order in which they were queued, on the
        streams that called `backward` (pytorch: torch/csrc/autograd/engine.cpp, exec_post_processing, read 2026-11).
        This one is queued when the pass begins. DDP's, which waits for the reduction, is queued with the last bucket.
        """
        if not self.known:
            yield
            return
        engine: Any = torch.autograd.Variable._execution_engine  # untyped in torch
        computed: list[Any] = []
        mark = partial(engine.queue_callback, lambda: computed.append(self.timer.mark()))
        loss.register_hook(lambda _: mark())  # type: ignore[no-untyped-call]  # untyped in torch
        yield
        self.marks.append((computed[0], self.timer.mark()))

    def settle(self) -> None:
        """Convert marks to seconds, as `Timer.settle`."""
        self.waiting_s += [self.timer.seconds(before, after) for before, after in self.marks]
        self.marks.clear()


def measure(
    model: nn.Module, loss: Callable[[], torch.Tensor], place: TrainerRank, passes: int
) -> Communication | None:
    """Time forward and backward passes alternately with and without the reduction of the gradients, without an update.

    Their difference is the exposed communication. One more pass of each kind warms up. Returns None without DDP. Call
    it after the last step, so that nothing of the run depends on it.
    """
    parallel = _parallel(model)
    if parallel is None:
        return None
    times: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * (passes + 1)):
        reduced = number % 2 == 0
        model.zero_grad(set_to_none=True)
        place.most(0.0)  # all ranks begin together
        began = time.perf_counter()
        with nullcontext() if reduced else parallel.no_sync():
            torch.autograd.backward(loss())
        place.synchronize()
        times[reduced].append(time.perf_counter() - began)
    model.zero_grad(set_to_none=True)
    by_rank = place.gather(times)
    return communication([of[True] for of in by_rank], [of[False] for of in by_rank])


def seed_everything(seed: int, step: int, rank: int) -> None:
    """Seed every generator by (seed, step, rank) alone. Takes about 50 µs."""
    value = int(np.random.SeedSequence([seed, step, rank]).generate_state(1)[0])
    random.seed(value)
    np.random.seed(value)
    torch.manual_seed(value)  # the CUDA generators, too


def _parallel(model: nn.Module) -> DistributedDataParallel | None:
    return next((part for part in model.modules() if isinstance(part, DistributedDataParallel)), None)


def _as_parameter(value: Any, parameter: torch.Tensor) -> Any:
    """Return a value of a parameter's state, sharded like the parameter. Each rank has all of it: none communicates."""
    if not isinstance(parameter, DTensor) or not isinstance(value, torch.Tensor) or value.shape != parameter.shape:
        return value
    value = value.to(parameter.device)
    return distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)


def _copied(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if leaf.device.type == "cpu":
        return leaf.detach().clone()
    # Pinned memory: the copy runs at the bus's full speed and asynchronously.
    room = torch.empty_like(leaf, device="cpu", pin_memory=True)
    return room.copy_(leaf.detach(), non_blocking=True)
