"""ConvNeXt training on one machine: ours (tuned), ours (baseline) and timm's, in one run and by turns.

python -m tools.bench_gpu [--size base|tiny] [--batch N] [--rounds N] [--steps N] [--only NAME …] [--json PATH]

Every round runs each candidate for some steps, and each round begins with another one, so that what the machine does
meanwhile (clocks, heat, neighbours) meets all alike. A ratio is taken in each round; the median of these is the answer.

timm's own benchmark is a script in its repository, outside of its package, so this loop takes its place: the same model
function and optimiser function that the script calls (create_model, create_optimizer_v2 with its default "sgd", rate
1e-4), the same cross entropy on one fixed batch of noise, cudnn.benchmark on, no stochastic depth: what its step does,
without its new labels in each step, and waiting for the device once a round instead of once a step. Both are in timm's
favour. Ours keeps AdamW and its stochastic depth, which cost it something. No DDP for anybody: one process.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from workloads.statistics import percentile

SCHEMA = "rdma-ray/bench-gpu/1"
NOT_A_MEASUREMENT = "no GPU: not a measurement"
FLOORS = {"best of timm": 1.10, "ours baseline": 8.0}
"""What tuned ÷ these is to be at least, and 1,800 img/s, on one H100 or H200 with the size "base"."""

Step = Callable[[], None]


@dataclass(frozen=True)
class Bench:
    """What all candidates have in common."""

    size: str
    batch: int
    device: str
    backend: str


def ours(preset: Any, changes: dict[str, Any], bench: Bench) -> tuple[Step, Callable[[], dict[str, Any]]]:
    """A step of our trainer's task, and what it reports."""
    import torch

    from workloads.train.convnext.settings import settings
    from workloads.train.convnext.task import ConvNeXtTask
    from workloads.train.task import Share

    asked = settings(preset, size=bench.size, batch=bench.batch, data="synthetic", backend=bench.backend, **changes)
    task, device = ConvNeXtTask(asked), torch.device(bench.device)
    torch.manual_seed(0)
    model = task.model(device)
    called, optimizer = task.prepare(model, device), task.optimizer(model)
    (batch,) = task.batches(Share(0, 1, 0, 1, bench.batch, 0), device)
    called.train()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(task.loss(called, batch))
        optimizer.step()

    return step, task.report


def timm(precision: str, compiled: bool, bench: Bench) -> tuple[Step, Callable[[], dict[str, Any]]]:
    """A step of timm's benchmark in channels_last. "bfloat16" and "float16" hold the whole model in that type."""
    import torch
    from timm.models import create_model
    from timm.optim import create_optimizer_v2  # type: ignore[attr-defined]  # public, yet not among its typed exports

    from workloads.train.convnext.shapes import SIZES

    shape, device = SIZES[bench.size], torch.device(bench.device)
    kind = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(precision, torch.float32)
    # The name of timm's base; other sizes are its own class with other numbers.
    sizes: dict[str, Any] = {} if bench.size == "base" else {"depths": shape.depths, "dims": shape.dims}
    torch.manual_seed(0)
    model = create_model("convnext_base", num_classes=shape.classes, **sizes)
    model = model.to(memory_format=torch.channels_last).to(device, kind).train()
    optimizer = create_optimizer_v2(model, opt="sgd", lr=1e-4)
    called = (
        torch.compile(model, backend=bench.backend if bench.backend != "auto" else "inductor") if compiled else model
    )
    images = torch.randn(bench.batch, 3, shape.image, shape.image, device=device, dtype=kind)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(shape.classes, (bench.batch,), device=device)
    autocast = partial(torch.autocast, device.type, torch.bfloat16) if precision == "amp_bfloat16" else nullcontext

    def step() -> None:
        optimizer.zero_grad()
        with autocast():
            loss = torch.nn.functional.cross_entropy(called(images), labels)
        torch.autograd.backward(loss)
        optimizer.step()

    return step, dict


CANDIDATES: dict[str, Callable[[Bench], tuple[Step, Callable[[], dict[str, Any]]]]] = {
    "ours tuned": partial(ours, "tuned", {}),
    "ours tuned, bf16 stream": partial(ours, "tuned", {"stream": "bf16"}),
    "ours tuned, fused kernels": partial(ours, "tuned", {"kernels": "fused"}),
    "ours baseline": partial(ours, "baseline", {}),
    "timm amp_bfloat16": partial(timm, "amp_bfloat16", False),
    "timm amp_bfloat16 compiled": partial(timm, "amp_bfloat16", True),
    "timm bfloat16": partial(timm, "bfloat16", False),
    "timm bfloat16 compiled": partial(timm, "bfloat16", True),
    "timm float16": partial(timm, "float16", False),
    "timm float16 compiled": partial(timm, "float16", True),
}
# What shows that the benchmark runs: Triton's kernels need a GPU, and a compilation on CPUs takes its time.
ON_CPU = ["ours tuned", "ours baseline", "timm amp_bfloat16", "timm amp_bfloat16 compiled"]


