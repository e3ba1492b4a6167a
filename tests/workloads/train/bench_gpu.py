"""Compare ConvNeXt training on one machine: ours (tuned), ours (baseline) and timm's, alternating in one run.

    python -m tests.workloads.train.bench_gpu [--size base|tiny] [--batch N] [--rounds N] [--steps N] [--only NAME …]

Every round runs each candidate for some steps, and each round starts with another candidate, so that clocks, heat and
other load affect all alike. A ratio is computed per round; the median of the ratios is the result.

Ours is the trainer's own loop (`workloads.train.run.Run`), as `rdma-ray train convnext --workers 1` runs it, with
seeding, looks and journal. timm's own benchmark is a script outside its package, so a loop here replaces it, with the
model function and optimizer function that the script calls (create_model, create_optimizer_v2 with its default "sgd",
learning rate 1e-4), cross entropy on one fixed batch of noise, cudnn.benchmark on, no stochastic depth. Two differences
favor timm: its labels are not generated in each step, and the device is synchronized once per turn and not once per
step. Ours keeps AdamW and stochastic depth, which cost time.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import triton
from torch.distributed import HashStore  # type: ignore[attr-defined]  # public, yet not among its typed exports

from workloads.results.documents import percentile
from workloads.train.convnext import flops
from workloads.train.convnext.flops import SIZES
from workloads.train.options import ConvNeXtOptions, RunOptions
from workloads.train.place import Place
from workloads.train.run import Run
from workloads.train.shards import Found
from workloads.train.timeline import Clock
from workloads.train.trainer import open_folder

NOT_A_MEASUREMENT = "no GPU: not a measurement"
FLOORS = {"best of timm": 1.10, "ours baseline": 8.0}
"""Lowest accepted ratios of tuned to these on one H100 or H200 with the size "base", next to 1,800 img/s."""

Steps = Callable[[int], None]
"""Trains for a number of steps, which the device may still run on return."""
Report = Callable[[], dict[str, Any]]


@dataclass(frozen=True)
class Bench:
    """Parameters that all candidates share."""

    size: str
    batch: int
    device: str
    backend: str
    storage: str = ""


def ours(preset: Any, changes: dict[str, Any], bench: Bench) -> tuple[Steps, Report]:
    """Return steps of the trainer with one worker, and the report of its task."""
    settings = {"size": bench.size, "batch": bench.batch, "data": "synthetic", "backend": bench.backend, **changes}
    options = ConvNeXtOptions.model_validate({"preset": preset, **settings, "steps": 10**9})
    now = time.time()
    # As workloads/train/request.py completes them.
    decided = {"name": f"run-{time.time_ns()}", "checkpoint_dir": bench.storage, "global_batch": bench.batch}
    return steps_of(options.model_copy(update={**decided, "workers": 1, "submitted": now}), bench.device)


def steps_of(options: RunOptions, device: str) -> tuple[Steps, Report]:
    """Return steps of the trainer with one worker and this complete request, and the report of its task."""
    now = time.time()
    place, clock = Place(0, 1, torch.device(device)), Clock(submitted=now, driver=now, worker=now)
    run = Run(options, place, clock, open_folder(options, place), Found())
    run.build()
    trained = run.train()

    def train(count: int) -> None:
        run.timer.start()  # the time since the last turn belongs to no step
        with redirect_stdout(io.StringIO()):  # the run's events
            for _ in range(count):
                next(trained)

    return train, run.task.report


def timm(precision: str, compiled: bool, bench: Bench) -> tuple[Steps, Report]:
    """Return steps of timm's benchmark in channels_last. "bfloat16" and "float16" convert the whole model."""
    from timm.models import create_model  # takes seconds
    from timm.optim import create_optimizer_v2  # type: ignore[attr-defined]  # public, yet not among its typed exports

    shape, device = SIZES[bench.size], torch.device(bench.device)
    dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(precision, torch.float32)
    # timm has a name for the base; other sizes are the same class with other numbers.
    sizes: dict[str, Any] = {} if bench.size == "base" else {"depths": shape.depths, "dims": shape.dims}
    torch.manual_seed(0)
    model = create_model("convnext_base", num_classes=shape.classes, **sizes)
    model = model.to(memory_format=torch.channels_last).to(device, dtype).train()
    optimizer = create_optimizer_v2(model, opt="sgd", lr=1e-4)
    backend = "inductor" if bench.backend == "auto" else bench.backend
    prepared = torch.compile(model, backend=backend) if compiled else model
    images = torch.randn(bench.batch, 3, shape.image, shape.image, device=device, dtype=dtype)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(shape.classes, (bench.batch,), device=device)
    autocast = partial(torch.autocast, device.type, torch.bfloat16) if precision == "amp_bfloat16" else nullcontext

    def train(count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad(set_to_none=True)
            with autocast():
                loss = torch.nn.functional.cross_entropy(prepared(images), labels)
            torch.autograd.backward(loss)
            optimizer.step()

    return train, dict


TUNED, FUSED = "ours tuned", "ours tuned, fused kernels"
CANDIDATES: dict[str, Callable[[Bench], tuple[Steps, Report]]] = {
    TUNED: partial(ours, "tuned", {}),
    FUSED: partial(ours, "tuned", {"kernels": "fused"}),
    "ours tuned, fp32 stream": partial(ours, "tuned", {"stream": "as-computed"}),
    "ours baseline": partial(ours, "baseline", {}),
    **{
        f"timm {precision}{' compiled' if compiled else ''}": partial(timm, precision, compiled)
        for precision in ("amp_bfloat16", "bfloat16", "float16")
        for compiled in (False, True)
    },
}
# These show that the benchmark runs; Triton's kernels need a GPU, and compilation is slow on CPUs.
ON_CPU = [TUNED, "ours baseline", "timm amp_bfloat16", "timm amp_bfloat16 compiled"]


def measure(bench: Bench, names: Sequence[str], rounds: int, steps: int, warm_up: int) -> dict[str, dict[str, Any]]:
    """Return per candidate: seconds per step of each round, seconds of the warm-up (compilation), peak memory."""
    cuda = bench.device == "cuda"

    def timed(steps: Steps, count: int) -> float:
        began = time.perf_counter()
        steps(count)
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - began

    steps_of: dict[str, Steps] = {}
    modes: dict[str, tuple[bool, str]] = {}
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        torch.backends.cudnn.benchmark = True
        held = torch.cuda.memory_allocated() if cuda else 0
        steps_of[name], report = CANDIDATES[name](bench)
        # A candidate sets how cuDNN and cuBLAS work for the whole process.
        modes[name] = torch.backends.cudnn.benchmark, torch.get_float32_matmul_precision()
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        first = timed(steps_of[name], warm_up)
        peak = torch.cuda.max_memory_allocated() - held if cuda else None
        # The report now, since Dynamo counts per process.
        found[name] = {"first_s": first, "step_s": [], "peak_memory": peak, "report": report()}
        print(f"  {name}: ready after {first:.1f} s", file=sys.stderr, flush=True)
        gc.collect()
    for number in range(rounds):
        for place in range(len(names)):
            name = names[(number + place) % len(names)]
            torch.backends.cudnn.benchmark, precision = modes[name]
            torch.set_float32_matmul_precision(precision)
            timed(steps_of[name], 1)
            found[name]["step_s"].append(timed(steps_of[name], steps) / steps)
    return found


def judge(found: dict[str, dict[str, Any]], bench: Bench, peak_flops: float | None) -> dict[str, Any]:
    """Return rates and ratios of `measure`'s result; the GPU's peak in FLOP/s, bf16's for all, gives the MFU."""
    needs = flops.per_image(SIZES[bench.size])
    rates = {name: [bench.batch / seconds for seconds in one["step_s"]] for name, one in found.items()}
    rows = {name: _spread(values) for name, values in rates.items()}
    for name, row in rows.items():
        row["mfu"] = flops.mfu(row["median"], needs, peak_flops) if peak_flops else None
        row |= {key: found[name][key] for key in ("first_s", "peak_memory", "report")}
    ratios = {}
    kernels = None
    if tuned := rates.get(TUNED):
        if fused := rates.get(FUSED):
            kernels = _spread([one / other for one, other in zip(fused, tuned, strict=True)])
            # Faster in three of four rounds: else the difference may be noise.
            kernels["use"] = "fused" if kernels["p25"] > 1 else "eager"
        for name, values in rates.items():
            if not name.startswith(TUNED):
                ratios[name] = _spread([one / other for one, other in zip(tuned, values, strict=True)])
        if modes := [name for name in ratios if name.startswith("timm")]:
            best = max(modes, key=lambda name: rows[name]["median"])
            ratios["best of timm"] = {**ratios[best], "mode": best}
    return {"images_per_s": rows, "tuned_over": ratios, "kernels": kernels}


def _spread(values: list[float]) -> dict[str, Any]:
    parts = {"median": 50, "p25": 25, "p75": 75}
    return {**{key: percentile(values, at) for key, at in parts.items()}, "min": min(values), "max": max(values)}


def machine() -> dict[str, Any]:
    """Return names and versions of what ran it, and nothing that identifies the machine."""
    cuda = torch.cuda.is_available()
    return {
        "gpu": torch.cuda.get_device_name() if cuda else None,
        "cpus": os.cpu_count(),
        "architecture": platform.machine(),
        "versions": {
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version() if cuda else None,  # type: ignore[no-untyped-call]
            "triton": triton.__version__,
            "timm": version("timm"),
            "python": platform.python_version(),
        },
        "load": round(os.getloadavg()[0], 1),
    }


def report(result: dict[str, Any]) -> str:
    """Return the tables for the terminal."""
    has, asked = result["machine"], result["asked"]
    versions = f"torch {has['versions']['torch']}, timm {has['versions']['timm']}"
    head = f"ConvNeXt {asked['size']}, batch {asked['batch']}, {asked['rounds']} rounds of {asked['steps']} steps"
    lines = [
        f"{has['gpu'] or NOT_A_MEASUREMENT}: {head}, {versions}, {result['date']}",
        f"{'':<28}{'img/s':>10}  {'25 % to 75 %':<20}{'MFU':>7}{'first s':>9}{'GiB':>7}",
    ]
    for name, row in result["images_per_s"].items():
        mfu = "–" if row["mfu"] is None else f"{row['mfu']:.1%}"
        memory = "–" if row["peak_memory"] is None else f"{row['peak_memory'] / 2**30:.1f}"
        span = f"{row['p25']:.1f} to {row['p75']:.1f}"
        lines.append(f"{name:<28}{row['median']:>10.1f}  {span:<20}{mfu:>7}{row['first_s']:>9.1f}{memory:>7}")
    for name, row in result["tuned_over"].items():
        mode = f" ({row['mode']})" if "mode" in row else ""
        lines.append(f"tuned ÷ {name}{mode}: {row['median']:.2f}, {row['min']:.2f} to {row['max']:.2f}")
    if kernels := result["kernels"]:
        span = f"{kernels['median']:.2f}, {kernels['min']:.2f} to {kernels['max']:.2f}"
        lines.append(f"fused ÷ eager kernels: {span}; on this GPU, use --set kernels={kernels['use']}")
    if not has["gpu"]:
        lines.append(f"{NOT_A_MEASUREMENT} of GPUs; it shows that the benchmark runs")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write. Returns 2 if a GPU's ratios are below the floors."""
    cuda = torch.cuda.is_available()
    size, batch, steps, backend = ("base", 128, 20, "auto") if cuda else ("tiny", 4, 2, "aot_eager")
    parser = argparse.ArgumentParser(
        prog="python -m tests.workloads.train.bench_gpu",
        description=(__doc__ or "").splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--size", choices=["base", "small", "tiny"], default=size, help="size of the model")
    parser.add_argument("--batch", type=int, default=batch, help="images per step")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each candidate")
    parser.add_argument("--steps", type=int, default=steps, help="steps of one turn")
    parser.add_argument("--warm-up", type=int, default=3, help="steps before the first round, with compilation")
    parser.add_argument("--only", action="append", choices=list(CANDIDATES), help="a candidate; may be repeated")
    parser.add_argument("--backend", choices=["auto", "inductor", "aot_eager"], default=backend, help="torch.compile's")
    parser.add_argument("--json", type=Path, default=Path("results/bench-gpu.json"), help="file of the result")
    asked = parser.parse_args(arguments)
    names = asked.only or (list(CANDIDATES) if cuda else ON_CPU)
    has = machine()
    # The process group of a worker, although nothing is reduced with one.
    dist.init_process_group("nccl" if cuda else "gloo", store=HashStore(), rank=0, world_size=1)
    with tempfile.TemporaryDirectory() as storage:
        bench = Bench(asked.size, asked.batch, "cuda" if cuda else "cpu", asked.backend, storage)
        found = measure(bench, names, asked.rounds, asked.steps, asked.warm_up)
    dist.destroy_process_group()
    result = {
        "schema": "rdma-ray/bench-gpu/2",
        "date": time.strftime("%Y-%m-%d"),
        "measurement": has["gpu"] or NOT_A_MEASUREMENT,
        "machine": has,
        "asked": {
            **vars(bench) | {"storage": None},
            "rounds": asked.rounds,
            "steps": asked.steps,
            "warm_up": asked.warm_up,
        },
        **judge(found, bench, flops.peak(has["gpu"]) if has["gpu"] else None),
    }
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(result, indent=1))
    print(report(result))
    print(f"written to {asked.json}")
    below = []
    if cuda and bench.size == "base":
        ratios = {name: row["median"] for name, row in result["tuned_over"].items()}
        below = [name for name, floor in FLOORS.items() if ratios.get(name, floor) < floor]
    for name in below:
        print(f"tuned ÷ {name} is below {FLOORS[name]}", file=sys.stderr)
    return 2 if below else 0


if __name__ == "__main__":
    sys.exit(main())
