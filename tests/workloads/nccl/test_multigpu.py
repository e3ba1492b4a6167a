"""The multi-GPU check: its numbers, its choice of backend, and a run over gloo on a real cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from ray.util import collective

from tests.workloads.conftest import Cluster
from tests.workloads.stack_outputs import outputs
from workloads.exits import Exit, WorkloadError
from workloads.nccl.multigpu import ELEMENTS, choose, count_wrong, judge, start
from workloads.nccl.multigpu_rank import DeviceRank
from workloads.nccl.options import MultiGpuOptions
from workloads.nccl.result import DeviceTensor, Member, MultiGpuWorker

OPTIONS = MultiGpuOptions(devices=8, use_gpu=True)
TWO = [
    Member(rank=rank, node=rank, host=host, machine=host, ip="10.0.0.1", node_id=host, device="", gpu=None, pid=1)
    for rank, host in enumerate(("node-a", "node-b"))
]


def test_auto_selects_nccl_if_every_worker_has_it() -> None:
    assert choose("auto", True, TWO, [None, None]) == ("nccl", None)
    assert choose("nccl", True, TWO[:1], [None]) == ("nccl", None)


@pytest.mark.parametrize("backend", ["auto", "nccl"])
def test_gpu_nodes_without_cupy_are_not_a_pass(backend: str) -> None:
    with pytest.raises(WorkloadError) as error:
        choose(backend, True, TWO, [None, "CuPy is missing"])
    assert error.value.code == Exit.NOT_AS_ASKED
    assert "node-b (10.0.0.1): CuPy is missing" in str(error.value)
    assert "node-a" not in str(error.value)
    assert "cupy-cuda12x" in str(error.value)


def test_gloo_runs_on_request_and_without_gpus() -> None:
    """The notice says that neither NCCL nor a GPU was tested."""
    for backend, use_gpu in (("gloo", True), ("auto", False)):
        chosen, notice = choose(backend, use_gpu, TWO, ["CuPy is missing", "no GPUs"])
        assert (chosen, "neither NCCL nor a GPU" in str(notice)) == ("gloo", True)


def test_a_worker_names_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = DeviceRank(use_gpu=False)
    assert worker.no_nccl(8) == "no GPUs"
    worker.use_gpu = True
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert worker.no_nccl(8) == "only 4 of 8 GPUs are visible"
    monkeypatch.setitem(sys.modules, "cupy", None)
    missing = worker.no_nccl(4)
    assert missing is not None
    assert missing.startswith("CuPy is missing")
    assert "reaches NCCL through it" in missing


def some_workers(value: float, wrong_on: int | None = None, devices: int = 8) -> list[MultiGpuWorker]:
    found = []
    for rank, member in enumerate(TWO):
        values = [[value] * ELEMENTS for _ in range(devices)]
        if rank == wrong_on:
            values[3] = [value, value, 12.0, value]
        found.append(
            MultiGpuWorker(
                **member.model_dump(include={"rank", "host", "machine", "ip", "node_id", "pid"}),
                no_nccl=None,
                tensors=[DeviceTensor(device=f"cuda:{d}", start=start(d), values=values[d]) for d in range(devices)],
                wrong=count_wrong(values, 24.0),
                log=None,
                group_destroyed=True,
            )
        )
    return found


def test_the_verdict() -> None:
    assert judge(OPTIONS, some_workers(24.0), "nccl")[0] == Exit.OK
    code, reason = judge(OPTIONS, some_workers(24.0, wrong_on=1), "nccl")
    assert (code, "1 of 64 elements are not 24, on worker 1" in reason) == (Exit.WRONG_DATA, True)
    # 12 is the sum of one node alone.
    assert judge(OPTIONS, some_workers(12.0), "nccl")[0] == Exit.WRONG_DATA
    assert judge(OPTIONS, some_workers(24.0, devices=7), "nccl")[0] == Exit.ERROR
    assert judge(OPTIONS, some_workers(24.0)[:1], "nccl")[0] == Exit.ERROR
    first, second = some_workers(24.0)
    assert judge(OPTIONS, [first.model_copy(update={"group_destroyed": False}), second], "nccl")[0] == Exit.ERROR


def test_devices_are_synchronized_before_the_call_and_before_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """On GPUs the call returns before its result exists: without the second wait, the old values would be read."""
    steps: list[str] = []
    pending: list[torch.Tensor] = []

    def reduce(tensors: list[torch.Tensor], group_name: str) -> None:
        assert group_name == "a group"
        steps.append("reduce")
        pending.extend(tensors)

    def synchronize(index: int) -> None:
        steps.append(f"wait {index}")
        if pending:
            pending[index].fill_(24.0)

    monkeypatch.setattr(collective, "allreduce_multigpu", reduce)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    full: Callable[..., torch.Tensor] = torch.full
    monkeypatch.setattr(torch, "full", lambda *a, **k: full(*a, **k | {"device": "cpu"}))
    worker = DeviceRank(use_gpu=False)
    worker.group = "a group"
    assert [tensor.values for tensor in worker.all_reduce("nccl", 2)] == [[24.0] * 4] * 2
    assert steps == ["wait 0", "wait 1", "reduce", "wait 0", "wait 1"]


def test_the_default_is_two_nodes_with_all_their_gpus() -> None:
    options = MultiGpuOptions().resolve(outputs(gpus=4, most=8))
    assert (options.nodes, options.devices, options.use_gpu) == (2, 4, True)
    options = MultiGpuOptions().resolve(outputs(gpus=0))
    assert (options.nodes, options.devices, options.use_gpu) == (2, 8, False)
    assert MultiGpuOptions.from_json(options.to_json()) == options


@pytest.mark.parametrize(
    ("gpus", "changes", "message"),
    [
        (8, {"nodes": 3}, "at most 2"),
        (8, {"devices": 9}, "has 8 GPUs"),
        (8, {"backend": "mpi"}, "'auto', 'nccl' or 'gloo'"),
        (0, {"backend": "nccl"}, "have no GPUs"),
        (8, {"inject_fault": "corrupt:2"}, "rank below 2"),
        (8, {"inject_fault": "hang:0"}, "is not a fault"),
    ],
)
def test_resolve_rejects_what_does_not_fit(gpus: int, changes: dict[str, Any], message: str) -> None:
    with pytest.raises((WorkloadError, ValidationError), match=message):
        MultiGpuOptions(**changes).resolve(outputs(gpus=gpus))


def test_workers_on_a_cluster_add_up_to_24_except_where_a_number_was_spoiled(cluster: Cluster) -> None:
    done = cluster.rdma_ray("bench", "multigpu", "--inject-fault", "corrupt:1", "--json", "-")
    assert done.returncode == Exit.WRONG_DATA, done.stderr
    assert done.stderr.count("24 24 24 24") == 15
    assert "neither NCCL nor a GPU was tested" in done.stderr
    assert "a fault was injected on purpose" in done.stderr
    result = json.loads(done.stdout)
    assert (result["backend"], result["expected"]) == ("gloo", 24.0)
    assert "1 of 64 elements are not 24, on worker 1" in result["reason"]
    assert "each worker added up its own tensors" in result["ran"]
    assert len({worker["node_id"] for worker in result["workers"]}) == 2
    for worker, wrong in zip(result["workers"], (0, 1), strict=True):
        assert (worker["wrong"], worker["group_destroyed"], worker["no_nccl"]) == (wrong, True, "no GPUs")
        assert [value for tensor in worker["tensors"] for value in tensor["values"]].count(24.0) == 32 - wrong
        assert [tensor["start"] for tensor in worker["tensors"]] == [1.0, 2.0] * 4
