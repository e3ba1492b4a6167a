"""Probe of one node: its processors and memory, its GPUs from NVML, its RDMA NICs from the kernel's counters.

Ray's agents serve utilization and memory of GPUs, but not NICs, throttling, Xid errors and clocks (Ray 2.60).
Nothing here raises: a value that cannot be read is None or in `missing`.
"""

from __future__ import annotations

import importlib
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from workloads.hardware.gpu import BINDINGS, READS, handles, recorded
from workloads.hardware.nic import INFINIBAND, difference, natural, nics, read_counters
from workloads.hardware.nic import Reading as Counters
from workloads.monitor.snapshot import GpuState, NicState, Reading

_READ = {name: READS[name] for name in ("power_w", "power_limit_w", "temperature_c", "sm_mhz", "sm_max_mhz")} | {
    "name": lambda nvml, gpu: str(nvml.nvmlDeviceGetName(gpu)),
    "utilization": lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "memory_used": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu, None).used,
    "memory_total": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu, None).total,
    "limited_by": READS["reasons"],
    "ecc_uncorrected": READS["ecc_uncorrected"],
}


class Probe:
    """Reads its node each time that `read` runs. Rates are those between two reads.

    Args:
        gbps: Line rate of each NIC; None to take the NIC's own.
        root: Folder of the kernel's RDMA devices.
        bindings: Returns NVIDIA's bindings.
    """

    def __init__(
        self,
        gbps: float | None = None,
        root: Path = INFINIBAND,
        bindings: Callable[[], Any] = lambda: importlib.import_module(BINDINGS),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.gbps, self.root, self.clock = gbps, root, clock
        self.missing: list[str] = []
        self.first: Counters = {}
        self.last: tuple[float, Counters] | None = None
        """Time and counters of the previous reading."""
        self.nvml: Any = None
        self.gpus: dict[str, Any] = {}
        self.events: Any = None
        self.xids: dict[str, list[int]] = {}
        try:
            self._open(bindings())
        except Exception as error:  # no bindings, no driver
            self.missing.append(f"GPUs: {error}")

    def read(self) -> Reading:
        """Return the node's state now. Without an earlier reading, values that cover an interval are None."""
        self._collect_xids()
        now, counters, host = self.clock(), read_counters(self.root) or {}, _host()
        seconds = None if self.last is None else max(1e-3, now - self.last[0])
        if seconds is None:
            host["cpu_percent"] = None
        reading = Reading(
            seconds=seconds,
            **host,
            gpus=[self._gpu(index, uuid, gpu) for index, (uuid, gpu) in enumerate(self.gpus.items())],
            nics=self._nics(counters, seconds),
            missing=self.missing,
        )
        self.last = now, counters
        return reading

    def _open(self, nvml: Any) -> None:
        nvml.nvmlInit()
        self.nvml = nvml
        self.gpus = handles(nvml)
        try:
            events = nvml.nvmlEventSetCreate()
            for gpu in self.gpus.values():
                nvml.nvmlDeviceRegisterEvents(gpu, nvml.nvmlEventTypeXidCriticalError, events)
            self.events = events
        except Exception as error:
            self.missing.append(f"Xid errors: {error}")

    def _gpu(self, index: int, uuid: str, gpu: Any) -> GpuState:
        values = {name: _try(partial(read, self.nvml, gpu)) for name, read in _READ.items()}
        return GpuState(index=index, xids=self.xids.get(uuid, []), **values)

    def _collect_xids(self) -> None:
        # The wait ends with an error once there is no further event.
        with suppress(Exception):
            for uuid, xid in recorded(self.nvml, self.events):
                found = self.xids.setdefault(uuid, [])
                if xid not in found:
                    found.append(xid)

    def _nics(self, counters: Counters, seconds: float | None) -> list[NicState]:
        self.first = {name: self.first.get(name, values) for name, values in counters.items()}
        changed = {change.nic: change.errors for change in difference(self.first, counters)[0]}
        rates: dict[str, tuple[float, float]] = {}
        if self.last is not None and seconds is not None:
            for change in difference(self.last[1], counters)[0]:
                # After a restart of the NIC, the counters do not cover the interval.
                if not change.reset:
                    rates[change.nic] = _gbps(change.sent, seconds), _gbps(change.received, seconds)
        return [
            NicState(
                name=nic.name,
                state=nic.state,
                gbps=self.gbps or line_rate(nic.rate),
                sent_gbps=rates.get(nic.name, (None, None))[0],
                received_gbps=rates.get(nic.name, (None, None))[1],
                errors=changed.get(nic.name, {}),
            )
            for nic in sorted(nics(self.root), key=lambda nic: natural(nic.name))
        ]


def _gbps(count: int, seconds: float) -> float:
    """Return the Gbit/s of so many bytes in so many seconds."""
    return round(count * 8e-9 / seconds, 2)


def line_rate(text: str | None) -> float | None:
    """Return the Gbit/s in the kernel's `400 Gb/sec (4X NDR)`; None if there are none."""
    found = re.match(r"(\d{1,5}(?:\.\d{1,3})?) Gb/sec", text or "", re.ASCII)
    return float(found[1]) if found else None


def _host() -> dict[str, Any]:
    """Return processors and memory of the node as Ray's own agent reads them: those of the pod, where there is one."""

    def cpu() -> float:
        from ray.dashboard import k8s_utils

        in_pod: Callable[[], float] = k8s_utils.cpu_percent  # untyped in Ray
        return in_pod() if "KUBERNETES_SERVICE_HOST" in os.environ else psutil.cpu_percent()

    def memory(name: str) -> int:
        from ray._private import utils

        return int(getattr(utils, name)())

    return {
        "cpu_percent": _try(cpu),
        "memory_used": _try(partial(memory, "get_used_memory")),
        "memory_total": _try(partial(memory, "get_system_memory")),
    }


def _try(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception:  # NVML's errors, another Ray
        return None