def measure(bench: Bench, names: Sequence[str], rounds: int, steps: int, warm_up: int) -> dict[str, dict[str, Any]]:
    """Seconds of a step by round for each candidate, what its first steps (compilation) took, and its peak memory."""
    import torch

    cuda = bench.device == "cuda"

    def timed(step: Step, count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            step()
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - began

    made: dict[str, tuple[Step, Callable[[], dict[str, Any]]]] = {}
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        torch.backends.cudnn.benchmark = True
        held = torch.cuda.memory_allocated() if cuda else 0
        made[name] = CANDIDATES[name](bench)
        # Kept for each candidate: it says how cuDNN and cuBLAS were set up for it.
        globally = torch.backends.cudnn.benchmark, torch.get_float32_matmul_precision()
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        first = timed(made[name][0], warm_up)
        found[name] = {"first_s": first, "step_s": [], "globally": globally}
        found[name]["peak_memory"] = torch.cuda.max_memory_allocated() - held if cuda else None
        found[name]["report"] = made[name][1]()  # now: Dynamo counts by process
        print(f"  {name}: ready after {first:.1f} s", file=sys.stderr, flush=True)
        gc.collect()
    for number in range(rounds):
        for place in range(len(names)):
            name = names[(number + place) % len(names)]
            torch.backends.cudnn.benchmark, precision = found[name]["globally"]
            torch.set_float32_matmul_precision(precision)
            step = made[name][0]
            timed(step, 1)
            found[name]["step_s"].append(timed(step, steps) / steps)
    for name in names:
        del found[name]["globally"]
    return found


def judge(found: dict[str, dict[str, Any]], bench: Bench, precision_peak: float | None) -> dict[str, Any]:
    """Rates and ratios. `found` is of `measure`; the peak in FLOP/s, bf16's for all, gives the MFU."""
    from workloads.train.convnext import flops
    from workloads.train.convnext.shapes import SIZES

    needs = flops.per_image(SIZES[bench.size])
    rates = {name: [bench.batch / seconds for seconds in one["step_s"]] for name, one in found.items()}
    rows = {name: _spread(values) for name, values in rates.items()}
    for name, row in rows.items():
        row["mfu"] = flops.mfu(row["median"], needs, precision_peak) if precision_peak else None
        row |= {key: found[name][key] for key in ("first_s", "peak_memory", "report")}
    ratios = {}
    if "ours tuned" in rates:
        others = {name: values for name, values in rates.items() if not name.startswith("ours tuned")}
        ratios = {name: _spread(_quotients(rates["ours tuned"], values)) for name, values in others.items()}
        modes = [name for name in others if name.startswith("timm")]
        if modes:
            best = max(modes, key=lambda name: rows[name]["median"])
            ratios["best of timm"] = {**ratios[best], "mode": best}
    return {"images_per_s": rows, "tuned_over": ratios}


def _quotients(first: list[float], second: list[float]) -> list[float]:
    return [one / other for one, other in zip(first, second, strict=True)]


def _spread(values: list[float]) -> dict[str, Any]:
    """Median, quarters, ends."""
    parts = {"median": 50, "p25": 25, "p75": 75}
    return {**{key: percentile(values, at) for key, at in parts.items()}, "min": min(values), "max": max(values)}


def machine() -> dict[str, Any]:
    """What ran it: names and versions, nothing that identifies the machine."""
    import timm as timm_package
    import torch
    import triton

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
            "timm": timm_package.__version__,
            "python": platform.python_version(),
        },
        "load": round(os.getloadavg()[0], 1),
    }


def report(result: dict[str, Any]) -> str:
    """The tables for people."""
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
    if not has["gpu"]:
        lines.append(f"{NOT_A_MEASUREMENT} of what GPUs do; it shows that the benchmark runs")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; 2 where a GPU's ratios are below the floors."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench_gpu", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=["base", "small", "tiny"], help="[base on a GPU, tiny on CPUs]")
    parser.add_argument("--batch", type=int, help="images a step  [128 on a GPU, 4 on CPUs]")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each candidate  [9]")
    parser.add_argument("--steps", type=int, help="steps of one turn  [20 on a GPU, 2 on CPUs]")
    parser.add_argument(
        "--warm-up", type=int, default=3, help="steps before the first round, compilation included  [3]"
    )
    parser.add_argument("--only", action="append", choices=list(CANDIDATES), help="a candidate; more than once  [all]")
    parser.add_argument("--backend", choices=["auto", "inductor", "aot_eager"], help="[auto on a GPU, else aot_eager]")
    parser.add_argument("--json", type=Path, default=Path("results/bench-gpu.json"), help="[results/bench-gpu.json]")
    asked = parser.parse_args(arguments)

    import torch

    from workloads.train.convnext import flops

    cuda = torch.cuda.is_available()
    bench = Bench(
        size=asked.size or ("base" if cuda else "tiny"),
        batch=asked.batch or (128 if cuda else 4),
        device="cuda" if cuda else "cpu",
        backend=asked.backend or ("auto" if cuda else "aot_eager"),
    )
    steps = asked.steps or (20 if cuda else 2)
    has = machine()
    found = measure(bench, asked.only or (list(CANDIDATES) if cuda else ON_CPU), asked.rounds, steps, asked.warm_up)
    result = {
        "schema": SCHEMA,
        "date": time.strftime("%Y-%m-%d"),
        "measurement": has["gpu"] or NOT_A_MEASUREMENT,
        "machine": has,
        "asked": {**vars(bench), "rounds": asked.rounds, "steps": steps, "warm_up": asked.warm_up},
        **judge(found, bench, flops.peak(has["gpu"], "bf16") if has["gpu"] else None),
    }
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(result, indent=1))
    print(report(result))
    print(f"written to {asked.json}")
    if not cuda or bench.size != "base":
        return 0
    below = [
        name for name, least in FLOORS.items() if result["tuned_over"].get(name, {"median": least})["median"] < least
    ]
    for name in below:
        print(f"tuned ÷ {name} is below {FLOORS[name]}", file=sys.stderr)
    return 2 if below else 0


if __name__ == "__main__":
    sys.exit(main())
