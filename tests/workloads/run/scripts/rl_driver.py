"""Post-training in the shape of verl and NeMo-RL, without models: placement, processes, groups, checkpoints.

On each trainer node is a placement group with STRICT_PACK and a bundle per rank, which a policy and a reference share
(verl: single_controller/ray/base.py, b178a3c). All rollouts are in one placement group with PACK (NeMo-RL:
distributed/virtual_cluster.py, 7ea279a; both read 2026-11-28). Policies reduce a gradient among themselves; in each
step, all ranks get the new weights by a broadcast, and check every element. Weights are integers: sums are exact.

Exit codes: 0 all steps right, 3 a rank has wrong weights, 9 an actor or its node is lost.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

SIZE = 100_000
WRONG, LOST = 3, 9


def on(group: PlacementGroup, bundle: int) -> PlacementGroupSchedulingStrategy:
    return PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)


def node() -> str:
    """Return the address of this node."""
    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


def address() -> tuple[str, str]:
    """Return the address of this node, and a port that is free."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        return node(), str(listener.getsockname()[1])


class Reference:
    """Colocated with a policy; needs no group."""

    def score(self, step: int) -> int:
        return step % 2 + 1


class Rank:
    """A policy, or a rollout, which only receives weights."""

    def join(self, policies: int, nccl_log: str) -> tuple[int, str, int]:
        """Form the groups, and return this process's rank, node and ID."""
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        self.rank, self.policies = dist.get_rank(), policies
        self.trainers: Any = dist.new_group(list(range(policies)))
        self.weights = torch.arange(SIZE, dtype=torch.float32) % 97
        if nccl_log and (pattern := os.environ.get("NCCL_DEBUG_FILE")):
            name = pattern.replace("%h", socket.gethostname()).replace("%p", str(os.getpid()))
            Path(name).write_text(nccl_log)
        return self.rank, node(), os.getpid()

    def load(self, file: str) -> None:
        import torch

        self.weights = torch.load(file)

    def step(self, score: int) -> float:
        """Train a step, update the weights everywhere, and return the sum of this rank's weights."""
        import torch
        import torch.distributed as dist

        before = self.weights.clone()
        if self.rank < self.policies:
            gradient = torch.full((SIZE,), float(score * (self.rank + 1)))
            dist.all_reduce(gradient, group=self.trainers)
            self.weights += gradient
        dist.broadcast(self.weights, 0)
        wrong = int((self.weights != before + score * self.policies * (self.policies + 1) / 2).sum())
        if wrong:
            raise ArithmeticError(f"rank {self.rank}: {wrong} of {SIZE} weights are wrong")
        return float(self.weights.double().sum())

    def save(self, file: str) -> None:
        import torch

        torch.save(self.weights, part := f"{file}.part")
        Path(part).replace(file)


def initialize(like: str) -> None:
    """Connect to Ray as a framework does inside of a submitted job."""
    if like == "nemo-rl":
        ray.init(address="auto", log_to_driver=True, runtime_env={"env_vars": dict(os.environ)})
    else:
        wanted = {"TOKENIZERS_PARALLELISM": "true", "NCCL_DEBUG": "WARN", "NCCL_CUMEM_ENABLE": "0"}
        ray.init(runtime_env={"env_vars": {name: value for name, value in wanted.items() if name not in os.environ}})


