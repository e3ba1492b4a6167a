"""Which items are in which global batch: a pure function of the seed and the step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workloads.exits import WorkloadError


def epoch_steps(items: int, batch: int) -> int:
    """Steps of one pass: full batches only, so that every step weighs the same; the rest is left out of that pass."""
    if batch > items:
        raise WorkloadError(
            f"a batch of {batch} images over all workers: the data set has {items}; use a smaller --batch or fewer"
            " --workers"
        )
    return items // batch


class Order:
    """The items of each global batch. With `shuffle`, every epoch has its own order, drawn from (seed, epoch)."""

    def __init__(self, items: int, batch: int, seed: int, *, shuffle: bool) -> None:
        self.items, self.batch, self.seed, self.shuffle = items, batch, seed, shuffle
        self.epoch_steps = epoch_steps(items, batch)
        self._drawn: tuple[int, NDArray[np.int64]] | None = None

    def epoch(self, step: int) -> int:
        return step // self.epoch_steps

    def rows(self, step: int) -> NDArray[np.int64]:
        """The items [batch] of global batch number `step`, counted from 0 over the whole run."""
        begin = step % self.epoch_steps * self.batch
        if not self.shuffle:
            return np.arange(begin, begin + self.batch, dtype=np.int64)
        return self._order(self.epoch(step))[begin : begin + self.batch]

    def _order(self, epoch: int) -> NDArray[np.int64]:
        # Kept: a permutation of a million takes as long as a step, and an epoch needs it in each.
        if self._drawn is None or self._drawn[0] != epoch:
            self._drawn = (epoch, np.random.default_rng([self.seed, epoch]).permutation(self.items))
        return self._drawn[1]
