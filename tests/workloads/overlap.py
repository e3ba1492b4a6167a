"""Measure whether DDP reduces gradients while the backward pass still computes: when it starts to reduce each bucket.

A compiled model without Dynamo's DDP optimizer returns all gradients at the end of its one backward graph, and the
all-reduce then adds its whole time to the step. No error shows it; these times do.
"""

# No `from __future__ import annotations`: DDP requires types, not strings, as the hook's annotations.
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # public, yet not among its typed exports
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from workloads.exits import WorkloadError

# Half of the gradients must be ready before this share of the pass. With overlap, three of four buckets were ready at
# 0.55 of it; without, the first at 0.66 to 0.99, later in longer passes (torch 2.15, CPU, gloo).
LATE = 0.6


@dataclass(frozen=True)
class Backward:
    """One backward pass: `fired` is (share of the pass, 0 … 1, bytes) of each bucket, in order; seconds in all."""

    seconds: float
    fired: list[tuple[float, int]]

    @property
    def early(self) -> float:
        """Share of the gradients' bytes that were ready before LATE."""
        return sum(size for share, size in self.fired if share < LATE) / sum(size for _, size in self.fired)


@dataclass
class Watch:
    """Records every bucket. It occupies DDP's only hook and costs time in each pass."""

    marks: list[tuple[Any, int]] = field(default_factory=list)
    cuda: bool = False

    def now(self) -> Any:
        """Return a point in the device's time."""
        if not self.cuda:
            return time.perf_counter()
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def hook(self, group: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Reduce a bucket like DDP, and record its time and bytes."""
        buffer = bucket.buffer()
        self.marks.append((self.now(), buffer.numel() * buffer.element_size()))
        return allreduce_hook(group, bucket)

    def backward(self, loss: torch.Tensor) -> Backward:
        """Run and time the backward pass of this loss."""
        self.marks.clear()
        began = self.now()
        torch.autograd.backward(loss)
        ended = self.now()
        if self.cuda:
            torch.cuda.synchronize()
        seconds = _between(began, ended)
        return Backward(seconds, [(_between(began, mark) / seconds, size) for mark, size in self.marks])


def watch(model: nn.Module, device: torch.device) -> Watch:
    """Register the watch on a DDP model without a hook (compress=none)."""
    if not isinstance(model, DistributedDataParallel):
        raise WorkloadError("overlap: the model is not in DistributedDataParallel, so no gradients are reduced")
    found = Watch(cuda=device.type == "cuda")
    model.register_comm_hook(None, found.hook)
    return found


def check(passes: list[Backward]) -> float:
    """Return the median share of early gradients. WorkloadError if there is no overlap.

    Leave out the first three passes: a static graph holds all buckets back, and the times include compilation.
    """
    shares = sorted(one.early for one in passes)
    share = shares[len(shares) // 2]
    buckets = len(passes[-1].fired)
    if buckets < 2:
        raise WorkloadError(f"overlap: {buckets} bucket holds all gradients; lower bucket_mb (at least 1)")
    if share < 0.5:
        raise WorkloadError(
            f"overlap: {share:.0%} of the gradients left before {LATE:.0%} of the backward pass, at least 50% expected;"
            " keep optimize_ddp on, or use compile=blocks"
        )
    return share


def _between(first: Any, second: Any) -> float:
    """Return the seconds between two marks."""
    return float(first.elapsed_time(second) / 1e3 if isinstance(first, torch.cuda.Event) else second - first)
