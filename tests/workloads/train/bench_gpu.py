"""Compare the trainer's loop on ConvNeXt-Base (preset tuned, one worker) with a plain loop on timm's, in one process.

    python -m tests.workloads.train.bench_gpu [--batch N] [--rounds N] [--steps N]

The loops take turns, and each round starts with another one, so that clocks, heat and other load affect all alike. A
ratio is computed per round; the median of the ratios is the result.

timm's own benchmark is a script outside its package. Its loop here has what the script uses: create_model,
create_optimizer_v2 with its default "sgd" and learning rate 1e-4, cross entropy on one batch of noise in channels_last,
no stochastic depth. The trainer keeps AdamW and stochastic depth, which cost time.
"""

from __future__ import annotations

import argparse
import io
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]  # public, yet not among its typed exports

from workloads.results.documents import percentile
from workloads.train.convnext import CHANNELS
from workloads.train.options import IMAGES, ConvNeXtOptions, TrainRunOptions
from workloads.train.place import TrainerRank
from workloads.train.run import TrainRun
from workloads.train.shards import Found
from workloads.train.timeline import Clock
from workloads.train.trainer import open_folder

Steps = Callable[[int], None]
"""Trains for a number of steps, which the device may still run on return."""


def trainer(options: TrainRunOptions, device: str) -> Steps:
    """Return steps of the trainer with one worker and this complete request."""
    now = time.time()
    place, clock = TrainerRank(0, 1, torch.device(device)), Clock(submitted=now, driver=now, worker=now)
    run = TrainRun(options, place, clock, open_folder(options, place), Found())
    run.build()
    trained = run.train()

    def train(count: int) -> None:
        run.timer.start()  # the time since the last turn belongs to no step
        with redirect_stdout(io.StringIO()):  # the run's events
            for _ in range(count):
                next(trained)

    return train


def tuned(size: str, batch: int, device: str, storage: Path) -> Steps:
    """Return steps of `rdma-ray train convnext --workers 1` with the preset tuned."""
    asked = {"size": size, "batch": batch, "backend": "inductor" if device == "cuda" else "aot_eager", "steps": 10**9}
    # As workloads/train/request.py completes them.
    decided = {"name": "tuned", "checkpoint_dir": str(storage), "global_batch": batch, "workers": 1}
    return trainer(ConvNeXtOptions.model_validate(asked).model_copy(update=decided), device)


def timm(size: str, batch: int, device: str, autocast: bool) -> Steps:
    """Return steps on timm's model, compiled, in bf16: by autocast, or of the whole model."""
    from timm.models import create_model  # takes seconds
    from timm.optim import create_optimizer_v2  # type: ignore[attr-defined]  # public, yet not among its typed exports

    (side, classes), dtype = IMAGES[size], torch.float32 if autocast else torch.bfloat16
    # timm has a name for the base; other sizes are the same class with other numbers.
    sizes: dict[str, Any] = {} if size == "base" else {"depths": (1, 1, 1, 1), "dims": CHANNELS[size]}
    torch.manual_seed(0)
    model = create_model("convnext_base", num_classes=classes, **sizes)
    model = model.to(memory_format=torch.channels_last).to(device, dtype).train()
    model.compile(backend="inductor" if device == "cuda" else "aot_eager")
    optimizer = create_optimizer_v2(model, opt="sgd", lr=1e-4)
    images = torch.randn(batch, 3, side, side, device=device, dtype=dtype).to(memory_format=torch.channels_last)
    labels = torch.randint(classes, (batch,), device=device)

    def train(count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device, torch.bfloat16, enabled=autocast):
                loss = torch.nn.functional.cross_entropy(model(images), labels)
            torch.autograd.backward(loss)
            optimizer.step()

    return train


def alternate(loops: Mapping[str, Steps], rounds: int, steps: int) -> dict[str, list[float]]:
    """Return the seconds per step of each loop, by round. A round before them, and a step before each turn, warm up."""
    names = list(loops)
    found: dict[str, list[float]] = {name: [] for name in names}

    def timed(train: Steps, count: int) -> float:
        began = time.perf_counter()
        train(count)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return (time.perf_counter() - began) / count

    for number in range(-1, rounds):
        for place in range(len(names)):
            name = names[(number + place) % len(names)]
            timed(loops[name], 1)
            seconds = timed(loops[name], steps)
            if number >= 0:
                found[name].append(seconds)
    return found


def table(found: Mapping[str, Sequence[float]], units: int, unit: str) -> str:
    """Return each loop's rate, and the ratio of the first loop's to it, from the seconds per step of `units`."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU: not a measurement of GPUs"
    load = f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {time.strftime('%Y-%m-%d')}"
    lines = [f"{gpu}: torch {torch.__version__}, {load}", f"{unit:<28}{'median':>10}  25 % to 75 %"]
    first, *_ = found
    for name, times in found.items():
        rates = [units / seconds for seconds in times]
        low, middle, high = (percentile(rates, at) for at in (25, 50, 75))
        lines.append(f"{name:<28}{middle:>10,.1f}  {low:,.1f} to {high:,.1f}")
    for name in [*found][1:]:
        ratios = [theirs / ours for ours, theirs in zip(found[first], found[name], strict=True)]
        low, middle, high = (percentile(ratios, at) for at in (25, 50, 75))
        lines.append(f"{first} ÷ {name}: {middle:.3f}, {low:.3f} to {high:.3f}")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    device, size, batch, steps = ("cuda", "base", 128, 20) if torch.cuda.is_available() else ("cpu", "tiny", 4, 2)
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--batch", type=int, default=batch, help="images per step")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each loop")
    parser.add_argument("--steps", type=int, default=steps, help="steps of one turn")
    asked = parser.parse_args()
    # The process group of a worker, although nothing is reduced with one.
    dist.init_process_group("nccl" if device == "cuda" else "gloo", store=HashStore(), rank=0, world_size=1)
    with tempfile.TemporaryDirectory() as storage:
        loops = {
            "ours": tuned(size, asked.batch, device, Path(storage)),
            "timm bf16 autocast": timm(size, asked.batch, device, autocast=True),
            "timm bf16": timm(size, asked.batch, device, autocast=False),
        }
        found = alternate(loops, asked.rounds, asked.steps)
    dist.destroy_process_group()
    print(f"ConvNeXt {size}, batch {asked.batch}, {asked.rounds} rounds of {asked.steps} steps, timm {version('timm')}")
    print(table(found, asked.batch, "images/s"))


if __name__ == "__main__":
    main()
