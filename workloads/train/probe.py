"""How much of a pass is communication that nothing hides: passes with the gradients' reduction and without it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from workloads.train.place import Place
from workloads.train.records import Probe


def measure(model: nn.Module, loss: Callable[[], torch.Tensor], place: Place, passes: int) -> Probe | None:
    """Forward and backward passes of both kinds by turns, without an update; None where nothing is reduced."""
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
    return {"with_s": [of[True] for of in by_rank], "without_s": [of[False] for of in by_rank]}
