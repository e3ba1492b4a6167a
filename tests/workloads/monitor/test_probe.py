"""The probe: rates from a tree of files like the kernel's, and GPUs from a double of NVIDIA's bindings."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.workloads.nccl.test_evidence_counters import EFA, MLX5, written_nic
from tests.workloads.nccl.test_evidence_gpu import Nvml
from workloads.monitor.probe import Probe, line_rate
from workloads.monitor.snapshot import GpuState, NicState


class Node:
    """A node with NICs under `root`, and a clock that the test moves."""

    def __init__(self, root: Path, nvml: Any = None, gbps: float | None = None) -> None:
        self.now = 100.0
        self.probe = Probe(gbps, root, lambda: nvml, clock=lambda: self.now)

    def nics(self, seconds: float = 0) -> list[NicState]:
        self.now += seconds
        return self.probe.read().nics


def test_rates_are_differences_over_the_time_between_two_readings(tmp_path: Path) -> None:
    port = written_nic(tmp_path, "mlx5_0", MLX5)
    (port / "state").write_text("4: ACTIVE\n")
    (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
    node = Node(tmp_path)
    assert node.nics() == [NicState(name="mlx5_0", state="ACTIVE", gbps=400)]
    # Units of four bytes: 25e9 of them in two seconds are 400 Gbit/s.
    written_nic(
        tmp_path, "mlx5_0", {"counters/port_xmit_data": 1_000 + 25_000_000_000, "counters/port_rcv_data": 2_000}
    )
    [found] = node.nics(seconds=2)
    assert (found.sent_gbps, found.received_gbps) == (400, 0)


def test_efa_counts_bytes_and_the_stack_knows_its_line_rate(tmp_path: Path) -> None:
    written_nic(tmp_path, "rdmap16s27", EFA)
    (written_nic(tmp_path, "rdmap16s27", {}) / "rate").write_text("100 Gb/sec (4X EDR)\n")
    node = Node(tmp_path, gbps=200)
    node.nics()
    written_nic(tmp_path, "rdmap16s27", {"hw_counters/tx_bytes": 10_000 + 12_500_000_000})
    [found] = node.nics(seconds=1)
    assert (found.sent_gbps, found.received_gbps, found.gbps) == (100, 0, 200)


@pytest.mark.parametrize(
    ("before", "after", "rate"),
    [
        (2**32 - 1_000, 249_999_000, 8.0),  # a counter of 32 bits starts over: 1e9 bytes in a second
        (9_000_000_000_000, 5_000, None),  # the NIC was restarted: the counter does not cover the interval
    ],
)
def test_wrapped_counter_has_a_rate_and_a_restarted_nic_has_none(
    tmp_path: Path, before: int, after: int, rate: float | None
) -> None:
    written_nic(tmp_path, "mlx5_0", {"counters/port_xmit_data": before, "counters/port_rcv_data": 0})
    node = Node(tmp_path)
    node.nics()
    written_nic(tmp_path, "mlx5_0", {"counters/port_xmit_data": after})
    [found] = node.nics(seconds=1)
    assert found.sent_gbps == rate
    written_nic(tmp_path, "mlx5_0", {"counters/port_xmit_data": after + 250_000_000})
    [found] = node.nics(seconds=1)
    assert found.sent_gbps == 8


def test_errors_stay_listed_and_a_nic_that_appears_has_no_rate_yet(tmp_path: Path) -> None:
    written_nic(tmp_path, "mlx5_0", MLX5)
    node = Node(tmp_path)
    node.nics()
    written_nic(tmp_path, "mlx5_0", {"counters/link_downed": 3})
    node.nics(seconds=1)
    written_nic(tmp_path, "mlx5_10", MLX5)
    written_nic(tmp_path, "mlx5_2", MLX5)
    found = node.nics(seconds=1)
    assert [(one.name, one.errors, one.sent_gbps) for one in found] == [
        ("mlx5_0", {"link_downed": 2}, 0), ("mlx5_2", {}, None), ("mlx5_10", {}, None),
    ]  # fmt: skip


def test_line_rate_of_what_the_kernel_writes() -> None:
    assert [line_rate(text) for text in ("400 Gb/sec (4X NDR)", "2.5 Gb/sec (1X SDR)", "unknown", None)] == [
        400, 2.5, None, None,
    ]  # fmt: skip


class TwoGpus(Nvml):
    """NVML with two GPUs. The second one is read without an error, and does not know its clocks."""

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        return ("handle", "other")[index]

    def nvmlDeviceGetUUID(self, gpu: str) -> str:  # noqa: N802
        return f"GPU-{gpu}"

    def nvmlDeviceGetName(self, _: str) -> str:  # noqa: N802
        return "NVIDIA H200"

    def nvmlDeviceGetUtilizationRates(self, gpu: str) -> Any:  # noqa: N802
        return SimpleNamespace(gpu={"handle": 97, "other": 3}[gpu])

    def nvmlDeviceGetMemoryInfo(self, _: str, _version: None) -> Any:  # noqa: N802
        return SimpleNamespace(used=10, total=100)


def test_gpus_by_index_with_what_nvml_knows(tmp_path: Path) -> None:
    nvml = TwoGpus()
    nvml.absent = {"nvmlDeviceGetClockInfo"}
    node = Node(tmp_path, nvml)
    first, second = node.probe.read().gpus
    assert (first.index, first.utilization, first.memory_used, first.sm_mhz) == (0, 97, 10, None)
    assert (second.index, second.utilization, second.alerts) == (1, 3, [])
    nvml.xids = [79, 79]
    nvml.reasons = nvml.nvmlClocksEventReasonHwThermalSlowdown
    node.probe.read()
    first, second = node.probe.read().gpus
    # NVML reports each event once; the probe keeps them.
    assert (first.xids, first.alerts, second.xids) == ([79], ["thermal", "Xid 79"], [])


def test_without_a_driver_the_reading_says_why(tmp_path: Path) -> None:
    found = Node(tmp_path).probe.read()
    assert (found.gpus, found.nics) == ([], [])
    assert found.missing[0].startswith("GPUs: ")
    assert found.memory_total is not None
    assert (found.seconds, found.cpu_percent) == (None, None)


def test_xid_of_an_application_is_no_alert() -> None:
    assert GpuState(index=0, xids=[13, 79], limited_by=["SwPowerCap"], ecc_uncorrected=2).alerts == ["Xid 79", "ECC 2"]
