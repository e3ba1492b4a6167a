"""Record of a run that ended, and the probe of its communication."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from workloads.exits import Exit
from workloads.train.place import Place
from workloads.train.result import Probe, RankRecord, Record, Worker
from workloads.train.task import Share

if TYPE_CHECKING:
    from workloads.train.trainer import Run

NO_EVALUATION = ("epoch", "loss", "seconds", "images")


def record(run: Run) -> Record:
    """Return what this attempt was and did. Every rank calls it; only rank 0's clock counts."""
    place, spec = run.place, run.spec
    own = RankRecord(
        worker=Worker(
            rank=place.rank,
            host=place.host,
            node_id=place.node_id,
            device=str(place.device),
            gpu=place.gpu,
            rows=run.share.local,
        ),
        first_step=run.first_step,
        warm_up=spec.warm_up,
        step_s=run.timer.step_s,
        wait_s=run.timer.wait_s,
        peak_memory=torch.cuda.max_memory_allocated(place.device) if place.device.type == "cuda" else None,
    )
    last = run.progress.history[-1] if run.progress.history else {}
    return Record(
        clock=run.clock,
        world=place.world,
        device=str(place.device),
        batch=spec.global_batch,
        steps=run.steps,
        step=run.progress.step,
        epoch_steps=run.epoch_steps,
        resumed_from=run.resumed_from,
        parameters=sum(parameter.numel() for parameter in run.model.parameters()),
        flops_per_sample=run.task.flops_per_sample,
        losses=run.progress.losses,
        history=run.progress.history,
        evaluation={name: value for name, value in last.items() if name not in NO_EVALUATION},
        gradients=run.compared if spec.check_gradients else None,
        ranks=place.gather(own),
        probe=_probe(run) if spec.probe and not run.error and not run.leaving else None,
        task=run.task.report(),
        stopped=run.leaving.reason if run.leaving else None,
        preempted=run.leaving.preempted if run.leaving else False,
        error=run.error[0] if run.error else None,
        code=int(run.error[1] if run.error else Exit.OK),
    )


def _probe(run: Run) -> Probe | None:
    """Probe the run's first batch. The peak memory was read before."""
    share = Share(run.place.rank, run.place.world, 0, 1, run.spec.global_batch, run.spec.seed)
    batch = next(iter(run.task.batches(share, run.place.device)))
    return measure(run.wrapped, lambda: run.loss(batch), run.place, run.spec.probe)


def measure(model: nn.Module, loss: Callable[[], torch.Tensor], place: Place, passes: int) -> Probe | None:
    """Time forward and backward passes alternately with and without the reduction of the gradients, without an update.

    Their difference is the communication that nothing hides. Returns None where nothing is reduced.
    """
    parallel = next((part for part in model.modules() if isinstance(part, DistributedDataParallel)), None)
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
        if place.device.type == "cuda":
            torch.cuda.synchronize()
        if number >= 2:  # the first of each kind warms up
            times[reduced].append(time.perf_counter() - began)
    model.zero_grad(set_to_none=True)
    by_rank = place.gather(times)
    return Probe(with_s=[of[True] for of in by_rank], without_s=[of[False] for of in by_rank])
