"""A gang's ranks: their order, and what they use of this torch."""

from __future__ import annotations

import pytest
import torch
from torch.torch_version import TorchVersion

from workloads.nccl import rank


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
