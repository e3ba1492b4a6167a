"""Whether the gradients travel while the backward pass still computes: when DDP hands over each of its buckets.

A compiled model without Dynamo's DDP optimiser gives all its gradients at the end of its one backward graph, and the
all-reduce, fast as it may be, then adds its whole time to the step. No error shows it; these times do.
"""

# No `from __future__ import annotations`: DDP looks at the hook's annotations, and knows them as types only.
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # public, yet not among its typed exports
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from workloads.exits import WorkloadError

# Half of the gradients are to have left before this share of the pass. With overlap three of four buckets had come by
# 0.55 of it; without, the first came at 0.66 to 0.99, the later the longer the pass (torch 2.15, CPU, gloo).
LATE = 0.6


@dataclass(frozen=True)
class Backward:
    """One backward pass: `fired` is (share of the pass, 0 … 1, bytes) of each bucket, in order; seconds in all."""

    seconds: float
    fired: list[tuple[float, int]]

    @property
    def early(self) -> float:
        """The share of the gradients' bytes handed over before the pass was LATE."""
        return sum(size for share, size in self.fired if share < LATE) / sum(size for _, size in self.fired)


@dataclass
class Watch:
    """Hears of every bucket. Only for a check: it takes DDP's place for a hook, and Python's time in each pass."""

    marks: list[tuple[Any, int]] = field(default_factory=list)
    cuda: bool = False

    def now(self) -> Any:
        """A point in the device's time."""
        if not self.cuda:
            return time.perf_counter()
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def hook(self, group: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """DDP's own all-reduce, with the time and the bytes of the bucket noted."""
        buffer = bucket.buffer()
        self.marks.append((self.now(), buffer.numel() * buffer.element_size()))
        return allreduce_hook(group, bucket)

    def backward(self, loss: torch.Tensor) -> Backward:
        """The backward pass of this loss, timed."""
        self.marks.clear()
        began = self.now()
        torch.autograd.backward(loss)
        ended = self.now()
        if self.cuda:
            torch.cuda.synchronize()
        seconds = _between(began, ended)
        return Backward(seconds, [(_between(began, mark) / seconds, size) for mark, size in self.marks])


def watch(model: nn.Module, device: torch.device) -> Watch:
    """Register the watch on a DDP model that has no hook yet (settings.compress "none")."""
    if not isinstance(model, DistributedDataParallel):
        raise WorkloadError("overlap: the model is not in DistributedDataParallel, so no gradients travel")
    found = Watch(cuda=device.type == "cuda")
    model.register_comm_hook(None, found.hook)
    return found


def check(passes: list[Backward]) -> float:
    """The median share of gradients that went early; WorkloadError where there is no overlap to speak of.

    Give passes after the third step: until then a static graph holds all buckets back, and compilation is in the times.
    """
    shares = sorted(one.early for one in passes)
    share = shares[len(shares) // 2]
    buckets = len(passes[-1].fired)
    if buckets < 2:
        raise WorkloadError(f"overlap: {buckets} bucket holds all gradients; lower --bucket-mb (at least 1)")
    if share < 0.5:
        raise WorkloadError(
            f"overlap: {share:.0%} of the gradients left before {LATE:.0%} of the backward pass, at least 50% expected;"
            " keep --optimize-ddp on, or use --compile blocks"
        )
    return share


def _between(first: Any, second: Any) -> float:
    """Seconds from one mark to another."""
    return float(first.elapsed_time(second) / 1e3 if isinstance(first, torch.cuda.Event) else second - first)
