"""Health of GPUs over a run, from NVML: clocks and their limits, temperature, power, memory errors, Xid errors.

Ray ships NVIDIA's bindings (13.580 in Ray 2.60); few images have the package nvidia-ml-py. They are imported on use,
because Ray's copy is private. Nothing here raises: `missing` lists values that cannot be read, with the reason.

Source: NVIDIA/go-nvml, gen/nvml/nvml.h of CUDA 12.8 to 13.3, read Nov 2026. From the A100 on, GPUs remap rows of memory
instead of retiring pages, so only remapped rows are read.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from workloads.results.documents import ResultPart

BINDINGS = "ray._private.thirdparty.pynvml"
# nvmlClocksEventReason…, the bits of what limits the clocks now.
REASONS = (
    *("GpuIdle", "ApplicationsClocksSetting", "SwPowerCap", "HwSlowdown", "SyncBoost", "SwThermalSlowdown"),
    *("HwThermalSlowdown", "HwPowerBrakeSlowdown", "DisplayClockSetting"),
)
THROTTLING = ("SwThermalSlowdown", "HwThermalSlowdown", "HwPowerBrakeSlowdown")
"""Reasons that are faults of cooling or power supply.

SwPowerCap is not: the clocks are "optimized to ensure not to exceed currently set power limits", as usual under load.
HwSlowdown covers two of these, and "may be also reported during PState or clock change" (nvml.h).
"""
LEAST_SHARE = 0.01  # of a run's time that counts as throttled
APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Xid errors of applications, after which the GPU "should still be healthy".

Source: NVIDIA/k8s-device-plugin, internal/rm/health.go, read Nov 2026.
"""
MOST_EVENTS = 1000  # Xid errors read per process
READS: Mapping[str, Callable[[Any, Any], Any]] = {
    "sm_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "sm_max_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "memory_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
    "memory_max_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_MEM),
    "reasons": lambda nvml, gpu: _named(nvml, nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)),
    "power_w": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
    "power_limit_w": lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3,
    "temperature_c": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    "margin_c": lambda nvml, gpu: nvml.nvmlDeviceGetMarginTemperature(gpu),
    "ecc_corrected": lambda nvml, gpu: _ecc(nvml, gpu, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
    "ecc_uncorrected": lambda nvml, gpu: _ecc(nvml, gpu, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
    "remapped": lambda nvml, gpu: [int(count) for count in nvml.nvmlDeviceGetRemappedRows(gpu)],
}


class GpuReading(ResultPart):
    """State of a GPU at one time; None if it cannot be read.

    Attributes:
        reasons: Reasons that limit the clocks, by NVML's names (`GpuIdle`).
        margin_c: °C to the nearest threshold at which the GPU slows down.
        ecc_corrected: Memory errors since the driver was loaded; `ecc_uncorrected` likewise.
        remapped: Rows of memory remapped after corrected and after uncorrected errors, whether a remapping waits for a
            reset of the GPU, and whether one has ever failed.
    """

    sm_mhz: int | None = None
    sm_max_mhz: int | None = None
    memory_mhz: int | None = None
    memory_max_mhz: int | None = None
    reasons: list[str] | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: int | None = None
    margin_c: int | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    remapped: list[int] | None = None


class Gpu(ResultPart):
    """A GPU before and after a run of `seconds`.

    `limited_s` are the seconds of the run in which a reason held the clocks down, as the driver counts them. `xids` are
    the Xid errors of the run.
    """

    pci: str
    uuid: str | None
    seconds: float
    before: GpuReading
    after: GpuReading
    limited_s: dict[str, float]
    xids: list[int]

    @property
    def throttled(self) -> dict[str, float | None]:
        """Reasons of THROTTLING for 1 % of the run or more, with their seconds.

        A reason whose time the driver does not count applies (None) if it is in a reading.
        """
        found: dict[str, float | None] = {}
        for reason in THROTTLING:
            seconds = self.limited_s.get(reason)
            if seconds is None:
                seen = reason in (self.before.reasons or []) or reason in (self.after.reasons or [])
                found |= {reason: None} if seen else {}
            elif seconds > 0 and seconds >= LEAST_SHARE * self.seconds:
                found[reason] = seconds
        return found

    @property
    def uncorrected(self) -> int:
        """Uncorrected memory errors of the run. After a reset of the counter during the run: those since."""
        before, after = self.before.ecc_uncorrected, self.after.ecc_uncorrected
        return 0 if before is None or after is None else after - before if after >= before else after

    @property
    def slowed(self) -> str:
        """`00000000:3b:00.0 (HwThermalSlowdown 12.3 of 60.1 s, 88 °C)` if the GPU was throttled, otherwise empty."""
        parts = [
            f"{reason} {'in a reading' if seconds is None else f'{seconds:.1f} of {self.seconds:.1f} s'}"
            for reason, seconds in self.throttled.items()
        ]
        if parts and self.after.temperature_c is not None:
            parts.append(f"{self.after.temperature_c} °C")
        return f"{self.pci} ({', '.join(parts)})" if parts else ""

    @property
    def troubles(self) -> list[str]:
        """`throttled: …` and `errors`; empty for a healthy GPU."""
        return [*([f"throttled: {self.slowed}"] if self.slowed else []), *self.errors]

    @property
    def errors(self) -> list[str]:
        """Xid errors, and the number of uncorrected memory errors if there are any."""
        memory = [f"{self.uncorrected} uncorrected memory errors"] if self.uncorrected else []
        return [*(f"Xid {xid}" for xid in dict.fromkeys(self.xids)), *memory]


@dataclass
class _Watched:
    """A GPU under watch, as it was at the start."""

    gpu: Any
    pci: str
    uuid: str
    began: float
    reading: GpuReading
    times: dict[str, int]


class GpuWatch:
    """Reads the GPUs of this process: call `start` before the run, `finish` once after it. Neither raises.

    Args:
        properties: Returns torch.cuda.get_device_properties of each GPU, if there is one. Their PCI addresses identify
            them whatever CUDA_VISIBLE_DEVICES holds; that of a MIG instance is its GPU's, which has clocks and errors.
        bindings: Returns NVIDIA's bindings.
    """

    def __init__(
        self,
        properties: Callable[[], Sequence[Any]],
        bindings: Callable[[], Any] = lambda: importlib.import_module(BINDINGS),
    ) -> None:
        self.properties, self.bindings = properties, bindings
        self.missing: list[str] = []
        self.nvml: Any = None
        self.events: Any = None
        self.fields: dict[str, int] = {}
        self.watched: list[_Watched] = []

    def start(self) -> None:
        """Read the GPUs, and begin to record their Xid errors."""
        self._try("all of it", self._start)

    def finish(self) -> list[Gpu]:
        """Return the GPUs' health since `start`."""
        gpus: list[Gpu] = self._try("all of it", self._finish) or []
        self.missing = list(dict.fromkeys(self.missing))
        return gpus

    def read_all(self) -> dict[str, GpuReading]:
        """Return the state of every GPU of this node, by UUID; empty without NVIDIA's driver."""
        return self._try("all of it", self._read_all) or {}

    def _read_all(self) -> dict[str, GpuReading]:
        nvml = self.nvml = self.bindings()
        nvml.nvmlInit()
        return {uuid: self._reading(gpu) for uuid, gpu in handles(nvml).items()}

    def _start(self) -> None:
        addresses = [address(one) for one in self.properties()]
        if not addresses:
            return
        nvml = self.bindings()
        nvml.nvmlInit()
        self.nvml = nvml
        self.fields = self._try("times of throttling", lambda: counters(nvml)) or {}
        for pci in addresses:
            gpu = nvml.nvmlDeviceGetHandleByPciBusId(pci)
            self._try("Xid errors", partial(self._record, gpu))
            uuid, reading, times = nvml.nvmlDeviceGetUUID(gpu), self._reading(gpu), self._times(gpu)
            self.watched.append(_Watched(gpu, pci, uuid, time.monotonic(), reading, times))

    def _record(self, gpu: Any) -> None:
        if self.events is None:
            self.events = self.nvml.nvmlEventSetCreate()
        self.nvml.nvmlDeviceRegisterEvents(gpu, self.nvml.nvmlEventTypeXidCriticalError, self.events)

    def _finish(self) -> list[Gpu]:
        if self.nvml is None:
            return []
        gpus, xids = [], self._xids()
        for one in self.watched:
            times, seconds = self._times(one.gpu), time.monotonic() - one.began
            gpus.append(
                Gpu(
                    pci=one.pci,
                    uuid=one.uuid,
                    seconds=round(seconds, 3),
                    before=one.reading,
                    after=self._reading(one.gpu),
                    limited_s={
                        name: max(0, times[name] - before) / 1e9 for name, before in one.times.items() if name in times
                    },
                    xids=xids.get(one.uuid, []),
                )
            )
        self.nvml.nvmlShutdown()  # NVML counts its users: torch's use of it goes on
        return gpus

    def _xids(self) -> dict[str, list[int]]:
        """Return the Xid errors recorded since `start`, by UUID. On Linux each event has its own."""
        xids: dict[str, list[int]] = {}
        try:
            for uuid, xid in recorded(self.nvml, self.events):
                xids.setdefault(uuid, []).append(xid)
        except Exception as error:
            if getattr(error, "value", None) != self.nvml.NVML_ERROR_TIMEOUT:  # no further event
                self._miss("Xid errors", error)
        if self.events is not None:
            self._try("Xid errors", lambda: self.nvml.nvmlEventSetFree(self.events))
        return xids

    def _reading(self, gpu: Any) -> GpuReading:
        return GpuReading(**{name: self._try(name, partial(read, self.nvml, gpu)) for name, read in READS.items()})

    def _times(self, gpu: Any) -> dict[str, int]:
        """Return the nanoseconds that each reason has held the clocks down, as far as the driver counts them."""
        times = {}
        values = self._try(
            "times of throttling", lambda: self.nvml.nvmlDeviceGetFieldValues(gpu, [*self.fields.values()])
        )
        for name, value in zip(self.fields, values or (), strict=False):
            if value.nvmlReturn:
                self._miss(f"time of {name}", self.nvml.NVMLError(value.nvmlReturn))
            else:
                times[name] = int(value.value.ullVal)
        return times

    def _try(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:  # NVML's errors, an older Ray without a function, no bindings
            self._miss(what, error)
            return None

    def _miss(self, what: str, error: Exception) -> None:
        self.missing.append(f"GPU health: {what}: {error}")


def handles(nvml: Any) -> dict[str, Any]:
    """Return NVML's handle of every GPU of this node, by UUID, in the order of their indexes."""
    gpus = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    return {nvml.nvmlDeviceGetUUID(gpu): gpu for gpu in gpus}


def recorded(nvml: Any, events: Any) -> Iterator[tuple[str, int]]:
    """Yield the UUID and the number of each Xid error in a set of events. NVML's timeout is raised after the last."""
    for _ in range(MOST_EVENTS if events is not None else 0):
        event = nvml.nvmlEventSetWait_v2(events, 1)
        yield nvml.nvmlDeviceGetUUID(event.device), int(event.eventData)


def address(properties: Any, domain: int = 8) -> str:
    """Return the PCI address of torch's device properties: `domain` digits are 8 in NVML, 4 in sysfs (as in pytorch:
    torch/numa/binding.py, 2.15.0)."""
    parts = properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id
    return f"{parts[0]:0{domain}x}:{parts[1]:02x}:{parts[2]:02x}.0"


def counters(nvml: Any) -> dict[str, int]:
    """Return NVML's fields that count the nanoseconds of each reason, by reason.

    The first two have always had the same ids. The others moved: nvml.h has 252 and 253 in CUDA 12.9 and 13.0 (drivers
    575 and 580), 270 and 271 from 13.1 on (driver 590), where 252 and 253 are settings of power smoothing, and none
    before. So the driver decides, not the bindings, whose constants are right for one driver only.
    """
    driver = int(str(nvml.nvmlSystemGetDriverVersion()).partition(".")[0])
    found = {
        "SwPowerCap": nvml.NVML_FI_DEV_PERF_POLICY_POWER,
        "SwThermalSlowdown": nvml.NVML_FI_DEV_PERF_POLICY_THERMAL,
    }
    if driver >= 575:
        thermal = 252 if driver < 590 else 270
        found |= {"HwThermalSlowdown": thermal, "HwPowerBrakeSlowdown": thermal + 1}
    return found


def _ecc(nvml: Any, gpu: Any, kind: int) -> int:
    return int(nvml.nvmlDeviceGetTotalEccErrors(gpu, kind, nvml.NVML_VOLATILE_ECC))


def _named(nvml: Any, bits: int) -> list[str]:
    return [name for name in REASONS if bits & getattr(nvml, f"nvmlClocksEventReason{name}")]
