"""GPUs by NVML: a double of the bindings, whose names, parameters and constants are those of Ray's real copy."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from ray._private.thirdparty import pynvml

from tests.workloads.nccl.results import fabric
from tests.workloads.nccl.test_evidence_collect import started
from workloads.evidence.facts import Evidence, RankEvidence
from workloads.hardware import gpu as health
from workloads.hardware.gpu import Gpu, GpuReading, GpuWatch
from workloads.nccl.judge.verdict import verdict_of
from workloads.nccl.page.page import page
from workloads.nccl.problems import node_problems
from workloads.nccl.result import BenchResult, Verdict

PCI = "00000000:3b:00.0"
ERROR: Any = pynvml.NVMLError  # untyped in the bindings
PROPERTIES = SimpleNamespace(pci_domain_id=0, pci_bus_id=0x3B, pci_device_id=0)


class Nvml:
    """One GPU. `fields` are counters by id, `absent` are calls that the driver does not support."""

    def __init__(self, driver: str = "580.65.06") -> None:
        self.driver, self.reasons, self.uncorrected = driver, pynvml.nvmlClocksEventReasonGpuIdle, 0
        self.fields: dict[int, int] = {}
        self.absent: set[str] = set()
        self.xids: list[int] = []
        self.users = 0

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith(("nvml", "NVML")):
            return super().__getattribute__(name)
        real = getattr(pynvml, name)  # AttributeError for a name that the bindings do not have
        if not inspect.isfunction(real):
            return real
        if name in self.absent:
            raise ERROR(pynvml.NVML_ERROR_NOT_SUPPORTED)
        double = super().__getattribute__(name)
        count = len(inspect.signature(inspect.unwrap(real)).parameters)

        def call(*arguments: object) -> Any:
            assert len(arguments) == count, name
            return double(*arguments)

        return call

    def nvmlInit(self) -> None:  # noqa: N802
        self.users += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.users -= 1

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return self.driver

    def nvmlDeviceGetHandleByPciBusId(self, pci: str) -> str:  # noqa: N802
        assert pci == PCI
        return "handle"

    def nvmlDeviceGetUUID(self, _: str) -> str:  # noqa: N802
        return "GPU-1"

    def nvmlEventSetCreate(self) -> list[int]:  # noqa: N802
        return []

    def nvmlDeviceRegisterEvents(self, _gpu: str, kind: int, events: list[int]) -> None:  # noqa: N802
        assert kind == pynvml.nvmlEventTypeXidCriticalError
        events.append(kind)

    def nvmlEventSetWait_v2(self, events: list[int], _ms: int) -> Any:  # noqa: N802
        if not events or not self.xids:
            raise ERROR(pynvml.NVML_ERROR_TIMEOUT)
        return SimpleNamespace(device="handle", eventData=self.xids.pop(0))

    def nvmlEventSetFree(self, events: list[int]) -> None:  # noqa: N802
        events.clear()

    def nvmlDeviceGetClockInfo(self, _: str, kind: int) -> int:  # noqa: N802
        return {pynvml.NVML_CLOCK_SM: 345, pynvml.NVML_CLOCK_MEM: 2619}[kind]

    def nvmlDeviceGetMaxClockInfo(self, _: str, kind: int) -> int:  # noqa: N802
        return {pynvml.NVML_CLOCK_SM: 1980, pynvml.NVML_CLOCK_MEM: 3201}[kind]

    def nvmlDeviceGetCurrentClocksEventReasons(self, _: str) -> int:  # noqa: N802
        return self.reasons

    def nvmlDeviceGetPowerUsage(self, _: str) -> int:  # noqa: N802
        return 71_500

    def nvmlDeviceGetEnforcedPowerLimit(self, _: str) -> int:  # noqa: N802
        return 700_000

    def nvmlDeviceGetTemperature(self, _: str, sensor: int) -> int:  # noqa: N802
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        return 31

    def nvmlDeviceGetMarginTemperature(self, _: str) -> int:  # noqa: N802
        return 55

    def nvmlDeviceGetTotalEccErrors(self, _: str, kind: int, counter: int) -> int:  # noqa: N802
        assert counter == pynvml.NVML_VOLATILE_ECC
        return self.uncorrected if kind == pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED else 4

    def nvmlDeviceGetRemappedRows(self, _: str) -> tuple[int, int, int, int]:  # noqa: N802
        return 1, 0, 0, 0

    def nvmlDeviceGetFieldValues(self, _: str, ids: list[int]) -> Any:  # noqa: N802
        values = (pynvml.c_nvmlFieldValue_t * len(ids))()
        for value, field in zip(values, ids, strict=True):
            value.fieldId, value.value.ullVal = field, self.fields.get(field, 0)
            value.nvmlReturn = 0 if field in self.fields else pynvml.NVML_ERROR_NOT_SUPPORTED
        return values


def watch(nvml: Nvml, **changes: Any) -> tuple[Gpu, list[str]]:
    """Watch the GPU over a run in which these of its values change."""
    watching = GpuWatch(lambda: [PROPERTIES], lambda: nvml)
    watching.start()
    vars(nvml).update(changes)
    [found] = watching.finish()
    assert nvml.users == 0
    return found, watching.missing


COUNTED = {74: 10**9, 75: 0, 252: 0, 253: 0}


def test_health_over_a_run() -> None:
    nvml = Nvml()
    nvml.fields, nvml.uncorrected = COUNTED, 2
    found, missing = watch(nvml, fields=COUNTED | {74: 31 * 10**9, 252: 12 * 10**9}, uncorrected=5, xids=[31, 79])
    assert missing == []
    assert (found.pci, found.uuid, found.xids, found.uncorrected) == (PCI, "GPU-1", [31, 79], 3)
    assert found.limited_s == {"SwPowerCap": 30} | dict.fromkeys(health.THROTTLING, 0) | {"HwThermalSlowdown": 12}
    assert found.throttled == {"HwThermalSlowdown": 12.0}
    assert found.before == GpuReading(
        sm_mhz=345,
        sm_max_mhz=1980,
        memory_mhz=2619,
        memory_max_mhz=3201,
        reasons=["GpuIdle"],
        power_w=71.5,
        power_limit_w=700,
        temperature_c=31,
        margin_c=55,
        ecc_corrected=4,
        ecc_uncorrected=2,
        remapped=[1, 0, 0, 0],
    )


def test_counters_are_those_of_the_driver() -> None:
    """Fields 252 and 253 are settings of power smoothing in drivers before 575 and from 590 on."""
    for driver, fields in (
        ("570.133.20", set()),
        ("575.51.03", {252, 253}),
        ("580.65.06", {252, 253}),
        ("590.44", {270, 271}),
    ):
        assert set(health.counters(Nvml(driver)).values()) == {74, 75} | fields
    bindings = (pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN, pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL)
    assert bindings == (252, 75)  # the bindings' constants fit driver 580 only


def test_throttling_without_a_counter_is_read_from_the_reasons() -> None:
    nvml = Nvml("570.133.20")
    nvml.fields = {74: 0, 75: 0}
    brake = pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown | pynvml.nvmlClocksEventReasonSwThermalSlowdown
    found, _ = watch(nvml, reasons=brake)
    # SwThermalSlowdown is counted, and no second of the run: it began afterwards.
    assert found.throttled == {"HwPowerBrakeSlowdown": None}
    assert found.slowed == f"{PCI} (HwPowerBrakeSlowdown in a reading, 31 °C)"


def test_what_cannot_be_read_is_missing_with_its_reason() -> None:
    nvml = Nvml()
    nvml.fields = {74: 0, 75: 0}
    nvml.absent = {"nvmlDeviceGetRemappedRows", "nvmlDeviceRegisterEvents"}
    found, missing = watch(nvml)
    assert (found.after.remapped, found.after.sm_mhz, found.throttled) == (None, 345, {})
    assert missing == [
        f"GPU health: {what}: Not Supported"
        for what in ("Xid errors", "remapped", "time of HwThermalSlowdown", "time of HwPowerBrakeSlowdown")
    ]
    for properties, bindings, reason in (
        (lambda: [PROPERTIES], lambda: pynvml, "NVML Shared Library Not Found"),
        (lambda: [PROPERTIES], lambda: SimpleNamespace(), "has no attribute 'nvmlInit'"),
        (lambda: [SimpleNamespace()], Nvml, "no attribute 'pci_domain_id'"),  # an older torch
    ):
        watching = GpuWatch(properties, bindings)
        watching.start()
        assert watching.finish() == []
        [missed] = watching.missing
        assert reason in missed


def test_collector_carries_gpus_of_its_rank(tmp_path: Any) -> None:
    rank = started(tmp_path)
    rank.gpus = GpuWatch(lambda: [PROPERTIES], Nvml)
    rank.start()
    found = rank.finish(with_log=False)
    assert found.evidence.gpus is not None
    assert found.evidence.gpus[0].pci == PCI
    assert "GPU health: time of SwPowerCap: Not Supported" in found.missing


def gpu(pci: str = PCI, after: dict[str, Any] | None = None, **changes: Any) -> Gpu:
    reading = GpuReading(sm_mhz=345, sm_max_mhz=1980, reasons=["GpuIdle"], temperature_c=40, ecc_uncorrected=0)
    healthy = Gpu(
        pci=pci,
        uuid=None,
        seconds=60,
        before=reading,
        after=reading.model_copy(update={"reasons": ["SwPowerCap", "HwSlowdown"]} | (after or {})),
        limited_s={"SwPowerCap": 50.0, "SwThermalSlowdown": 0.0, "HwThermalSlowdown": 0.0, "HwPowerBrakeSlowdown": 0.5},
        xids=[],
    )
    return healthy.model_copy(update=changes)


THROTTLED: dict[str, Any] = {"limited_s": {"HwThermalSlowdown": 12.3}}
SLOWED = f"{PCI} (HwThermalSlowdown 12.3 of 60.0 s, 40 °C)"


@pytest.mark.parametrize(
    ("gpus", "findings"),
    [
        ([gpu()], []),
        ([gpu(**THROTTLED), gpu("b")], [(0, "gpu-throttled", f"1 of 2 GPUs were throttled: {SLOWED}")]),
        ([gpu(xids=[79, 79, 48])], [(5, "gpu-xid", f"GPU {PCI} reported Xid 79, 48 during the run")]),
        ([gpu(xids=[31])], [(0, "gpu-xid", f"GPU {PCI} reported Xid 31 during the run")]),
        (
            [gpu(after={"ecc_uncorrected": 2})],
            [(5, "gpu-memory", f"GPU {PCI} counted 2 uncorrected memory errors during the run")],
        ),
        (
            [gpu(after={"remapped": [0, 1, 1, 0]})],
            [(0, "gpu-memory", f"GPU {PCI}: a remapping of memory rows waits for a reset of the GPU")],
        ),
    ],
)
def test_findings_on_gpus(gpus: list[Gpu], findings: list[tuple[int, str, str]]) -> None:
    ranks = [RankEvidence(rank=rank, log=None, counters=None, host="n", gpus=[one]) for rank, one in enumerate(gpus)]
    found = node_problems(Evidence(ranks=ranks, image=None, topology={}, missing=[]))
    assert [(one.code, one.kind, one.text.removeprefix("n: ")) for one in found] == findings


def run(share: float, *gpus: Gpu) -> BenchResult:
    """Return a run of 2 × 8 GPUs at a share of the fabric's usual speed; the first rank's GPUs are these."""
    result = fabric()
    assert result.evidence is not None
    rows = [
        row.model_copy(
            update={"busbw": row.busbw * share, "algbw": row.algbw * share}
            | {"time_us": row.time_us.model_copy(update={"max": row.time_us.max / share})}
        )
        for row in result.rows
        if row.op == "all_gather"
    ]
    first, *others = result.evidence.ranks
    evidence = result.evidence.model_copy(update={"ranks": [first.model_copy(update={"gpus": list(gpus)}), *others]})
    return result.model_copy(update={"rows": rows, "evidence": evidence})


def judged(share: float, *gpus: Gpu) -> Verdict:
    return verdict_of(run(share, *gpus), "a3-ultragpu-8g")


def test_slow_run_on_throttled_gpus_is_not_called_a_slow_fabric() -> None:
    assert (judged(1.0).code, judged(0.7).code, judged(0.7, gpu()).code) == (0, 2, 2)
    found = judged(0.7, gpu(**THROTTLED))
    assert (found.code, found.outcome) == (5, "fail")
    assert found.reason.endswith(f"GPUs were throttled: {SLOWED}; the figures below their floor do not show the fabric")
    # Fast enough all the same: a remark.
    assert (judged(1.0, gpu(**THROTTLED)).code, judged(1.0, gpu(xids=[79])).code) == (0, 5)
    local = verdict_of(run(1.0, gpu(xids=[79])).model_copy(update={"proves": "function"}), None)
    assert (local.code, "Xid 79" in local.reason) == (5, True)


def test_page_has_a_row_per_gpu() -> None:
    text = page(run(1.0, gpu(after={"temperature_c": 88}, xids=[79])))
    row = text[text.index("GPUs before and after") :].split("</tr>")[1]
    for cell in (PCI, "345, 345 of 1980", "SwPowerCap 50.0 s, HwPowerBrakeSlowdown 0.5 s", "40, 88", "Xid 79"):
        assert cell in row
    assert "GPUs before and after" not in page(fabric())
