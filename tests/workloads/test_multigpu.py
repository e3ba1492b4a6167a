"""The multi-GPU correctness check: its numbers, what it does without CuPy, and a run over gloo on a real cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ray.util import collective

from infra.outputs import Outputs
from tests.workloads.conftest import Cluster, write_outputs
from workloads.exits import Exit, WorkloadError
from workloads.nccl.multigpu.driver import choose, judge
from workloads.nccl.multigpu.request import request
from workloads.nccl.multigpu.spec import Spec
from workloads.nccl.multigpu.values import ELEMENTS, count_wrong, expected, start
from workloads.nccl.multigpu.worker import Worker


def a_spec(**changes: Any) -> Spec:
    given: dict[str, Any] = {"nodes": 2, "devices": 8, "use_gpu": True, "backend": "auto"}
    return Spec(**given | {"timeout_s": 1.0, "wait_s": 1.0, "elastic": False} | changes)


def test_two_workers_of_eight_devices_make_24() -> None:
    assert [start(device) for device in range(8)] == [1, 2, 1, 2, 1, 2, 1, 2]
    assert expected(2, 8) == 24


@given(st.integers(1, 16), st.integers(1, 16))
def test_the_expected_value_is_the_sum_over_all_devices(nodes: int, devices: int) -> None:
    tensors = torch.stack([torch.full((ELEMENTS,), start(d)) for _ in range(nodes) for d in range(devices)])
    assert tensors.sum(dim=0).tolist() == [expected(nodes, devices)] * ELEMENTS


def test_wrong_elements_are_counted_and_a_tensor_of_another_length_is_all_wrong() -> None:
    assert count_wrong([[24.0] * 4] * 8, 24.0) == 0
    assert count_wrong([[24.0] * 4, [24.0, 12.0, float("nan"), 24.0]], 24.0) == 2
    assert count_wrong([[24.0] * 3], 24.0) == 4
    assert count_wrong([[]], 24.0) == 4


def member(no_nccl: str | None, host: str = "node-a") -> dict[str, Any]:
    return {"host": host, "ip": "10.0.0.1", "no_nccl": no_nccl}


def test_nccl_is_taken_where_every_worker_has_it() -> None:
    assert choose(a_spec(), [member(None), member(None)]) == ("nccl", None)
    assert choose(a_spec(backend="nccl"), [member(None)]) == ("nccl", None)


def test_without_cupy_gloo_runs_and_says_that_nccl_was_not_tested() -> None:
    backend, notice = choose(a_spec(), [member(None), member("CuPy is missing", "node-b")])
    assert backend == "gloo"
    assert notice is not None
    assert "allreduce_multigpu was NOT tested" in notice
    assert "node-b (10.0.0.1): CuPy is missing" in notice
    assert "node-a" not in notice
    assert "cupy-cuda12x" in notice


def test_asked_for_nccl_what_is_missing_is_an_error() -> None:
    with pytest.raises(WorkloadError, match="allreduce_multigpu cannot run on") as caught:
        choose(a_spec(backend="nccl"), [member("CuPy is missing")])
    assert caught.value.code == Exit.ERROR


def test_without_gpus_the_notice_says_so() -> None:
    backend, notice = choose(a_spec(use_gpu=False), [member("no GPUs")])
    assert backend == "gloo"
    assert notice is not None
    assert "no GPUs" in notice
    assert choose(a_spec(backend="gloo"), [member(None)])[0] == "gloo"


def test_a_worker_names_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Worker(8, use_gpu=False).no_nccl() == "no GPUs"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert Worker(8, use_gpu=True).no_nccl() == "only 4 of 8 GPUs are visible"
    monkeypatch.setitem(sys.modules, "cupy", None)
    missing = Worker(4, use_gpu=True).no_nccl()
    assert missing is not None
    assert missing.startswith("CuPy is missing")
    assert "reaches NCCL through it" in missing


def test_a_worker_leaves_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray ends its process without any clean-up, so the folder of NCCL's logs goes when the group does."""
    monkeypatch.setattr(collective, "destroy_collective_group", lambda _: None)
    monkeypatch.setattr(collective, "is_group_initialized", lambda _: False)
    worker = Worker(1, use_gpu=False)
    assert worker.logs.is_dir()
    assert worker.leave()
    assert not worker.logs.exists()


def some_workers(value: float, wrong_on: int | None = None, devices: int = 8) -> list[dict[str, Any]]:
    found = []
    for rank in range(2):
        tensors = [{"device": f"cuda:{d}", "start": start(d), "values": [value] * ELEMENTS} for d in range(devices)]
        if rank == wrong_on:
            tensors[3]["values"] = [value, value, 12.0, value]
        wrong = count_wrong([tensor["values"] for tensor in tensors], 24.0)  # type: ignore[misc]
        found.append({"rank": rank, "tensors": tensors, "wrong": wrong, "group_destroyed": True})
    return found


