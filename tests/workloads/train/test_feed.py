"""Batches on the device: what is copied on which stream in which order, and which wait for data counts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
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

    def prepare_slowly(_feed: Feed, images: torch.Tensor) -> torch.Tensor:
        time.sleep(0.2)
        return images

    monkeypatch.setattr(Feed, "_prepared", prepare_slowly)
    feed = Feed(slow(2), torch.device("cpu"), torch.contiguous_format)
    first = feed.peek()
    assert next(feed) is first
    assert feed.wait_s == 0
    next(feed)
    assert 0.02 <= feed.wait_s < 0.2
    with pytest.raises(StopIteration):
        next(feed)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every call that matters of `torch.cuda`, with the stream it is made on; tensors on the GPU are on `meta`."""
    made: list[str] = []
    current = ["main"]

    class Stream:
        def __init__(self, name: Any) -> None:
            self.name = name if isinstance(name, str) else "side"

        def wait_stream(self, other: Stream) -> None:
            made.append(f"{self.name} waits for {other.name}")

    class Event:
        def __init__(self, **options: bool) -> None:
            self.name = ",".join(options)

        def record(self, stream: Stream | None = None) -> None:
            made.append(f"{stream.name if stream else current[0]}: event {self.name}")

        def synchronize(self) -> None:
            made.append("thread waits for the last batch to begin")

    @contextmanager
    def on(stream: Stream) -> Iterator[None]:
        current.append(current[0])
        current[0] = stream.name
        yield
        current[0] = current.pop()

    def to(tensor: torch.Tensor, device: torch.device, non_blocking: bool = False) -> torch.Tensor:
        assert device == CUDA
        made.append(f"{current[0]}: {'copy' if non_blocking else 'blocking copy'}")
        return real(tensor, "meta")

    def pinned(tensor: torch.Tensor) -> torch.Tensor:
        made.append("pin")
        return tensor

    real = torch.Tensor.to
    fake = SimpleNamespace(Stream=Stream, Event=Event, stream=on, current_stream=lambda _device: Stream("main"))
    for name, value in vars(fake).items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda _tensor: False)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pinned)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda _tensor, stream: made.append(f"keep for {stream.name}"))
    return made


def test_a_copy_overlaps_the_step_before_it(calls: list[str]) -> None:
    """The side stream waits for nothing, the main stream for the side stream, and no copy of a batch blocks."""
    feed = Feed(pictures(2), CUDA, torch.contiguous_format)
    assert calls == ["side: blocking copy"] * 2  # the constants, once
    calls.clear()
    images, _ = next(feed)
    assert images.dtype == torch.float32
    once = ["side: event enable_timing", "pin", "pin", "side: copy", "side: copy", "main waits for side"]
    once += ["keep for main"] * 2 + ["main: event blocking"]
    assert calls == once
    calls.clear()
    next(feed)
    assert calls == ["thread waits for the last batch to begin", *once]


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
