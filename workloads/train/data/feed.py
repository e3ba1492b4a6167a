"""Batches of a source on the device, and the time that the loop waited for the source."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

from workloads.train.data.source import Batch

# ImageNet's, by channel, on a scale from 0 to 1: torchvision's models and the published trainer use them.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


class Feed:
    """Batches on the device. Images of bytes are copied as bytes, and normalized there like ToTensor and Normalize.

    `wait_s` is the time that the thread waited for the source alone to return the last batch. `arrived` is an event on
    CUDA, queued when the batch came: it passes at once if the device had nothing to do, and otherwise with the previous
    step. `Timer` thus leaves out what the device computed meanwhile. None if nothing was copied.
    """

    def __init__(self, batches: Iterator[Batch], device: torch.device, memory_format: torch.memory_format) -> None:
        self.batches, self.device, self.memory_format = batches, device, memory_format
        # Once, because each of these copies waits for the device.
        self.mean, self.std = (torch.tensor(of).view(3, 1, 1).to(device) for of in (MEAN, STD))
        self.arrived: Any = None
        self.wait_s = 0.0
        self._next: Batch | None = None

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        self.arrived = None
        if (batch := self._next) is not None:
            self._next, self.wait_s = None, 0.0
            return batch
        began = time.perf_counter()
        images, labels = next(self.batches)
        self.wait_s = time.perf_counter() - began
        if self.device.type == "cuda" and images.device.type == "cpu":
            event: Any = torch.cuda.Event  # untyped in torch
            self.arrived = event(enable_timing=True)
            self.arrived.record()
            # A copy from other than pinned memory waits for the device.
            images, labels = (part if part.is_pinned() else part.pin_memory() for part in (images, labels))
            images, labels = (part.to(self.device, non_blocking=True) for part in (images, labels))
        images = images.contiguous(memory_format=self.memory_format)
        if images.dtype == torch.uint8:
            images = images.float().div_(255).sub_(self.mean).div_(self.std)  # bit for bit as torchvision's transforms
        return images, labels

    def peek(self) -> Batch:
        """Return the next batch, which the next call of `next` returns again. The wait for it does not count toward a
        step."""
        self._next = next(self)
        return self._next
