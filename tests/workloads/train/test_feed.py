"""Batches on the device: how they are copied there, and which wait for data counts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torchvision import transforms

from workloads.train.data.feed import MEAN, STD, Feed
from workloads.train.data.source import Batch
from workloads.train.state import Timer

CUDA = torch.device("cuda", 0)


def pictures(count: int) -> Iterator[Batch]:
    for number in range(count):
        yield torch.full((2, 3, 4, 4), number, dtype=torch.uint8), torch.tensor([number, 1])


def test_normalization_is_torchvisions_bit_for_bit() -> None:
    images = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8)
    theirs = transforms.Compose([transforms.ConvertImageDtype(torch.float32), transforms.Normalize(MEAN, STD)])
    feed = Feed(iter([(images, torch.zeros(2))]), torch.device("cpu"), torch.channels_last)
    found, _ = next(feed)
    torch.testing.assert_close(found, theirs(images), rtol=0, atol=0)
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_only_the_source_counts_as_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the preparation of the batch, and not a batch that was fetched before the step."""

    def slow(times: int) -> Iterator[Batch]:
        for batch in pictures(times):
            time.sleep(0.02)
            yield batch

    def prepare_slowly(images: torch.Tensor) -> torch.Tensor:
        time.sleep(0.2)
        return real(images)

    real = torch.Tensor.float
    monkeypatch.setattr(torch.Tensor, "float", prepare_slowly)
    feed = Feed(slow(2), torch.device("cpu"), torch.contiguous_format)
    first = feed.peek()
    assert next(feed) is first
    assert feed.wait_s == 0
    next(feed)
    assert 0.02 <= feed.wait_s < 0.2
    with pytest.raises(StopIteration):
        next(feed)


def test_a_copy_to_a_gpu_is_pinned_and_does_not_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event precedes it; tensors on the GPU are on `meta`."""
    made: list[str] = []

    def to(tensor: torch.Tensor, device: torch.device, non_blocking: bool = False) -> torch.Tensor:
        assert device == CUDA
        made.append("copy" if non_blocking else "blocking copy")
        return real(tensor, "meta")

    def pinned(tensor: torch.Tensor) -> torch.Tensor:
        made.append("pin")
        return tensor

    def event(**options: bool) -> Any:
        return SimpleNamespace(record=lambda: made.append(f"event {','.join(options)}"))

    real = torch.Tensor.to
    monkeypatch.setattr(torch.cuda, "Event", event)
    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda _tensor: False)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pinned)
    feed = Feed(pictures(1), CUDA, torch.contiguous_format)
    assert made == ["blocking copy"] * 2  # the constants, once
    images, labels = next(feed)
    assert (images.dtype, images.device.type, labels.device.type) == (torch.float32, "meta", "meta")
    assert made[2:] == ["event enable_timing", "pin", "pin", "copy", "copy"]


@pytest.mark.parametrize(
    ("arrived_ms", "counted_s"),
    [
        pytest.param(-30, 0.0, id="before the end of the last step: nothing"),
        pytest.param(4, 0.004, id="4 ms after it"),
        pytest.param(50, 0.02, id="the thread came late itself: at most its wait"),
    ],
)
def test_a_wait_counts_as_far_as_the_device_was_idle(arrived_ms: float, counted_s: float) -> None:
    timer = Timer(torch.device("cpu"))
    timer.cuda = True
    at = {"before": 0.0, "after": 100.0, "arrived": arrived_ms}

    def event(name: str) -> Any:
        return SimpleNamespace(name=name, elapsed_time=lambda other: at[other.name] - at[name])

    timer.before = event("before")
    timer.mark = partial(event, "after")  # type: ignore[method-assign]
    timer.step(0.02, event("arrived"))
    timer.settle()
    assert timer.step_s == [0.1]
    assert timer.wait_s == pytest.approx([counted_s])
