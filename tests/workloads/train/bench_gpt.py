"""Compare the trainer's loop with a bare one on the same language model, in one process, alternating.

    python -m tests.workloads.train.bench_gpt [--size tiny] [--batch N] [--rounds N] [--steps N]

The bare loop has what training needs and nothing else: random windows of the text, loss, clipping, AdamW. The trainer
adds seeding, looks at the loss with their checks, timing, the schedule and the journal. A ratio is taken per round.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]  # public, yet not among its typed exports

from tests.workloads.train.bench_gpu import Steps, alternate, table, trainer
from tests.workloads.train.gpt_reference import request
from workloads.train.gpt.flops import SIZES
from workloads.train.gpt.task import GPTTask
from workloads.train.options import GPTOptions


def bare(options: GPTOptions, device: str) -> Steps:
    """Return steps of the bare loop."""
    task = GPTTask(options)
    model = task.model(torch.device(device))
    optimizer = task.optimizer(model)
    text = torch.tensor(task.data.training, device=device).long()
    window = torch.arange(task.size.context + 1, device=device)

    def train(count: int) -> None:
        for _ in range(count):
            starts = torch.randint(len(text) - len(window), (options.batch, 1), device=device)
            rows = text[starts + window]
            torch.autograd.backward(task.loss(model, (rows[:, :-1], rows[:, 1:])))
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return train


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), default="tiny")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=20)
    asked = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)  # as the trainer does on CPUs
    dist.init_process_group("nccl" if device == "cuda" else "gloo", store=HashStore(), rank=0, world_size=1)
    with tempfile.TemporaryDirectory() as folder:
        sizes = {"size": asked.size, "global_batch": asked.batch, "look_every": 10}
        options = request(Path(folder), "run", 1, steps=10**6, evaluate_every=10**6, **sizes)
        loops = {"trainer": trainer(options, device), "bare": bare(options, device)}
        found = alternate(loops, asked.rounds, asked.steps)
    dist.destroy_process_group()
    print(table(found, asked.batch * SIZES[asked.size].context, "tokens/s"))


if __name__ == "__main__":
    main()
