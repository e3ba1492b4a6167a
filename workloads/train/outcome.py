"""What a run hands back: the record of one that ended, and of one that could not begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from workloads.exits import Exit
from workloads.train import probe
from workloads.train.place import Place
from workloads.train.records import Clock, Probe, RankRecord, Record
from workloads.train.spec import Spec
from workloads.train.task import Share

if TYPE_CHECKING:
    from workloads.train.trainer import Run

NO_EVALUATION = ("epoch", "loss", "seconds", "images")


def record(run: Run) -> Record:
    """What this attempt was and did. Called on every rank; only rank 0's clock counts."""
    place, plan = run.place, run.plan
    last = run.progress.history[-1] if run.progress.history else {}
    own: RankRecord = {
        "rank": place.rank,
        "host": place.host,
        "node_id": place.node_id,
        "device": str(place.device),
        "gpu": place.gpu,
        "rows": run.share.local,
        "first_step": run.first_step,
        "warm_up": plan.warm_up,
        "step_s": run.timer.step_s,
        "wait_s": run.timer.wait_s,
        "peak_memory": torch.cuda.max_memory_allocated(place.device) if place.device.type == "cuda" else None,
    }
    return {
        "world": place.world,
        "device": str(place.device),
        "batch": plan.batch,
        "steps": run.steps,
        "step": run.progress.step,
        "epoch_steps": run.epoch_steps,
        "resumed_from": run.resumed_from,
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
        "flops_per_sample": run.task.flops_per_sample,
        "losses": run.progress.losses,
        "history": run.progress.history,
        "evaluation": {name: value for name, value in last.items() if name not in NO_EVALUATION},
        "gradients": run.compared if plan.check_gradients else None,
        "ranks": place.gather(own),
        "probe": _probe(run) if plan.probe and not run.error and not run.leaving else None,
        "clock": run.clock,
        "task": run.task.report(),
        "stopped": run.leaving.reason if run.leaving else None,
        "preempted": run.leaving.preempted if run.leaving else False,
        "error": run.error[0] if run.error else None,
        "code": int(run.error[1] if run.error else Exit.OK),
    }


def _probe(run: Run) -> Probe | None:
    """On the run's first batch; peak memory was read before."""
    share = Share(run.place.rank, run.place.world, 0, 1, run.plan.batch, run.plan.seed)
    batch = next(iter(run.task.batches(share, run.place.device)))
    return probe.measure(run.wrapped, lambda: run.loss(batch), run.place, run.plan.probe)


def not_begun(spec: Spec, place: Place, clock: Clock, error: str) -> Record:
    """The record of a run that could not begin."""
    return {
        "world": place.world,
        "device": str(place.device),
        "batch": spec.plan.batch,
        "steps": 0,
        "step": 0,
        "epoch_steps": None,
        "resumed_from": None,
        "parameters": 0,
        "flops_per_sample": None,
        "losses": [],
        "history": [],
        "evaluation": {},
        "gradients": None,
        "ranks": [],
        "probe": None,
        "clock": clock,
        "task": {},
        "stopped": None,
        "preempted": False,
        "error": error,
        "code": int(Exit.ERROR),
    }
