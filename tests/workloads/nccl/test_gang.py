"""A gang's ranks: their order, and what they use of this torch."""

from __future__ import annotations

import pytest
import torch
from torch.torch_version import TorchVersion

from workloads.nccl import rank
from workloads.nccl.gang import rank_order
from workloads.nccl.result import Member


def test_ranks_are_in_the_order_of_addresses_and_gpus() -> None:
    wanted = [
        ("10.0.0.2", "0"),
        ("10.0.0.2", "2"),
        ("10.0.0.2", "10"),
        ("10.0.0.10", "GPU-1f0a"),
        ("10.0.0.10", "GPU-8e11"),
        ("10.0.0.10", "MIG-4c77"),
        ("10.0.0.11", None),
    ]
    where = {"rank": 0, "node": 0, "host": "", "machine": "", "node_id": "", "device": "", "pid": 1}
    members = [Member(ip=ip, gpu=gpu, **where) for ip, gpu in reversed(wanted)]
    assert [(one.ip, one.gpu) for one in sorted(members, key=rank_order)] == wanted


@pytest.mark.parametrize(
    ("version", "safe"),
    [
        ("2.6.0+cu124", True),
        ("2.6.1", False),
        ("2.7.0a0+git1f2e", False),
        ("2.7.0", False),
        ("2.7.1", True),
        ("2.9.0a0+git1f2e", True),
        ("2.10.0rc3", True),
        ("2.15.0", True),
    ],
)
def test_device_binding_by_version_of_torch(version: str, safe: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))
    assert rank._device_id_is_safe() == safe
