"""State of a node's RDMA NICs and GPUs, from the kernel: counters, links, driver version, PCI topology.

Counter names: Linux, Documentation/ABI/stable/sysfs-class-infiniband (port_xmit_data and port_rcv_data count units of
4 bytes); mlx5, NVIDIA's document on RDMA counters; EFA, Linux, drivers/infiniband/hw/efa/efa_verbs.c; read Nov 2026.
"""

from __future__ import annotations

import os.path
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from workloads.results.documents import ResultPart
from workloads.secrecy import redacted

INFINIBAND = Path("/sys/class/infiniband")
PCI = Path("/sys/bus/pci/devices")
DRIVER = Path("/proc/driver/nvidia/version")
TOPOLOGY = ("nvidia-smi", "topo", "-m")
TOPOLOGY_S = 30  # nvidia-smi loads the driver if no process keeps it loaded
LONGEST = 20_000  # characters of a topology: 8 GPUs and 32 NICs need 9,000


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ERRORS = _names(
    # every NIC (counters/)
    "symbol_error link_error_recovery link_downed port_rcv_errors port_rcv_remote_physical_errors"
    " port_rcv_switch_relay_errors port_xmit_discards port_xmit_constraint_errors port_rcv_constraint_errors"
    " local_link_integrity_errors excessive_buffer_overrun_errors VL15_dropped"
    # mlx5 (hw_counters/)
    " out_of_sequence out_of_buffer packet_seq_err local_ack_timeout_err rnr_nak_retry_err implied_nak_seq_err"
    " duplicate_request req_cqe_error resp_cqe_error req_remote_access_errors resp_remote_access_errors"
    " req_remote_invalid_request resp_local_length_error req_transport_retries_exceeded roce_adp_retrans"
    " roce_adp_retrans_to roce_slow_restart rx_icrc_encapsulated"
    # EFA (hw_counters/)
    " rx_drops retrans_bytes retrans_pkts retrans_timeout_events unresponsive_remote_events"
    " impaired_remote_conn_events rdma_read_wr_err rdma_write_wr_err"
)
CONGESTION = _names(
    "np_cnp_sent rp_cnp_handled rp_cnp_ignored np_ecn_marked_roce_packets roce_slow_restart_cnps port_xmit_wait"
)
DETAILS = _names("send_bytes recv_bytes rdma_read_bytes rdma_read_resp_bytes rdma_write_bytes rdma_write_recv_bytes")
# Bytes per unit: the counter of every NIC, and EFA's.
SENT, RECEIVED = {"port_xmit_data": 4, "tx_bytes": 1}, {"port_rcv_data": 4, "rx_bytes": 1}

_BRIDGE = re.compile(r"/pci[0-9a-f]{4,8}:[0-9a-f]{2}")  # host bridge in a device's path: /sys/devices/pci0000:00/…

Reading = dict[str, dict[str, int]]
"""Counters by name, by NIC: `mlx5_0`, or `mlx5_0:2` for the second port of a NIC with several."""


class Counter(ResultPart):
    """Counters of one NIC, after the run minus before: bytes sent and received, errors, congestion marks.

    `errors` and `congestion` hold the counters that changed. `details` are EFA's bytes by operation. `reset`: the NIC
    started again from zero during the run, so the values are lower bounds.
    """

    nic: str
    sent: int
    received: int
    errors: dict[str, int]
    congestion: dict[str, int] = {}
    details: dict[str, int] = {}
    reset: bool = False


class Nic(ResultPart):
    """Port of an RDMA NIC as the kernel shows it: `state` ACTIVE or DOWN, `rate` such as `400 Gb/sec (4X NDR)`."""

    name: str
    state: str | None
    rate: str | None
    link_layer: str | None
    firmware: str | None
    pci: str | None
    numa_node: int | None


def read_counters(root: Path = INFINIBAND) -> Reading | None:
    """Read the counters of the NICs under `root`; None without a NIC. Unreadable counters are left out."""
    counters: Reading = {}
    for port in _ports(root):
        files = [file for folder in ("counters", "hw_counters") for file in _entries(port / folder)]
        values = {file.name: _number(file) for file in files}
        counters[_port_name(port)] = {name: value for name, value in values.items() if value is not None}
    return counters or None


def difference(before: Reading, after: Reading) -> tuple[list[Counter], list[str]]:
    """Return each NIC's counters, after minus before, and notes on NICs that appeared or disappeared."""
    notes = [f"NIC {name} disappeared during the run" for name in before if name not in after]
    notes += [f"NIC {name} appeared during the run" for name in after if name not in before]
    return [_counter(name, before[name], after[name]) for name in before if name in after], notes