def start(options: argparse.Namespace) -> tuple[list[Any], list[Any]]:
    """Place all actors, and return the ranks, policies first, and the references."""
    bundle = {options.kind: options.amount}
    groups = [
        placement_group([bundle] * options.per_node, strategy="STRICT_PACK", name=f"trainers-{node}")
        for node in range(options.nodes)
    ]
    rollouts = placement_group([bundle] * options.rollouts, strategy="PACK", name="rollouts")
    ray.get([group.ready() for group in [*groups, rollouts]])
    share = min(options.amount / 2, 0.5)
    places = [(group, each, share) for group in groups for each in range(options.per_node)]
    places += [(rollouts, each, options.amount) for each in range(options.rollouts)]
    host, port = ray.get(ray.remote(address).options(num_cpus=0, scheduling_strategy=on(groups[0], 0)).remote())

    def actor(kind: type, place: tuple[PlacementGroup, int, float], variables: dict[str, str]) -> Any:
        group, number, amount = place
        given = {"num_gpus": amount, "num_cpus": 0} if options.kind == "GPU" else {"num_cpus": amount}
        where = {"scheduling_strategy": on(group, number), "runtime_env": {"env_vars": variables}}
        return ray.remote(kind).options(**given, **where).remote()

    shared = {"WORLD_SIZE": str(len(places)), "MASTER_ADDR": host, "MASTER_PORT": port}
    ranks = [actor(Rank, place, {**shared, "RANK": str(rank)}) for rank, place in enumerate(places)]
    references = [actor(Reference, place, {}) for place in places[: options.nodes * options.per_node]]
    return ranks, references


def join(ranks: list[Any], options: argparse.Namespace) -> None:
    """Form the groups."""
    log = options.nccl_log.read_text() if options.nccl_log else ""
    for rank, node, process in ray.get([each.join.remote(options.nodes * options.per_node, log) for each in ranks]):
        print(f"rank {rank} on {node} is process {process}", flush=True)


def lost(ranks: list[Any]) -> str:
    """Return which rank is lost. The others fail in a collective, maybe before Ray knows, or wait in it."""
    pending = {rank.__ray_ready__.remote(): number for number, rank in enumerate(ranks)}
    while pending and (done := ray.wait([*pending], timeout=60)[0]):
        number = pending.pop(done[0])
        try:
            ray.get(done[0])
        except ray.exceptions.RayActorError:
            return f"rank {number} is lost"
    return "a rank failed"


def train(options: argparse.Namespace, ranks: list[Any]) -> None:
    """Train. The ranks are added to the list first."""
    placed, references = start(options)
    ranks += placed
    join(ranks, options)
    saved = sorted(options.folder.glob("step-*.pt")) if options.resume else []
    done = int(saved[-1].stem.removeprefix("step-")) if saved else 0
    if saved:
        ray.get([rank.load.remote(str(saved[-1])) for rank in ranks])
        print(f"resumed after step {done}", flush=True)
    for step in range(done + 1, options.steps + 1):
        [score] = set(ray.get([each.score.remote(step) for each in references]))
        [total] = set(ray.get([rank.step.remote(score) for rank in ranks]))
        ray.get(ranks[0].save.remote(str(options.folder / f"step-{step:06}.pt")))
        print(f"step {step}: {len(ranks)} ranks have the weights {total:.0f}", flush=True)
        time.sleep(options.pause)


def leave(options: argparse.Namespace) -> None:
    """Leave a detached actor, with as much as a policy has."""
    amount = {"num_gpus" if options.kind == "GPU" else "num_cpus": min(options.amount / 2, 0.5)}
    judge: Any = ray.remote(Reference).options(name=options.leave, lifetime="detached", **amount)
    ray.get(judge.remote().score.remote(0))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True, help="checkpoints, on storage that all nodes share")
    parser.add_argument("--like", choices=("verl", "nemo-rl"), default="verl")
    parser.add_argument("--kind", choices=("CPU", "GPU"), default="CPU")
    parser.add_argument("--amount", type=float, default=0.5, help="CPUs or GPUs of a bundle")
    for name, value in (("nodes", 2), ("per-node", 2), ("rollouts", 4), ("steps", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--pause", type=float, default=0, help="seconds between steps")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--leave", metavar="NAME", help="leave a detached actor, and do not train")
    parser.add_argument("--nccl-log", type=Path, help="text for NCCL_DEBUG_FILE")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    initialize(options.like)
    if options.leave:
        leave(options)
        return 0
    ranks: list[Any] = []
    try:
        train(options, ranks)
    except (ray.exceptions.RayActorError, ray.exceptions.RayTaskError) as error:
        if isinstance(cause := getattr(error, "cause", None), ArithmeticError):
            print(cause, flush=True)
            return WRONG
        print(f"ended: {lost(ranks)}", flush=True)
        return LOST
    return 0


if __name__ == "__main__":
    sys.exit(main())
