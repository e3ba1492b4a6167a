"""Batches of a source on the device, and the time that the loop waited for the source."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch

from workloads.train.data.source import Batch

# ImageNet's, by channel, on a scale from 0 to 1: torchvision's models and the published trainer use them.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


class Feed:
    """Batches on the device. Images of bytes are copied as bytes, and normalized there like ToTensor and Normalize.

    On CUDA, copy and normalization have a stream of their own, which does not wait for the step that the device still
    computes. They are one batch ahead at most: the thread, which otherwise only launches, waits until the device has
    begun the batch before; else all batches that the source has ready would fill the device's memory.

    `wait_s` is the time that the thread waited for the source alone to return the last batch. `arrived` is the event on
    CUDA at which it came, for `Timer` to leave out what the device computed meanwhile; None if nothing was copied.
    """

    def __init__(self, batches: Iterator[Batch], device: torch.device, memory_format: torch.memory_format) -> None:
        self.batches, self.device, self.memory_format = batches, device, memory_format
        make: Any = torch.cuda.Stream  # untyped in torch
        self.stream: Any = make(device) if device.type == "cuda" else None
        with self._aside():
            # Once, because each of these copies waits for the device.
            self.mean, self.std = (torch.tensor(of).view(3, 1, 1).to(device) for of in (MEAN, STD))
        self.begun: Any = None
        self.arrived: Any = None
        self.wait_s = 0.0
        self._next: Batch | None = None

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if (batch := self._next) is not None:
            self._next, self.wait_s, self.arrived = None, 0.0, None
            return batch
        if self.begun is not None:
            self.begun.synchronize()
        began = time.perf_counter()
        images, labels = next(self.batches)
        self.wait_s = time.perf_counter() - began
        self.arrived = None
        if self.stream is None or images.device.type == "cuda":
            return self._prepared(images), labels
        return self._copied(images, labels)

    def peek(self) -> Batch:
        """Return the next batch, which the next call of `next` returns again. The wait for it counts in no step."""
        self._next = next(self)
        return self._next

    def _copied(self, images: torch.Tensor, labels: torch.Tensor) -> Batch:
        """Copy a batch on the side stream, which the current stream waits for."""
        event: Any = torch.cuda.Event  # untyped in torch
        with self._aside():
            self.arrived = event(enable_timing=True)
            self.arrived.record()
            # Copies from other than pinned memory wait for the device.
            images, labels = (part if part.is_pinned() else part.pin_memory() for part in (images, labels))
            images, labels = (part.to(self.device, non_blocking=True) for part in (images, labels))
            batch = self._prepared(images), labels
        current = torch.cuda.current_stream(self.device)
        current.wait_stream(self.stream)
        for part in batch:
            # Without it, the allocator would give their memory to the side stream's next batch too early.
            part.record_stream(current)
        self.begun = event(blocking=True)
        self.begun.record(current)
        return batch

    def _prepared(self, images: torch.Tensor) -> torch.Tensor:
        """Return images as normalized float32 in the memory format, bit for bit as torchvision's transforms do it."""
        images = images.contiguous(memory_format=self.memory_format)
        return images if images.dtype != torch.uint8 else images.float().div_(255).sub_(self.mean).div_(self.std)

    def _aside(self) -> Any:
        return torch.cuda.stream(self.stream) if self.stream is not None else nullcontext()