def _counter(nic: str, before: dict[str, int], after: dict[str, int]) -> Counter:
    names = before.keys() & after.keys() & {*ERRORS, *CONGESTION, *DETAILS, *SENT, *RECEIVED}
    steps = {name: _step(before[name], after[name]) for name in sorted(names)}

    def changed(kind: frozenset[str]) -> dict[str, int]:
        return {name: step for name, (step, _) in steps.items() if name in kind and step}

    def data(units: dict[str, int]) -> int:
        return next((steps[name][0] * unit for name, unit in units.items() if name in steps), 0)

    return Counter(
        nic=nic,
        sent=data(SENT),
        received=data(RECEIVED),
        errors=changed(ERRORS),
        congestion=changed(CONGESTION),
        details=changed(DETAILS),
        reset=any(reset for _, reset in steps.values()),
    )


def _step(before: int, after: int) -> tuple[int, bool]:
    """Return how far a counter advanced, and whether it started again from zero.

    A lower value wrapped at 32 or 64 bits if that makes a small step; otherwise the NIC or its driver restarted, and
    the counter covers the time since then.
    """
    if after >= before:
        return after - before, False
    bits = 32 if before < 2**32 else 64
    step = (after - before) % 2**bits
    return (step, False) if step < 2 ** (bits - 1) else (after, True)


def nics(root: Path = INFINIBAND) -> list[Nic]:
    """Return every port of every RDMA NIC under `root`."""
    return [_nic(port) for port in _ports(root)]


def _nic(port: Path) -> Nic:
    device, pci = port.parent.parent, port.parent.parent / "device"
    state, numa = _line(port / "state"), _line(pci / "numa_node")
    return Nic(
        name=_port_name(port),
        state=state.rpartition(":")[2].strip() if state is not None else None,  # the kernel writes `4: ACTIVE`
        rate=_line(port / "rate"),
        link_layer=_line(port / "link_layer"),
        firmware=_line(device / "fw_ver"),
        pci=pci.resolve().name if pci.is_symlink() else None,
        numa_node=int(numa) if numa is not None and re.fullmatch(r"-?\d{1,6}", numa, re.ASCII) else None,
    )


def nearest(gpu: str, root: Path = INFINIBAND, pci: Path = PCI) -> list[str]:
    """Return the RDMA devices under `root` with the shortest PCI path to the GPU `0000:1b:00.0`: several if equal.

    Empty if the kernel does not show the GPU's path or no device shares a PCI host bridge with it, and if all of
    several devices are equally near: on a virtual machine's flat bus, the path identifies none of them.
    """
    path = (pci / gpu).resolve()
    devices = {device.name: (device / "device").resolve() for device in _entries(root)}
    shared = {name: os.path.commonpath([path, other]) for name, other in devices.items()}
    depth = max((common.count("/") for common in shared.values()), default=0)
    near = [name for name, common in shared.items() if common.count("/") == depth and _BRIDGE.search(common)]
    return [] if len(near) == len(devices) > 1 else sorted(near, key=natural)


def natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key that compares numbers by value: mlx5_2 comes before mlx5_10."""
    return [(int(number or 0), text) for text, number in re.findall(r"(\D*)(\d{0,18})", name)]


def driver(file: Path = DRIVER) -> str | None:
    """Return the version of NVIDIA's kernel driver, such as `570.133.20`; None without one."""
    match = re.search(r"Kernel Module[^\n]{0,40}?\s(\d{3,4}(?:\.\d{1,5}){1,3})", _line(file) or "", re.ASCII)
    return match[1] if match else None


def topology(command: Sequence[str] = TOPOLOGY) -> str | None:
    """Return how GPUs and NICs are connected (`nvidia-smi topo -m`); None if the command fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TOPOLOGY_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    # nvidia-smi underlines its first row even when its output is not a terminal.
    return redacted(re.sub(r"\x1b\[[0-9;]{0,16}m", "", done.stdout))[:LONGEST] or None


def _ports(root: Path) -> list[Path]:
    return [port for device in _entries(root) for port in _entries(device / "ports")]


def _port_name(port: Path) -> str:
    device = port.parent.parent.name
    return device if len(_entries(port.parent)) == 1 else f"{device}:{port.name}"


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []  # no such folder: no NIC, or one that has just disappeared


def _number(file: Path) -> int | None:
    text = _line(file) or ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 20 else None  # else `N/A (no PMA)`


def _line(file: Path) -> str | None:
    """Return the text of a short file; None if there is none."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()[:200] or None
    except OSError:
        return None
