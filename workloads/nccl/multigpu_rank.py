"""A worker of the multi-GPU check, in the process of its node with all of its devices."""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Any

import ray
import torch
from ray.util import collective as untyped

from workloads.nccl.kinds import RankPosition
from workloads.nccl.multigpu import ELEMENTS, start
from workloads.nccl.rank import Rank
from workloads.nccl.result import DeviceTensor

collective: Any = untyped


class DeviceRank(Rank):
    """A worker with all devices of its node: a tensor on each GPU, or all tensors on the CPU."""

    group = ""

    def no_nccl(self, devices: int) -> str | None:
        """Return the requirement of ray.util.collective for NCCL that this node lacks, or None."""
        if not self.use_gpu:
            return "no GPUs"
        if torch.cuda.device_count() < devices:
            return f"only {torch.cuda.device_count()} of {devices} GPUs are visible"
        try:
            importlib.import_module("cupy")  # not one of this project's packages
        except ImportError as error:
            return f"CuPy is missing ({error}), and ray.util.collective reaches NCCL through it"
        return None if collective.nccl_available() else f"CuPy {_version('cupy')} was built without NCCL"

    def versions(self) -> dict[str, str | None]:
        return {"ray": ray.__version__, "torch": torch.__version__, "cupy": _version("cupy")}

    def join_group(self, backend: str, place: RankPosition, group: str, own_ip: str, timeout_s: float) -> None:
        """Join `group` as worker `place.rank`. ray.util.collective finds the other workers through the cluster."""
        self._collect(place, own_ip, backend)
        collective.init_collective_group(
            place.world, place.rank, backend=backend, group_name=group, gloo_timeout=int(timeout_s * 1000)
        )
        self.group = group

    def all_reduce(self, backend: str, devices: int) -> list[DeviceTensor]:
        """Add up all tensors, and return the content of each afterward."""
        places = [f"cuda:{index}" if backend == "nccl" else "cpu" for index in range(devices)]
        tensors = [
            torch.full((ELEMENTS,), start(index), dtype=torch.float32, device=place)
            for index, place in enumerate(places)
        ]
        if backend == "nccl":
            # torch fills tensors on its streams, CuPy adds them on its own; neither waits for the other or the host.
            _synchronize(devices)
            collective.allreduce_multigpu(tensors, group_name=self.group)
            _synchronize(devices)
        else:
            # gloo accepts one tensor per process: a worker adds up its tensors first and copies the result after.
            total = torch.stack(tensors).sum(dim=0)
            collective.allreduce(total, group_name=self.group)
            for tensor in tensors:
                tensor.copy_(total)
        return [
            DeviceTensor(device=str(tensor.device), start=start(index), values=tensor.cpu().tolist())
            for index, tensor in enumerate(tensors)
        ]

    def leave_group(self) -> bool:
        """Destroy the group, and return whether it is gone."""
        collective.destroy_collective_group(self.group)
        return not collective.is_group_initialized(self.group)


def _version(package: str) -> str | None:
    with suppress(ImportError):
        return str(importlib.import_module(package).__version__)
    return None


def _synchronize(devices: int) -> None:
    for index in range(devices):
        torch.cuda.synchronize(index)