def test_the_verdict() -> None:
    assert judge(a_spec(), some_workers(24.0), "nccl")[0] == Exit.OK
    code, reason = judge(a_spec(), some_workers(24.0, wrong_on=1), "nccl")
    assert (code, "1 of 64 elements are not 24, on worker 1" in reason) == (Exit.WRONG_DATA, True)
    # 12 is what one node alone adds up to
    assert judge(a_spec(), some_workers(12.0), "nccl")[0] == Exit.WRONG_DATA
    assert judge(a_spec(), some_workers(24.0, devices=7), "nccl")[0] == Exit.ERROR
    assert judge(a_spec(), some_workers(24.0)[:1], "nccl")[0] == Exit.ERROR
    kept = some_workers(24.0)
    kept[0]["group_destroyed"] = False
    assert judge(a_spec(), kept, "nccl")[0] == Exit.ERROR


def test_devices_are_waited_for_before_the_call_and_before_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """On GPUs the call returns before the result is there: without the second wait the old values would be read."""
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
    worker = Worker(2, use_gpu=True)
    worker.group = "a group"
    assert [tensor["values"] for tensor in worker.allreduce_multigpu()] == [[24.0] * 4] * 2
    assert steps == ["wait 0", "wait 1", "reduce", "wait 0", "wait 1"]


OPTIONS: dict[str, Any] = {
    "nodes": None,
    "devices": None,
    "backend": "auto",
    "timeout_s": 1.0,
    "wait_s": 1.0,
    "inject_fault": None,
}


def some_outputs(gpus: int, most: int = 2) -> Outputs:
    return Outputs.model_validate(
        {
            "target": "local",
            "nodes": {"min": most, "max": most, "gpusPerNode": gpus, "cpusPerNode": 2},
            "fabric": {"transport": "socket", "nics": None, "gbpsPerNic": None, "floors": []},
            "ray": dict.fromkeys(["cluster", "version", "dashboard", "jobs", "client", "token"], "x"),
        }
    )


def test_the_default_is_two_nodes_with_all_their_gpus() -> None:
    spec = request(some_outputs(gpus=4, most=8), **OPTIONS)
    assert (spec.nodes, spec.devices, spec.use_gpu) == (2, 4, True)
    spec = request(some_outputs(gpus=0), **OPTIONS)
    assert (spec.nodes, spec.devices, spec.use_gpu) == (2, 8, False)
    assert Spec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("gpus", "changes", "said"),
    [
        (8, {"nodes": 3}, "at most 2"),
        (8, {"devices": 9}, "has 8 GPUs"),
        (8, {"backend": "mpi"}, "choose one of auto, nccl, gloo"),
        (0, {"backend": "nccl"}, "have no GPUs"),
        (8, {"inject_fault": "corrupt:2"}, "rank below 2"),
        (8, {"inject_fault": "hang:0"}, "is no fault"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_cluster_is_asked(gpus: int, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        request(some_outputs(gpus), **OPTIONS | changes)


def test_on_the_cluster_24_is_everywhere_and_the_result_says_what_ran(cluster: Cluster) -> None:
    done = cluster.rdma_ray("bench", "multigpu", "--json", "multigpu.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("24 24 24 24") == 16
    assert "24 everywhere: 64 elements of 16 tensors (gloo)" in done.stdout
    assert "neither NCCL nor a GPU was tested" in done.stdout
    result = json.loads((cluster.folder / "multigpu.json").read_text())
    assert (result["backend"], result["expected"], result["exit_code"]) == ("gloo", 24.0, 0)
    assert "each worker added up its own tensors" in result["ran"]
    assert len({worker["node_id"] for worker in result["workers"]}) == 2
    for worker in result["workers"]:
        assert (worker["wrong"], worker["group_destroyed"], worker["no_nccl"]) == (0, True, "no GPUs")
        assert [tensor["values"] for tensor in worker["tensors"]] == [[24.0] * 4] * 8
        assert [tensor["start"] for tensor in worker["tensors"]] == [1.0, 2.0] * 4


def test_a_planted_wrong_number_exits_3(cluster: Cluster) -> None:
    done = cluster.rdma_ray("bench", "multigpu", "--devices", "3", "--inject-fault", "corrupt:1", "--json", "-")
    assert done.returncode == Exit.WRONG_DATA, done.stderr
    result = json.loads(done.stdout)
    assert result["expected"] == 8.0
    assert [worker["wrong"] for worker in result["workers"]] == [0, 1]
    assert "1 of 24 elements are not 8, on worker 1" in result["reason"]
    assert "a fault was injected on purpose" in done.stderr


def test_more_nodes_than_there_are_fails_fast(cluster: Cluster, tmp_path: Path) -> None:
    nodes = cluster.outputs.nodes.model_copy(update={"min": 3, "max": 3})
    file = write_outputs(cluster.outputs.model_copy(update={"nodes": nodes}), tmp_path / "grown.json")
    done = cluster.rdma_ray("bench", "multigpu", "--nodes", "3", "--outputs", str(file))
    assert done.returncode == Exit.ERROR
    assert "3 nodes with 1 free CPU each are wanted" in done.stdout
