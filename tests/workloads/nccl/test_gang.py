"""A gang's ranks: their order, and what they use of this torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch.torch_version import TorchVersion

from workloads.nccl import rank
from workloads.nccl.driver import measure_all
from workloads.nccl.gang import gpu_order
from workloads.nccl.options import BenchOptions
from workloads.nccl.result import Member


def test_ranks_of_a_node_are_in_the_order_of_gpus() -> None:
    wanted = ["0", "2", "10", "GPU-1f0a", "GPU-8e11", "MIG-4c77"]
    where = {"rank": 0, "node": 0, "host": "", "machine": "", "ip": "", "node_id": "", "device": "", "pid": 1}
    members = [Member(gpu=gpu, **where) for gpu in reversed(wanted)]
    assert [one.gpu for one in sorted(members, key=gpu_order)] == wanted


@dataclass
class Calls:
    """A gang that answers nothing but records the calls up to the first measurement."""

    made: list[tuple[Any, ...]] = field(default_factory=list)
    actors: tuple[None, ...] = (None,) * 16
    per_node: int = 8

    def call(self, method: str, *arguments: Any, what: str) -> list[bool]:
        self.made.append((method, *(getattr(each, "key", each) for each in arguments)))
        if method == "measure":
            raise LookupError(what)
        return [True, False]


def test_choices_are_logged_in_runs_of_their_own_before_the_sweep() -> None:
    options = BenchOptions(ops=["all_reduce", "all_to_all"], sizes=[1024, 2048], use_gpu=True, iterations=1)
    options = options.model_copy(
        update={"modes": ["throughput", "latency"], "dtypes": ["fp32"], "warmup": 0, "check": 0}
    )
    gang = Calls()
    with pytest.raises(LookupError, match="all_reduce 1 KiB"):
        list(measure_all(options, gang))  # type: ignore[arg-type]  # what it uses of a gang
    assert [(name, *(getattr(key, "size", key) for key in more)) for name, *more in gang.made] == [
        ("log_choices", True),
        ("run_once", 1024),
        ("run_once", 2048),
        ("log_choices", False),
        ("measure", 1024),
    ]


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
