"""One attempt of a training run on one rank: its steps, its checks of the loss, its record.

A resumed run ends bit for bit like an uninterrupted one on the same number of ranks: data and generators are functions
of the step. Two passes without an update precede the first step of every start: they compile the model, and let DDP
find its order of buckets (gradients are summed bucket by bucket, so another order would round differently).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from workloads.exits import Exit, WorkloadError
from workloads.hardware.gpu import GpuWatch
from workloads.results.events import emit
from workloads.train import task
from workloads.train.checkpoints import RunFolder, label_of
from workloads.train.data.feed import Feed
from workloads.train.data.source import Batch, RankShare
from workloads.train.faults import Faults
from workloads.train.figures import AttemptTimes, RankTimes, fields
from workloads.train.journal import Attempt, Journal, Span
from workloads.train.logs import Logs
from workloads.train.options import ConvNeXtOptions, TrainRunOptions
from workloads.train.place import Leave, TrainerRank, Watch
from workloads.train.result import Communication, Record, TrainWorker
from workloads.train.shards import Found, Writer
from workloads.train.state import Reduction, Timer, Trace, TrainState, measure, seed_everything
from workloads.train.task import Task
from workloads.train.timeline import Clock

NO_EVALUATION = ("epoch", "step", "loss", "seconds", "images", "tokens")
PASSES = 2
"""Passes before the first step: DDP finds its order in the first one and uses it in the second."""


class TrainRun:
    """One attempt: a model with its state, its data, its journal.

    The constructor does not communicate, so a single rank may fail in it. `build` and all later methods are collective.
    """

    def __init__(
        self, spec: TrainRunOptions, place: TrainerRank, clock: Clock, folder: RunFolder, found: Found
    ) -> None:
        self.spec, self.place, self.clock, self.skipped = spec, place, clock, found.skipped
        device, batch = place.device, spec.global_batch
        self.faults = Faults(spec.inject_fault, place.rank, folder)
        self.folder = self.faults.folder
        if batch < place.world:
            raise WorkloadError(
                f"a batch of {batch} has no share for each of {place.world} workers: use fewer workers, or a larger"
                " batch"
            )
        self.task: Task = task.load(spec)
        self.epoch_steps = self.task.data.order(batch, spec.seed).epoch_steps
        if spec.steps is None and spec.epochs is None:
            raise WorkloadError("the length of the run is unknown: set --steps or --epochs")
        self.steps = spec.steps or (spec.epochs or 0) * self.epoch_steps
        self.evaluate_every = spec.evaluate_every or self.epoch_steps
        self.identity = {"seed": spec.seed, "batch": batch, **self.task.identity}

        seed_everything(spec.seed, 0, 0)  # the same weights on every rank
        self.model = self.task.model(device)
        self.state = TrainState(self.model, spec.ema)
        self.saved = found.state
        if self.saved is not None:
            self.state.load_model(self.saved, self.identity)
        self.progress = self.state.progress
        self.first_step = self.progress.step
        self.resumed_at = None if found.state is None else self.first_step
        self.share = RankShare(place.rank, place.world, self.first_step, self.steps, batch, spec.seed)
        # Weight of this rank by its rows, because DDP computes the plain mean over ranks.
        self.weight = self.share.local * place.world / batch

        self.total = torch.zeros((), dtype=torch.float64, device=device)
        self.looked_at = self.first_step
        self.reported = 0.0
        self.compared = 0
        self.error: tuple[str, Exit] | None = None
        self.leaving: Leave | None = None
        self.unwritten = False
        self.timer = Timer(device)
        self.gpus = GpuWatch(place.gpu_properties)
        self.watch = Watch(place, clock.submitted, spec.max_run, spec.name)
        attempt = Attempt(clock.submitted, clock.worker, place.world, self.first_step, time.time())
        self.journal = Journal(folder, attempt) if place.rank == 0 else None
        self.logs = Logs(spec, folder.path if place.rank == 0 else None)
        self.warm_up = spec.warm_up + (Trace.AFFECTED if spec.profile else 0)
        self.trace: Trace | None = None

    def build(self) -> None:
        """Wrap the model, and create the parts that need the wrapped model or other ranks."""
        # Its own group: a thread uses it, while training uses the other one, which has no CPU backend with NCCL.
        group: Any = dist.new_group(backend="gloo") if dist.is_initialized() else None
        self.writer = Writer(self.folder, self.spec.name, self.spec.keep, group, self.skipped)
        self.wrapped = self.task.prepare(self.model, self.place.device)
        self.reduction = Reduction(self.timer, self.wrapped)
        self.state.optimizer = self.task.optimizer(self.model)
        self.state.schedule = self.task.schedule(self.state.optimizer, self.epoch_steps)
        if self.saved is not None:
            self.state.load_optimizer(self.saved)
            self.saved = None
        self.feed = self._feed(self.share)
        self.clock.restored = time.time()

    def go(self) -> None:
        """Run the remaining steps, or those until something ends the run."""
        for _ in self.train():
            pass
        self._end()

    def train(self) -> Iterator[int]:
        """Yield the number of each step after it: the loop of `go`, one step at a time."""
        if self.place.rank == 0:
            epochs = self.steps // self.epoch_steps
            done, world = self.first_step // self.epoch_steps, self.place.world
            for label, why in self.skipped.items():
                emit("note", text=f"checkpoint {label} is skipped: {why}")
            emit("plan", steps=self.steps, step=self.first_step, epochs=epochs, done=done, workers=world)
        if self.first_step < self.steps:
            self._pass_without_update()
        self._note()
        self.wrapped.train()
        if self.spec.profile and self.place.rank == 0:
            self.trace = Trace(self.folder, self.place.device, self.first_step, self.spec.warm_up)
        self.gpus.start()
        self.timer.start()
        for step in range(self.first_step, self.steps):
            self._step(step)
            if step == self.first_step:
                self._settle()
                self.clock.first_step = time.time()
            if self._at_look(step + 1):
                self._look(step + 1)
            yield step
            if self.error or self.leaving or self.unwritten:
                break

    def _step(self, step: int) -> None:
        """Train on one batch."""
        self.faults.before_step(step, self.writer.wait)
        batch = next(self.feed)
        seed_everything(self.spec.seed, step, self.place.rank)
        loss = self.faults.loss(self.loss(batch), step)
        with self.reduction.watched(loss):
            torch.autograd.backward(loss)
        if self.spec.check_gradients and self._at_look(step + 1):
            self._compare_gradients(step)
        self.state.optimizer.step()
        self.state.schedule.step()
        self.state.optimizer.zero_grad(set_to_none=True)
        if self.state.average is not None:
            self.state.average.update_parameters(self.model)
        self.total += loss.detach()
        self.progress.step = step + 1
        if self.trace:
            self.trace.step()
        self.timer.step(self.feed.wait_s, self.feed.arrived)

    def _feed(self, share: RankShare) -> Feed:
        device = self.place.device
        return Feed(self.task.data.batches(share, device), device, self.task.memory_format)

    def loss(self, batch: Batch) -> torch.Tensor:
        """Return the loss of this rank's share, weighted by its rows."""
        loss = self.task.loss(self.wrapped, batch)
        return loss if self.weight == 1 else loss * self.weight

    def _pass_without_update(self) -> None:
        """Compile, and let DDP find its buckets, on the first batch, which the first step then trains on."""
        batch = self.feed.peek()
        buffers = [buffer.clone() for buffer in self.model.buffers()]
        self.wrapped.train()
        for _ in range(PASSES):
            seed_everything(self.spec.seed, self.first_step, self.place.rank)
            torch.autograd.backward(self.loss(batch))
            self.state.optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for buffer, before in zip(self.model.buffers(), buffers, strict=True):
                buffer.copy_(before)
        self.place.synchronize()
        self.clock.compiled = time.time()

    def _at_look(self, step: int) -> bool:
        return step % self.spec.look_every == 0 or self._label(step) is not None

    def _label(self, step: int) -> str | None:
        """Return the name of the checkpoint that is due after `step` steps, or None."""
        every = self.spec.checkpoint_every or self.evaluate_every
        return label_of(step) if step == self.steps or step % self.evaluate_every == 0 or step % every == 0 else None

    def _look(self, step: int) -> None:
        """Sum the losses over ranks and agree how to continue: the only place where ranks wait for their devices."""
        label = self._label(step)
        sound = self.state.finite() if label else torch.ones((), dtype=torch.bool, device=self.place.device)
        flags = torch.tensor([float(self.writer.error is not None), *self.watch.flags()], dtype=torch.float64)
        values = torch.cat([torch.stack([self.total, (~sound).double()]), flags.to(self.place.device)])
        total, unsound, unwritten, time_is_up, ask = self.place.sums(values)
        steps, self.looked_at = step - self.looked_at, step
        self.total.zero_()
        self._settle()
        loss = total / self.place.world / steps
        if unsound or loss - loss != 0:
            self.error = (self._unsound(step, steps, loss), Exit.ERROR)
            return
        self.progress.losses.append((step, loss))
        self.progress.epoch_loss += total / self.place.world
        self.progress.epoch_steps += steps
        self.unwritten = bool(unwritten)
        if self.unwritten or self.error:
            return  # _end reports the error
        self._note(due=label is not None)
        seconds = sum(self.timer.step_s[-steps:]) / steps
        rate = float(self.state.schedule.get_last_lr()[0])
        self.logs.write(step, {"loss": loss, "learning_rate": rate, "step_s": seconds})
        if self.place.rank == 0 and time.time() - self.reported >= 1:
            self.reported = time.time()
            emit("look", step=step, steps=self.steps, loss=loss, seconds=seconds)
        if step % self.evaluate_every == 0:
            self._evaluate(step)
        self.leaving = self.watch.leave(time_is_up, ask) if step < self.steps else None
        if label is None and self.leaving is not None:
            label = label_of(step)
        if label is not None:
            self._checkpoint(label)

    def _evaluate(self, step: int) -> None:
        with self.timer.pause("evaluation"):
            figures = self.task.evaluate(self.state.evaluated.eval(), self.place.device)
            self.wrapped.train()
        steps = min(self.evaluate_every, step - self.first_step)
        row = {
            "epoch": step // self.epoch_steps,
            "step": step,
            "loss": self.progress.epoch_loss / self.progress.epoch_steps,
            **figures,
            "seconds": self.place.most(sum(self.timer.step_s[-steps:])),
            self.task.unit: steps * self.spec.global_batch * self.task.units,
        }
        self.progress.epoch_loss, self.progress.epoch_steps = 0.0, 0
        self.progress.history.append(row)
        self.place.report(row)
        self.logs.write(step, {f"epoch/{name}": value for name, value in row.items()})
        if self.place.rank == 0:
            emit("epoch", **row)

    def _checkpoint(self, label: str) -> None:
        """Copy the state and continue; a thread writes this rank's share of the copy."""
        with self.timer.pause("checkpoint"):
            copied = self.state.snapshot(self.identity, whole=self.place.rank == 0)
            self.writer.save(label, copied)

    def _end(self) -> None:
        """Wait for the checkpoint, and share the error of a rank that could not write it."""
        with self.timer.pause("checkpoint"):
            self.writer.wait()
        unwritten = [text for text in self.place.gather(self.writer.error) if text]
        if unwritten and self.error is None:
            self.error = (unwritten[0], Exit.ERROR)
            self.leaving = None
        self._settle()
        if self.trace:
            self.trace.close()
        self.logs.close()
        if self.journal:
            self.journal.attempt.ended = "error" if self.error else "stopped" if self.leaving else "finished"
        self._note(now=True)

    def _settle(self) -> None:
        self.place.synchronize()
        self.timer.settle()
        self.reduction.settle()

    def _note(self, due: bool = False, now: bool = False) -> None:
        """Write rank 0's progress to the journal."""
        if self.journal is None:
            return
        attempt = self.journal.attempt
        attempt.ready = attempt.ready or time.time()
        before = attempt.spans[-1].end if attempt.spans else self.first_step
        if (steps := self.first_step + len(self.timer.step_s) - before) > 0:
            seconds, waits = sum(self.timer.step_s[-steps:]), sum(self.timer.wait_s[-steps:])
            attempt.spans.append(Span(before, before + steps, seconds, waits))
        attempt.pauses = dict(self.timer.pauses)
        self.journal.note(due=due, now=now)

    def _compare_gradients(self, step: int) -> None:
        """Compare the bits of every gradient: after the reduction they are equal on all ranks."""
        self.faults.gradients(self.model)
        named = [(name, p.grad) for name, p in self.model.named_parameters() if p.grad is not None]
        sums = [
            gradient.detach().float().contiguous().view(torch.int32).sum(dtype=torch.int64) for _, gradient in named
        ]
        differing = self.place.differing(torch.stack(sums))
        self.compared += 1
        if differing:
            names = ", ".join(named[index][0] for index in differing[:3])
            what = f"the gradients of {len(differing)} parameters ({names}, …) differ between ranks at step {step}"
            why = "a reduction delivered wrong numbers, or the ranks do not run the same model"
            self.error = (f"{what}: {why}", Exit.WRONG_DATA)

    def record(self) -> Record:
        """Return the record of the run. Every rank calls it; only rank 0's clock counts."""
        place, spec, history = self.place, self.spec, self.progress.history
        health = self.gpus.finish()
        device, host, gpu, memory = str(place.device), socket.gethostname(), None, None
        if place.device.type == "cuda":
            gpu, memory = torch.cuda.get_device_name(place.device), torch.cuda.max_memory_allocated(place.device)
        worker = TrainWorker(
            rank=place.rank, host=host, node_id=place.node_id, device=device, gpu=gpu, rows=self.share.local,
            health=health[0] if health else None, missing=self.gpus.missing or None,
        )  # fmt: skip
        times = RankTimes(
            worker=worker, step_s=self.timer.step_s, wait_s=self.timer.wait_s, waiting_s=self.reduction.waiting_s,
            peak_memory=memory,
        )  # fmt: skip
        measured = AttemptTimes(
            clock=self.clock,
            ranks=place.gather(times),
            batch=spec.global_batch,
            first_step=self.first_step,
            warm_up=self.warm_up,
            losses=self.progress.losses,
            unit=self.task.unit,
            units=self.task.units,
            flops_per_sample=self.task.flops_per_sample,
            communication=self._probe() if spec.probe and not self.error and not self.leaving else None,
            single=spec.single if isinstance(spec, ConvNeXtOptions) else None,
        )
        last = history[-1] if history else {}
        evaluation = {name: value for name, value in last.items() if name not in NO_EVALUATION}
        resumed = self.resumed_at
        return Record(
            world=place.world,
            device=device,
            batch=spec.global_batch,
            steps=self.steps,
            step=self.progress.step,
            epoch_steps=self.epoch_steps,
            resumed_at=resumed,
            resumed_from=resumed // self.epoch_steps if resumed is not None else None,
            skipped=self.skipped or None,
            stopped=self.leaving.reason if self.leaving else None,
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            accuracy=evaluation.get("accuracy"),
            evaluation=evaluation or None,
            epochs=history,
            gradients_equal=self.compared if spec.check_gradients else None,
            task=self.task.report(),
            preempted=self.leaving.preempted if self.leaving else False,
            error=self.error[0] if self.error else None,
            code=int(self.error[1] if self.error else Exit.OK),
            **fields(measured),
        )

    def _probe(self) -> Communication | None:
        """Probe the run's first batch. The peak memory was read before."""
        share = replace(self.share, first_step=0, steps=1)
        batch = next(self._feed(share))
        return measure(self.wrapped, lambda: self.loss(batch), self.place, self.spec.probe)

    def _unsound(self, step: int, steps: int, loss: float) -> str:
        what = f"the loss is {loss}" if loss - loss != 0 else "weights or the optimizer's state are NaN or infinite"
        where = f"in steps {step - steps} … {step - 1}"
        self.writer.wait()  # the last one may still be written
        good = self.writer.good()
        rest = (
            f"the last good checkpoint is {good}: continue with --resume {self.spec.name} and other settings"
            if good
            else "no checkpoint was written yet: start again"
        )
        return f"{what} {where}: none of these steps is kept; try a lower learning rate or a higher precision; {rest}"
