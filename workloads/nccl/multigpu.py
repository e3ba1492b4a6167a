"""Multi-GPU check: a gang of one worker per node with all of its GPUs, in one all-reduce of ray.util.collective.

Tensors hold ones on even devices and twos on odd devices (as nccl_allreduce_multigpu.py in the DRANET examples): with
8 devices on each of 2 nodes, every element is 4·1 + 4·2 = 12 per node, 24 in total. The driver runs as a Ray job:

python -m workloads.nccl.multigpu OPTIONS_JSON
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

from workloads.exits import Exit, WorkloadError
from workloads.nccl.driver import run
from workloads.nccl.gang import EXTRA_PATIENCE_S, BenchGang
from workloads.nccl.kinds import RankPosition
from workloads.nccl.options import MultiGpuOptions
from workloads.nccl.result import Member, MultiGpuResult, MultiGpuWorker, Process
from workloads.results.events import emit

ELEMENTS = 4  # of each tensor
RAN = {
    "nccl": "ray.util.collective.allreduce_multigpu over NCCL, with one tensor on each GPU",
    "gloo": "ray.util.collective.allreduce over gloo between the nodes; each worker added up its own tensors",
}


class DeviceGang(BenchGang):
    """A worker per node. They form their group with ray.util.collective, over the backend that all of them have."""

    rank: ClassVar[str] = "workloads.nccl.multigpu_rank:DeviceRank"

    def __init__(self, options: MultiGpuOptions) -> None:
        super().__init__(options)
        self.devices, self.backend = options.gpus_per_rank, str(options.backend)
        self.notice: str | None = None
        self.no_nccl: list[str | None] = []
        self.name = f"multigpu-{secrets.token_hex(4)}"  # unique: a group that an earlier run left would collide

    def _join(self) -> None:
        self.no_nccl = self.call("no_nccl", self.devices, what="checking for NCCL")
        self.backend, self.notice = choose(self.backend, self.options.use_gpu, self.members, self.no_nccl)
        patience = self.options.timeout_s + EXTRA_PATIENCE_S
        arguments = {
            rank: (self.backend, RankPosition(rank, self.nodes, 1), self.name, member.ip, patience)
            for rank, member in enumerate(self.members)
        }
        self._ask("join_group", arguments, "the rendezvous", self.options.timeout_s)


def start(device: int) -> float:
    """Return the value of this device's elements before the all-reduce."""
    return 1.0 if device % 2 == 0 else 2.0


def expected(nodes: int, devices: int) -> float:
    """Return the value of all elements after the all-reduce, with this many devices on each node."""
    return nodes * sum(map(start, range(devices)))


def count_wrong(tensors: Sequence[Sequence[float]], value: float) -> int:
    """Count the elements that are not `value`; all elements of a tensor with another length are wrong."""
    return sum(
        sum(element != value for element in tensor) if len(tensor) == ELEMENTS else ELEMENTS for tensor in tensors
    )


def choose(
    backend: str, use_gpu: bool, members: Sequence[Member], no_nccl: Sequence[str | None]
) -> tuple[str, str | None]:
    """Return `nccl` or `gloo`, and the parts that are therefore not tested.

    WorkloadError with NOT_AS_ASKED if a node with GPUs cannot use NCCL and gloo was not requested: gloo's result would
    say nothing about the GPUs.
    """
    if backend == "gloo":
        return "gloo", "gloo was requested: neither NCCL nor a GPU took part"
    if not use_gpu:
        return "gloo", "the nodes have no GPUs: the same numbers over gloo; neither NCCL nor a GPU was tested"
    missing = [f"  {member.host} ({member.ip}): {why}" for member, why in zip(members, no_nccl, strict=True) if why]
    if missing:
        raise WorkloadError(
            "\n".join(["nothing was tested: allreduce_multigpu cannot run on", *missing])
            + "\ninstall cupy-cuda12x or cupy-cuda13x, whichever matches the image's CUDA, into the image of ray.image;"
            " --backend gloo checks the sums without the GPUs",
            Exit.NOT_AS_ASKED,
        )
    return "nccl", None


def judge(options: MultiGpuOptions, workers: Sequence[MultiGpuWorker], backend: str) -> tuple[Exit, str]:
    """Return the exit code and the reason: every element of every tensor on every worker has to be right."""
    nodes, devices = options.nodes, options.gpus_per_rank
    value, elements = expected(nodes, devices), nodes * devices * ELEMENTS
    if len(workers) != nodes or any(len(worker.tensors) != devices for worker in workers):
        return Exit.ERROR, f"tensors are missing: {nodes} workers with {devices} each were requested"
    if wrong := sum(worker.wrong for worker in workers):
        ranks = ", ".join(str(worker.rank) for worker in workers if worker.wrong)
        return Exit.WRONG_DATA, f"{wrong} of {elements} elements are not {value:g}, on worker {ranks} ({backend})"
    if not all(worker.group_destroyed for worker in workers):
        return Exit.ERROR, "every element is right, but a worker could not destroy its group"
    return Exit.OK, f"{value:g} everywhere: {elements} elements of {nodes * devices} tensors ({backend})"


def main(text: str) -> int:
    """Run the check with these options, and return the process's exit code."""
    options = MultiGpuOptions.from_json(text)
    gang = DeviceGang(options)

    def measure(found: dict[str, Any]) -> tuple[Exit, str]:
        workers: list[MultiGpuWorker] = found.setdefault("workers", [])
        value = expected(options.nodes, gang.devices)
        with gang:
            emit("phase", name="reduce")
            tensors = gang.call("all_reduce", gang.backend, gang.devices, what="the all-reduce")
            if options.inject_fault:
                spoiled = int(options.inject_fault.partition(":")[2])
                tensors[spoiled][-1].values[-1] += 1
            destroyed = gang.call("leave_group", what="leaving the group")
            found |= {
                "backend": gang.backend,
                "ran": RAN[gang.backend],
                "notice": gang.notice,
                "machines": gang.machines,
                "expected": value,
                "versions": gang.call("versions", what="reading the versions")[0],
                "group": gang.name,
            }
        logs = {one.rank: one.log for one in gang.evidence.ranks} if gang.evidence else {}
        for member in gang.members:
            workers.append(
                MultiGpuWorker(
                    **member.model_dump(include=set(Process.model_fields)),
                    no_nccl=gang.no_nccl[member.rank],
                    tensors=tensors[member.rank],
                    wrong=count_wrong([tensor.values for tensor in tensors[member.rank]], value),
                    log=logs.get(member.rank),
                    group_destroyed=destroyed[member.rank],
                )
            )
        return judge(options, workers, gang.backend)

    return run(options, measure, MultiGpuResult)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
