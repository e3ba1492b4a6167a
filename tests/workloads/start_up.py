"""Measure how soon jobs begin on the local stack, alternating with torchrun (`make bench-start`).

    python -m tests.workloads.start_up [--rounds N]

Each round starts an all_reduce by torchrun, with an agent per node of the stack, and by `rdma-ray bench nccl`, and two
trainings by `rdma-ray train digits`: with a worker per node, and with one per CPU slot. The first two times end with
the first collective, the others with the first step; all begin with the start of the command. The stack must be up and
idle.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from infra.local.loopback import free_ports
from infra.outputs import Outputs
from workloads.client.stack import read_outputs
from workloads.nccl import result as nccl
from workloads.options import JobOptions
from workloads.train import result as train

ROOT = Path(__file__).resolve().parents[2]
MOST, MOST_S = 1.5, 15.0
"""Accepted: first collective over that of torchrun, seconds to the first step of a worker per node."""
SCRIPT = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(256))
print("first", time.time(), flush=True)
dist.destroy_process_group()
"""


def torchrun(outputs: Outputs, folder: Path) -> float:
    """Return the seconds to the first collective of torchrun, with as many nodes and ranks as the stack has."""
    script = folder / "first.py"
    script.write_text(SCRIPT)
    [port] = free_ports(1)
    nodes, ranks = outputs.nodes.default_gang, outputs.nodes.slots_per_node
    command = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}", f"--nproc-per-node={ranks}"]
    command += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", str(script)]
    began = time.time()
    agents = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(nodes)
    ]
    lines = [line for agent in agents for line in agent.communicate(timeout=300)[0].splitlines()]
    return max(float(line.split()[1]) for line in lines if line.startswith("first ")) - began


def ours(file: Path, *command: str) -> float:
    """Run a command line whose result goes into `file`, and return when it began, in seconds since 1970."""
    began = time.time()
    done = [str(ROOT / "bin" / "rdma-ray"), *command, "--stack", "local", "--json", str(file)]
    subprocess.run(done, check=True, capture_output=True, timeout=600)
    return began


def first_collective(folder: Path) -> float:
    """Return the seconds from the command to the end of the rendezvous, whose barrier is the first collective."""
    file = folder / "bench.json"
    began = ours(file, "bench", "nccl", "--op", "all_reduce", "-b", "1K", "-e", "1K")
    result = nccl.BenchResult.read(file)
    assert result.seconds is not None
    return result.started + sum(result.seconds[phase] for phase in ("placement", "start", "rendezvous")) - began


def first_step(folder: Path, workers: int) -> float:
    """Return the seconds from the command to the end of the first training step."""
    file = folder / "train.json"
    began = ours(file, "train", "digits", "--workers", str(workers), "--epochs", "1", "--min-accuracy", "0")
    timeline = train.TrainResult.read(file).timeline
    assert timeline is not None
    return timeline.ended - began


def main() -> int:
    """Measure, print, and return 2 if a time is longer than accepted."""
    parser = argparse.ArgumentParser(prog="python -m tests.workloads.start_up")
    parser.add_argument("--rounds", type=int, default=5, help="times that each command runs")
    rounds = parser.parse_args().rounds
    outputs = read_outputs(JobOptions(stack="local"))
    nodes, slots = outputs.nodes.default_gang, outputs.nodes.default_gang * outputs.nodes.slots_per_node
    few, all_ = f"on {nodes} workers", f"on {slots}"
    times: dict[str, list[float]] = {"torchrun": [], "bench nccl": [], few: [], all_: []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(rounds):
            times["torchrun"].append(torchrun(outputs, folder))
            times["bench nccl"].append(first_collective(folder))
            times[few].append(first_step(folder, nodes))
            times[all_].append(first_step(folder, slots))
            row = ", ".join(f"{name} {found[-1]:.1f} s" for name, found in times.items())
            print(f"round {number + 1}: {row}", flush=True)
    ratio = median(a / b for a, b in zip(times["bench nccl"], times["torchrun"], strict=True))
    step = median(times[few])
    print(f"first collective: {ratio:.2f} of torchrun's time (at most {MOST} accepted)")
    print(f"first step {few}: after {step:.1f} s (at most {MOST_S} accepted), {all_}: {median(times[all_]):.1f} s")
    return 2 if ratio > MOST or step > MOST_S else 0


if __name__ == "__main__":
    sys.exit(main())
