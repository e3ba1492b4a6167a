"""The training loop that every worker runs, the same for every task.

Bit for bit the same after an interruption, on as many ranks: data and generators are functions of the step, and two
passes without an update come before the first step of every start, in which DDP finds its order of buckets (gradients
are summed bucket by bucket, so another order would be another rounding) and the model is compiled.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator
from typing import Any

import torch

from workloads.events import emit
from workloads.exits import Exit, WorkloadError
from workloads.train import journal, outcome, task
from workloads.train.checkpoints import Folder, Writer
from workloads.train.conclude import metrics
from workloads.train.faults import Faults
from workloads.train.journal import Attempt, Journal, Span
from workloads.train.place import Place, in_ray_train
from workloads.train.records import Clock, Record
from workloads.train.spec import Spec
from workloads.train.state import TrainState, seed_everything
from workloads.train.survival import Leave, Watch
from workloads.train.task import Batch, Share, Task
from workloads.train.timer import Timer

PASSES = 2
"""Before the first step: DDP learns its order from the first pass and takes it at the second."""


def train_loop(settings: dict[str, Any]) -> Record:
    """What Ray Train runs on every worker: `settings` are {spec (JSON), submitted, driver}. Rank 0's return counts."""
    logging.getLogger("ray.train").setLevel(logging.WARNING)  # else every rank tells of every report
    place = in_ray_train()
    return train(Spec.from_json(settings["spec"]), place, settings["submitted"], settings["driver"])


def train(spec: Spec, place: Place, submitted: float, driver: float) -> Record:
    """Train on this rank until the plan's end, or until something stops it: what it was and did, the same on all ranks.

    What is wrong with the request, the data, the loss or the storage is told in the record, for it would be wrong
    again: only what a new start may mend is raised.
    """
    if place.device.type == "cpu":
        torch.set_num_threads(1)  # a worker has one CPU; a thread pool each would make them fight over it
    clock: Clock = {
        "submitted": submitted, "driver": driver, "worker": time.time(), "restored": 0.0,
        "compiled": None, "first_step": None, "trained": None,
    }  # fmt: skip
    run, broken = None, ""
    try:
        run = Run(spec, place, clock)
    except WorkloadError as error:
        broken = str(error)
    # One rank's trouble (a node without the data) is everybody's: nobody may wait for a rank that has left.
    texts, steps = zip(*place.gather((broken, run.first_step if run else 0)), strict=True)
    troubles = [(rank, text) for rank, text in enumerate(texts) if text]
    if run is None or troubles:
        rank, text = troubles[0]
        alone = f"rank {rank} on {place.gather(place.host)[rank]}: " if len(troubles) < place.world else ""
        return outcome.not_begun(spec, place, clock, alone + text)
    if len(set(steps)) > 1:
        apart = f"ranks found checkpoints at different steps in {spec.storage}: name a folder that all nodes see"
        return outcome.not_begun(spec, place, clock, f"{apart}, by --checkpoint-dir")
    try:
        run.build()
        run.go()
        found = outcome.record(run)
        place.report(metrics(found))
        return found
    except WorkloadError as error:
        # The other ranks may be waiting for this one: only its end ends them. The next start finds the note.
        journal.doom(run.folder, submitted, str(error))
        raise


