"""One worker of the check: a Ray actor with all devices of its node, in a group of ray.util.collective."""

from __future__ import annotations

import os
import platform
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
import torch
from ray.util import collective

from workloads.interfaces import interface_of
from workloads.nccl.evidence.log_reader import parse_log
from workloads.nccl.multigpu.values import ELEMENTS, start

NCCL_LOG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH"}


class Worker:
    """`devices` tensors, one per GPU, or all on the CPU where there are none."""

    def __init__(self, devices: int, use_gpu: bool) -> None:
        self.devices, self.use_gpu = devices, use_gpu
        self.group = ""
        self._folder = tempfile.TemporaryDirectory(prefix="rdma-ray-multigpu-")
        self.logs = Path(self._folder.name)

    def describe(self) -> dict[str, Any]:
        """Who and where this process is, and why it cannot use NCCL (`no_nccl`; None where it can)."""
        node_ip: Callable[[], str] = ray.util.get_node_ip_address  # untyped in Ray
        boot_id = Path("/proc/sys/kernel/random/boot_id")
        return {
            "host": socket.gethostname(),
            "machine": boot_id.read_text().strip() if boot_id.exists() else platform.node(),
            "ip": node_ip(),
            "node_id": ray.get_runtime_context().get_node_id(),
            "pid": os.getpid(),
            "no_nccl": self.no_nccl(),
        }

    def no_nccl(self) -> str | None:
        """What is missing for ray.util.collective over NCCL on this node, or None."""
        if not self.use_gpu:
            return "no GPUs"
        if torch.cuda.device_count() < self.devices:
            return f"only {torch.cuda.device_count()} of {self.devices} GPUs are visible"
        try:
            import cupy  # type: ignore[import-not-found,unused-ignore]  # not one of this project's packages
        except ImportError as error:
            return f"CuPy is missing ({error}), and ray.util.collective reaches NCCL through it"
        available: Callable[[], bool] = collective.nccl_available
        return None if available() else f"CuPy {cupy.__version__} came without NCCL"

    def versions(self) -> dict[str, str | None]:
        """Of what took part."""
        try:
            import cupy  # type: ignore[import-not-found,unused-ignore]

            cupy_version = str(cupy.__version__)
        except ImportError:
            cupy_version = None
        return {"ray": ray.__version__, "torch": torch.__version__, "cupy": cupy_version}

    def join(self, backend: str, world: int, rank: int, group: str, own_ip: str, timeout_s: float) -> None:
        """Become worker `rank` of `group`. ray.util.collective finds the others through the cluster."""
        if interface := interface_of(own_ip):
            # A host name that resolves to 127.0.0.1 would break gloo across nodes; what the image set, stays.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
        for name, value in NCCL_LOG.items():
            os.environ.setdefault(name, value)
        os.environ["NCCL_DEBUG_FILE"] = str(self.logs / "nccl.%p.log")
        init: Callable[..., None] = collective.init_collective_group
        init(world, rank, backend=backend, group_name=group, gloo_timeout=int(timeout_s * 1000))
        self.group = group

    def allreduce_multigpu(self) -> list[dict[str, Any]]:
        """Over NCCL: one call with a tensor on each GPU; what each holds afterwards."""
        tensors = [self._tensor(index, f"cuda:{index}") for index in range(self.devices)]
        # Tensors are filled on torch's streams and added up on CuPy's, which wait for neither each other nor the host.
        self._synchronize()
        reduce: Callable[..., None] = collective.allreduce_multigpu
        reduce(tensors, group_name=self.group)
        self._synchronize()
        return _read(tensors)

    def allreduce_over_nodes(self) -> list[dict[str, Any]]:
        """Over gloo, which takes one tensor of a process: the node's own are added up before and copied after."""
        tensors = [self._tensor(index, "cpu") for index in range(self.devices)]
        total = torch.stack(tensors).sum(dim=0)
        reduce: Callable[..., None] = collective.allreduce
        reduce(total, group_name=self.group)
        for tensor in tensors:
            tensor.copy_(total)
        return _read(tensors)

    def log(self) -> dict[str, Any]:
        """What NCCL said while it ran, as facts (evidence.facts.LogFacts)."""
        return parse_log("".join(path.read_text(errors="replace") for path in sorted(self.logs.iterdir()))).model_dump()

    def leave(self) -> bool:
        """Destroy the group and remove NCCL's logs; whether the group is gone."""
        destroy: Callable[[str], None] = collective.destroy_collective_group
        destroy(self.group)
        # Here, since Ray ends an actor's process without its clean-up.
        self._folder.cleanup()
        exists: Callable[[str], bool] = collective.is_group_initialized
        return not exists(self.group)

    def _tensor(self, index: int, device: str) -> torch.Tensor:
        return torch.full((ELEMENTS,), start(index), dtype=torch.float32, device=device)

    def _synchronize(self) -> None:
        for index in range(self.devices):
            torch.cuda.synchronize(index)


def _read(tensors: list[torch.Tensor]) -> list[dict[str, Any]]:
    return [
        {"device": str(tensor.device), "start": start(index), "values": tensor.cpu().tolist()}
        for index, tensor in enumerate(tensors)
    ]
