"""A node as its kernel and its driver show it: RDMA NICs and their links, the GPUs' driver, the topology."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from workloads.nccl.evidence.counters import INFINIBAND, port_name, ports
from workloads.nccl.evidence.facts import Nic
from workloads.nccl.evidence.redaction import redacted

DRIVER = Path("/proc/driver/nvidia/version")
TOPOLOGY = ("nvidia-smi", "topo", "-m")
TOPOLOGY_S = 30  # nvidia-smi wakes the driver where nothing keeps it awake
LONGEST = 20_000  # characters of a topology: 8 GPUs and 32 NICs need 9,000

IMAGE = "RDMA_RAY_IMAGE"
"""The variable by which a pod's manifest can tell its containers the image that they run. Nothing else tells them."""


def nics(root: Path = INFINIBAND) -> list[Nic]:
    """Every port of every RDMA NIC under `root`; empty where there is none."""
    return [_nic(port) for port in ports(root)]


def _nic(port: Path) -> Nic:
    device = port.parent.parent
    numa = _line(device / "device" / "numa_node")
    pci = device / "device"
    return Nic(
        name=port_name(port),
        state=_after_colon(_line(port / "state")),
        rate=_line(port / "rate"),
        link_layer=_line(port / "link_layer"),
        firmware=_line(device / "fw_ver"),
        pci=pci.resolve().name if pci.is_symlink() else None,
        numa_node=int(numa) if numa is not None and re.fullmatch(r"-?\d{1,6}", numa, re.ASCII) else None,
    )


def driver(file: Path = DRIVER) -> str | None:
    """The version of NVIDIA's kernel driver, such as `570.133.20`; None without one."""
    found = re.search(r"Kernel Module[^\n]{0,40}?\s(\d{3,4}(?:\.\d{1,5}){1,3})", _text(file) or "", re.ASCII)
    return found[1] if found else None


def topology(command: Sequence[str] = TOPOLOGY) -> str | None:
    """How GPUs and NICs hang together (`nvidia-smi topo -m`); None where that cannot be asked."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TOPOLOGY_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    # It underlines its first row on a terminal and off it.
    return redacted(re.sub(r"\x1b\[[0-9;]{0,16}m", "", done.stdout))[:LONGEST] or None


def image(environment: Mapping[str, str]) -> str | None:
    return environment.get(IMAGE) or None


def _after_colon(text: str | None) -> str | None:
    """`4: ACTIVE` as the kernel writes it."""
    return text.rpartition(":")[2].strip() if text is not None else None


def _line(file: Path) -> str | None:
    text = _text(file)
    return text.strip()[:200] or None if text is not None else None


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
