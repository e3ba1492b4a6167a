"""NIC counters and links, read from a tree of files like the kernel's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.hardware import nic
from workloads.hardware.nic import Counter, Nic, difference, read_counters

MLX5 = {
    "counters/port_xmit_data": 1_000,
    "counters/port_rcv_data": 2_000,
    "counters/port_rcv_errors": 0,
    "counters/link_downed": 1,
    "counters/port_xmit_wait": 5,
    "hw_counters/out_of_sequence": 3,
    "hw_counters/np_cnp_sent": 7,
    "hw_counters/lifespan": 10,
}
EFA = {
    "hw_counters/tx_bytes": 10_000,
    "hw_counters/rx_bytes": 20_000,
    "hw_counters/rdma_write_bytes": 9_000,
    "hw_counters/retrans_pkts": 0,
    "hw_counters/rx_drops": 2,
}


def written_nic(root: Path, name: str, values: dict[str, int], port: int = 1) -> Path:
    """Write a NIC's files and return its folder; other files stay."""
    folder = root / name / "ports" / str(port)
    for file, value in values.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(f"{value}\n")
    return folder


def counted(root: Path, name: str, before: dict[str, int], after: dict[str, int]) -> Counter:
    """Return the counters of the only NIC between two readings; the second one changes the files in `after`."""
    written_nic(root, name, before)
    first = read_counters(root) or {}
    written_nic(root, name, after)
    [found], notes = difference(first, read_counters(root) or {})
    assert (found.nic, notes) == (name, [])
    return found


def test_port_data_counts_units_of_four_bytes(tmp_path: Path) -> None:
    found = counted(tmp_path, "mlx5_0", MLX5, {"counters/port_xmit_data": 251_000, "counters/port_rcv_data": 2_500})
    assert found == Counter(nic="mlx5_0", sent=1_000_000, received=2_000, errors={})


def test_changed_errors_and_congestion_are_reported(tmp_path: Path) -> None:
    after = {
        "counters/link_downed": 2,
        "hw_counters/out_of_sequence": 13,
        "hw_counters/np_cnp_sent": 8,
        "counters/port_xmit_wait": 9,
    }
    found = counted(tmp_path, "mlx5_0", MLX5, after)
    assert found.errors == {"link_downed": 1, "out_of_sequence": 10}
    assert found.congestion == {"np_cnp_sent": 1, "port_xmit_wait": 4}


def test_efa_counts_bytes_in_total_and_by_operation(tmp_path: Path) -> None:
    after = {"hw_counters/tx_bytes": 15_000, "hw_counters/rdma_write_bytes": 13_500, "hw_counters/retrans_pkts": 4}
    found = counted(tmp_path, "rdmap85s0", EFA, after)
    details = {"rdma_write_bytes": 4_500}
    assert found == Counter(nic="rdmap85s0", sent=5_000, received=0, errors={"retrans_pkts": 4}, details=details)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**31 - 1))
def test_counter_overflow_is_followed(before: int, step: int) -> None:
    bits = 32 if before < 2**32 else 64
    after = (before + step) % 2**bits
    [found], _ = difference({"n": {"tx_bytes": before, "rx_bytes": 0}}, {"n": {"tx_bytes": after, "rx_bytes": 0}})
    assert found.sent == step
    assert not found.reset


def test_counter_reset_is_reported() -> None:
    [found], _ = difference({"n": {"tx_bytes": 2**40, "rx_bytes": 5}}, {"n": {"tx_bytes": 700, "rx_bytes": 5}})
    assert (found.sent, found.received, found.reset) == (700, 0, True)


def test_unreadable_counters_are_left_out(tmp_path: Path) -> None:
    folder = written_nic(tmp_path, "mlx5_0", MLX5)
    (folder / "counters" / "VL15_dropped").write_text("N/A (no PMA)\n")
    (folder / "counters" / "symbol_error").mkdir()
    (folder / "hw_counters" / "odd").write_bytes(b"\xff\xfe")
    found = read_counters(tmp_path) or {}
    assert found["mlx5_0"].keys() == {file.partition("/")[2] for file in MLX5}


def test_ports_of_one_nic_have_distinct_names(tmp_path: Path) -> None:
    written_nic(tmp_path, "mlx5_0", MLX5, port=1)
    written_nic(tmp_path, "mlx5_0", MLX5, port=2)
    assert list(read_counters(tmp_path) or {}) == ["mlx5_0:1", "mlx5_0:2"]


def test_reading_without_nic_is_none(tmp_path: Path) -> None:
    assert read_counters(tmp_path) is None
    assert read_counters(tmp_path / "absent") is None


def test_links_are_read_from_sysfs(tmp_path: Path) -> None:
    port = written_nic(tmp_path, "mlx5_0", MLX5)
    pci = tmp_path / "mlx5_0" / "0000:91:00.0"
    pci.mkdir()
    (tmp_path / "mlx5_0" / "device").symlink_to(pci)
    files = {port / "state": "4: ACTIVE", port / "rate": "400 Gb/sec (4X NDR)", port / "link_layer": "Ethernet"}
    for file, text in (files | {tmp_path / "mlx5_0" / "fw_ver": "28.39.1002", pci / "numa_node": "1"}).items():
        file.write_text(f"{text}\n")
    assert nic.nics(tmp_path) == [
        Nic(
            name="mlx5_0",
            state="ACTIVE",
            rate="400 Gb/sec (4X NDR)",
            link_layer="Ethernet",
            firmware="28.39.1002",
            pci="0000:91:00.0",
            numa_node=1,
        )
    ]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024\n", "550.90.07"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build\n", "570.133.20"),
        ("something else\n", None),
    ],
)
def test_driver_version_is_parsed(tmp_path: Path, text: str, version: str | None) -> None:
    (tmp_path / "version").write_text(text)
    assert nic.driver(tmp_path / "version") == version
    assert nic.driver(tmp_path / "absent") is None


def test_topology_is_command_output() -> None:
    print_it = "print('\\x1b[4m\\tGPU0\\tNIC0\\x1b[0m\\nGPU0\\t X \\tPIX')"
    assert nic.topology([sys.executable, "-c", print_it]) == "\tGPU0\tNIC0\nGPU0\t X \tPIX\n"
    assert nic.topology(["/absent/nvidia-smi", "topo", "-m"]) is None
    assert nic.topology([sys.executable, "-c", "raise SystemExit(6)"]) is None