class Run:
    """One attempt: a model with its state, its data, its journal. Made without a word to other ranks, so that each of
    them may find that it cannot begin; `build`, and all after it, is done by all of them together.
    """

    def __init__(self, spec: Spec, place: Place, clock: Clock) -> None:
        self.spec, self.plan, self.place, self.clock = spec, spec.plan, place, clock
        plan, device = self.plan, place.device
        folder = Folder(spec.storage, spec.name)
        if place.rank == 0:
            folder.check_writable()
        if (doomed := journal.doomed(folder, clock["submitted"])) is not None:
            raise WorkloadError(doomed)
        self.faults = Faults(plan.fault, place.rank, folder)
        self.folder = self.faults.folder
        if plan.batch < place.world:
            raise WorkloadError(
                f"a batch of {plan.batch} images cannot be cut into {place.world} shares: ask for fewer workers, or for"
                " a larger batch"
            )
        self.task: Task = task.load(spec.task, spec.config)
        self.task.check()
        self.epoch_steps = self.task.epoch_steps(plan.batch)
        self.steps = _steps(spec, self.epoch_steps)

        seed_everything(plan.seed, 0, 0)  # the same weights on every rank
        self.model = self.task.model(device)
        self.state = TrainState(self.model, plan.ema)
        found = folder.checkpoints()
        self.saved = folder.load(found[-1]) if found else None
        if self.saved is not None:
            self.state.load_model(self.saved, plan.seed, plan.batch)
        self.progress = self.state.progress
        self.first_step = self.progress.step
        self.resumed_from = self.first_step if found else None
        self.share = Share(place.rank, place.world, self.first_step, self.steps, plan.batch, plan.seed)
        # A rank with more rows than another counts for more: DDP takes the plain mean over ranks.
        self.weight = self.share.local * place.world / plan.batch

        self.total = torch.zeros((), dtype=torch.float64, device=device)
        self.looked_at = self.first_step
        self.told = 0.0
        self.compared = 0
        self.error: tuple[str, Exit] | None = None
        self.leaving: Leave | None = None
        self.unwritten = False
        self.timer = Timer(device)
        self.writer = Writer(self.folder, spec.name, plan.keep)
        self.watch = Watch(place, clock["submitted"], plan.max_run_s, spec.name)
        attempt = Attempt(clock["submitted"], clock["worker"], place.world, self.first_step, time.time())
        self.journal = Journal(folder, attempt) if place.rank == 0 else None

    def build(self) -> None:
        """Wrap the model, and make what needs it wrapped."""
        self.wrapped = self.task.prepare(self.model, self.place.device)
        self.state.optimizer = self.task.optimizer(self.model)
        self.state.schedule = self.task.schedule(self.state.optimizer, self.epoch_steps)
        if self.saved is not None:
            self.state.load_optimizer(self.saved)
            self.saved = None
        self.batches: Iterator[Batch] = iter(self.task.batches(self.share, self.place.device))
        self.clock["restored"] = time.time()

    def go(self) -> None:
        """All steps that are left, or those until something ends the run."""
        if self.place.rank == 0:
            emit("plan", steps=self.steps, step=self.first_step, epochs=_whole(self.steps, self.epoch_steps),
                 done=len(self.progress.history), workers=self.place.world)  # fmt: skip
        if self.first_step < self.steps:
            self._pass_without_update()
        self._note(ready=True)
        self.wrapped.train()
        self.timer.start()
        for step in range(self.first_step, self.steps):
            self._step(step)
            if step == self.first_step:
                self._settle()
                self.clock["first_step"] = time.time()
            if self._at_look(step + 1):
                self._look(step + 1)
            if self.error or self.leaving or self.unwritten:
                break
        self._end()

    def _step(self, step: int) -> None:
        """One batch, one update."""
        began = time.perf_counter()
        self.faults.before_step(step)
        batch = next(self.batches)
        wait_s = time.perf_counter() - began
        seed_everything(self.plan.seed, step, self.place.rank)
        loss = self.faults.loss(self.loss(batch), step)
        torch.autograd.backward(loss)
        if self.plan.check_gradients and self._at_look(step + 1):
            self._compare_gradients(step)
        self.state.optimizer.step()
        self.state.schedule.step()
        self.state.optimizer.zero_grad(set_to_none=True)
        self.state.update_average()
        self.total += loss.detach()
        self.progress.step = step + 1
        self.timer.step(wait_s)

    def loss(self, batch: Batch) -> torch.Tensor:
        """The loss of this rank's share, weighted by its rows."""
        loss = self.task.loss(self.wrapped, batch)
        return loss if self.weight == 1 else loss * self.weight

    def _pass_without_update(self) -> None:
        """Compile, and let DDP find its buckets, on the first batch, which is then trained on as if it were new."""
        batch = next(self.batches)
        self.batches = itertools.chain([batch], self.batches)
        buffers = [buffer.clone() for buffer in self.model.buffers()]
        self.wrapped.train()
        for _ in range(PASSES):
            seed_everything(self.plan.seed, self.first_step, self.place.rank)
            torch.autograd.backward(self.loss(batch))
            self.state.optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for buffer, before in zip(self.model.buffers(), buffers, strict=True):
                buffer.copy_(before)
        if self.place.device.type == "cuda":
            torch.cuda.synchronize()
        self.clock["compiled"] = time.time()

    def _at_look(self, step: int) -> bool:
        return step % self.plan.look_every == 0 or self._label(step) is not None

    def _label(self, step: int) -> str | None:
        """The name of the checkpoint that is due after `step` steps."""
        if self.epoch_steps and step % self.epoch_steps == 0:
            return f"epoch-{step // self.epoch_steps:04}"
        every = self.plan.checkpoint_every
        return f"step-{step:09}" if step == self.steps or (every and step % every == 0) else None

    def _look(self, step: int) -> None:
        """The ranks add up their losses and agree how to go on: the only place where they wait for their devices."""
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
            return  # the end tells what it was
        self._note(due=label is not None)
        if self.place.rank == 0 and time.time() - self.told >= 1:
            self.told = time.time()
            emit("look", step=step, steps=self.steps, loss=loss, seconds=sum(self.timer.step_s[-steps:]) / steps)
        if self.epoch_steps and step % self.epoch_steps == 0:
            self._end_epoch(step)
        self.leaving = self.watch.leave(time_is_up, ask) if step < self.steps else None
        if label is None and self.leaving is not None:
            label = f"step-{step:09}"
        if label is not None:
            self._checkpoint(label)

    def _end_epoch(self, step: int) -> None:
        with self.timer.pause("evaluation"), self.state.averaged():
            self.model.eval()
            figures = self.task.evaluate(self.model, self.place.device)
            self.wrapped.train()
        assert self.epoch_steps is not None
        own = min(self.epoch_steps, step - self.first_step)
        row = {
            "epoch": step // self.epoch_steps,
            "loss": self.progress.epoch_loss / self.progress.epoch_steps,
            **figures,
            "seconds": self.place.most(sum(self.timer.step_s[-own:])),
            "images": own * self.plan.batch,
        }
        self.progress.epoch_loss, self.progress.epoch_steps = 0.0, 0
        self.progress.history.append(row)
        self.place.report(row)
        if self.place.rank == 0:
            emit("epoch", **row)

    def _checkpoint(self, label: str) -> None:
        """Copy the state and go on; it is written meanwhile."""
        with self.timer.pause("checkpoint"):
            if self.place.rank == 0:
                self.writer.save(label, self.state.snapshot(self.plan.seed, self.plan.batch, self.spec.config))

    def _end(self) -> None:
        """Wait for what is being written, and for the word of the rank that writes."""
        with self.timer.pause("checkpoint"):
            self.writer.wait()
        unwritten = [text for text in self.place.gather(self.writer.error) if text]
        if unwritten and self.error is None:
            self.error = (unwritten[0], Exit.ERROR)
            self.leaving = None
        self._settle()
        self.clock["trained"] = time.time()
        if self.journal:
            self.journal.attempt.ended = "error" if self.error else "stopped" if self.leaving else "finished"
        self._note(now=True)

    def _settle(self) -> None:
        if self.place.device.type == "cuda":
            torch.cuda.synchronize()
        self.timer.settle()

    def _note(self, ready: bool = False, due: bool = False, now: bool = False) -> None:
        """Rank 0 tells its journal how far it is."""
        if self.journal is None:
            return
        attempt = self.journal.attempt
        if ready:
            attempt.ready = time.time()
        before = attempt.spans[-1].end if attempt.spans else self.first_step
        if (steps := self.first_step + len(self.timer.step_s) - before) > 0:
            seconds, waits = sum(self.timer.step_s[-steps:]), sum(self.timer.wait_s[-steps:])
            attempt.spans.append(Span(before, before + steps, seconds, waits))
        attempt.pauses = dict(self.timer.pauses)
        self.journal.note(due=due, now=now)

    def _compare_gradients(self, step: int) -> None:
        """Every parameter's gradient, as the bits that it is: after the reduction all ranks hold the same."""
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

    def _unsound(self, step: int, steps: int, loss: float) -> str:
        what = f"the loss is {loss}" if loss - loss != 0 else "weights or the optimiser's state are NaN or infinite"
        where = f"in steps {step - steps} … {step - 1}"
        good = [found.label for found in self.folder.checkpoints()]
        rest = (
            f"the last good checkpoint is {good[-1]}: go on from it with --resume {self.spec.name} and other settings"
            if good
            else "no checkpoint was written yet: begin again"
        )
        return f"{what} {where}: nothing of it was kept; a lower learning rate or a higher precision helps; {rest}"


def _steps(spec: Spec, epoch_steps: int | None) -> int:
    """Where the run ends."""
    if spec.plan.steps is not None:
        return spec.plan.steps
    if spec.plan.epochs is None or epoch_steps is None:
        raise WorkloadError("how long to train? This data has no epochs: give --steps")
    return spec.plan.epochs * epoch_steps


def _whole(steps: int, epoch_steps: int | None) -> int | None:
    return steps // epoch_steps if epoch_steps else None
