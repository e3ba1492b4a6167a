"""NICs that a hunt names for a rail: by PCI paths in trees of files like the kernel's, by NCCL's log, or none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from workloads.hardware.nic import nearest
from workloads.nccl.hunt.rank import pci_address
from workloads.nccl.hunt.result import Accused, GroupProbe, Rail, Unit

Tree = dict[str, str]
"""PCI path below /sys/devices by name: an RDMA device, or a GPU's address."""


def a3_ultra() -> Tree:
    """Eight NICs, each behind the switch of one GPU."""
    return {
        name: f"pci{gpu:04x}:00/{gpu:04x}:00:01.0/{gpu:04x}:01:00.0/{gpu:04x}:02:{slot:02x}.0/{address}"
        for gpu in range(8)
        for slot, name, address in (
            (0, f"{gpu:04x}:03:00.0", f"{gpu:04x}:03:00.0"),
            (1, f"mlx5_{gpu}", f"{gpu:04x}:04:00.0"),
        )
    }


def ec2(per_gpu: int) -> Tree:
    """Eight GPUs, each with its EFA devices on one host bridge. Their names are numbered across the bridges."""
    gpus = {f"{bus:04x}:00:1e.0": f"pci{bus:04x}:00/{bus:04x}:00:1e.0" for bus in range(8)}
    nics = {
        f"rdmap{bus * per_gpu + nic}s0": f"pci{bus:04x}:00/{bus:04x}:00:{nic:02x}.0"
        for bus in range(8)
        for nic in range(per_gpu)
    }
    return gpus | nics


def written(root: Path, tree: Tree) -> tuple[Path, Path]:
    """Write a tree of /sys, and return its folders of RDMA and of PCI devices."""
    infiniband, pci = root / "class/infiniband", root / "bus/pci/devices"
    for folder in (infiniband, pci):
        folder.mkdir(parents=True)
    for name, path in tree.items():
        (device := root / "devices" / path).mkdir(parents=True)
        (pci / device.name).symlink_to(device)
        if ":" not in name:
            (infiniband / name).mkdir()
            (infiniband / name / "device").symlink_to(device)
    return infiniband, pci


@pytest.mark.parametrize(
    ("tree", "gpu", "expected"),
    [
        (a3_ultra(), "0003:03:00.0", ["mlx5_3"]),
        (ec2(2), "0001:00:1e.0", ["rdmap2s0", "rdmap3s0"]),
        (ec2(2), "0005:00:1e.0", ["rdmap10s0", "rdmap11s0"]),
        (ec2(4), "0002:00:1e.0", ["rdmap8s0", "rdmap9s0", "rdmap10s0", "rdmap11s0"]),
    ],
    ids=["a3-ultra", "p5en", "p5en-two-digits", "p5"],
)
def test_nics_nearest_to_gpu_are_named(tmp_path: Path, tree: Tree, gpu: str, expected: list[str]) -> None:
    assert nearest(gpu, *written(tmp_path, tree)) == expected


@pytest.mark.parametrize(
    "tree",
    [
        {"0000:00:1e.0": "pci0000:00/0000:00:1e.0"} | {f"mlx5_{nic}": f"pci0000:00/0000:00:0{nic}.0" for nic in (1, 2)},
        {"0000:00:1e.0": "pci0000:00/0000:00:1e.0", "mlx5_0": "pci0001:00/0001:00:00.0"},
        {"mlx5_0": "pci0000:00/0000:00:01.0"},
        {},
    ],
    ids=["flat-bus", "other-bridge", "no-path-to-gpu", "no-nic"],
)
def test_no_nic_is_named_without_evidence(tmp_path: Path, tree: Tree) -> None:
    assert nearest("0000:00:1e.0", *written(tmp_path, tree)) == []


def test_gpu_address_is_that_of_sysfs() -> None:
    assert pci_address(SimpleNamespace(pci_domain_id=0, pci_bus_id=0xCA, pci_device_id=0)) == "0000:ca:00.0"
    assert pci_address(SimpleNamespace(name="H200")) is None


@pytest.mark.parametrize(
    ("rail", "text"),
    [
        (Rail(gpu="1", nics=["mlx5_10", "mlx5_11"]), "rail 1 of GPU 1 (mlx5_10 or mlx5_11)"),
        (Rail(gpu="1"), "rail 1 of GPU 1"),
        (Rail(), "rail 1"),
    ],
)
def test_action_names_candidates_or_none(rail: Rail, text: str) -> None:
    place = {"host": "h", "ip": "10.0.0.1", "machine": "m", "node_id": "n"}
    unit = Unit(unit=0, name="h", gpu=None, rails=[Rail(nics=["mlx5_0"]), rail], **place)
    one = Accused.of(0, "slow", [GroupProbe("pair", (0, 1), "alone", share=0.6, failed=True)])
    one.rails = [1]
    found = one.on(unit)
    assert found.nics == rail.nics
    assert f"error counters of {text}, then" in found.action
