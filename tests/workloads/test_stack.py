"""Outputs from a file and from the engine, and options against them, without a secret in any message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from infra.catalog.pins import RAY
from infra.outputs import Outputs
from workloads.client import stack
from workloads.client.stack import limits_of
from workloads.exits import WorkloadError
from workloads.nccl.options import BenchOptions
from workloads.nccl.presets import DEFAULT, PRESETS
from workloads.options import StackOptions
from workloads.train.options import DigitsOptions
from workloads.train.request import environment, resolve

TOKEN = "t0ken-that-must-stay-secret"
DOCUMENT: dict[str, Any] = {
    "target": "gke",
    "location": "us-central1-b",
    "machine": "a3-ultragpu-8g",
    "nodes": {"min": 0, "max": 4, "gpusPerNode": 8, "cpusPerNode": 220},
    "fabric": {"transport": "gib", "nics": 8, "gbpsPerNic": 400, "floors": []},
    "kubeconfig": TOKEN,
    "namespace": "ray",
    "ray": {
        "cluster": "a3u",
        "version": RAY,
        "dashboard": "http://127.0.0.1:1",
        "jobs": "http://127.0.0.1:1",
        "client": "ray://127.0.0.1:1",
        "token": TOKEN,
    },
    "storage": None,
    "queue": None,
}
OUTPUTS = Outputs.model_validate(DOCUMENT)


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STACK", raising=False)


def bench(outputs: Outputs = OUTPUTS, **options: Any) -> BenchOptions:
    return BenchOptions(**options).resolve(outputs, limits_of(outputs.machine))


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "outputs.json"
    file.write_text(json.dumps(DOCUMENT))
    assert stack.read_outputs(StackOptions(outputs_file=file)) == OUTPUTS


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"absent\.json"):
        stack.read_outputs(StackOptions(outputs_file=tmp_path / "absent.json"))


def test_invalid_outputs_are_named_without_values(tmp_path: Path) -> None:
    file = tmp_path / "outputs.json"
    file.write_text(json.dumps(DOCUMENT | {"token": TOKEN, "ray": {"token": [TOKEN]}}))
    with pytest.raises(WorkloadError, match=r"ray\.cluster: Field required") as caught:
        stack.read_outputs(StackOptions(outputs_file=file))
    assert TOKEN not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


def engine(folder: Path, script: str) -> None:
    (folder / "bin").mkdir()
    program = folder / "bin" / "pulumi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)


def test_outputs_come_from_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "PROJECT", tmp_path)
    (tmp_path / "document").write_text(json.dumps(DOCUMENT))
    engine(tmp_path, 'echo "$@" > called; cat document')
    assert stack.read_outputs(StackOptions(stack="gke")) == OUTPUTS
    assert (tmp_path / "called").read_text().split() == [
        *("stack", "output", "--json", "--show-secrets", "--non-interactive", "--stack", "gke")
    ]


@pytest.mark.parametrize("script", ["echo 'error: no stack named local found' >&2; exit 255", "echo '{}'"])
def test_a_missing_stack_names_make_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(stack, "PROJECT", tmp_path)
    engine(tmp_path, script)
    with pytest.raises(WorkloadError, match="make up STACK=local"):
        stack.read_outputs(StackOptions())


def test_a_missing_engine_names_make_setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "PROJECT", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WorkloadError, match="make setup"):
        stack.read_outputs(StackOptions())


def test_a_stack_that_scales_from_zero_is_measured_on_two_whole_nodes() -> None:
    spec = bench()
    assert (spec.nodes, spec.per_node, spec.use_gpu, spec.elastic) == (2, 8, True, True)
    assert (spec.sizes[0], spec.sizes[-1]) == (2**10, 2**33)
    assert BenchOptions.from_json(spec.to_json()) == spec


LOCAL = Outputs.model_validate(
    DOCUMENT | {"target": "local", "machine": None, "nodes": {"min": 2, "max": 2, "gpusPerNode": 0, "cpusPerNode": 2}}
)


@pytest.mark.parametrize("name", [None, *PRESETS])
@pytest.mark.parametrize("outputs", [OUTPUTS, LOCAL], ids=["gpus", "cpus"])
def test_every_preset_resolves(outputs: Outputs, name: str | None) -> None:
    spec = bench(outputs, preset=name)
    assert spec.preset == name
    assert (spec.warmup or 0) >= 5  # the first runs at a size build what it needs
    assert (spec.check or 0) >= 1
    if outputs is OUTPUTS:
        assert spec.sizes[-1] >= 2**30  # where health is judged
        assert name != "acceptance" or spec.sizes[-1] == 2**33
    else:
        assert (spec.sizes[0] >= 2**10, spec.sizes[-1] <= 2**22) == (True, True)
        assert len(spec.sizes) <= 5
        assert "graph" not in spec.modes


def test_presets_grow() -> None:
    def measured(name: str) -> set[tuple[str, str]]:
        spec = bench(preset=name)
        return {(op, mode) for op in spec.ops for mode in spec.modes}

    assert measured("quick") < measured("acceptance") < measured("full")
    assert len(bench(preset="quick").sizes) < len(bench(preset="acceptance").sizes)
    assert {"all_gather", "reduce_scatter", "all_reduce", "all_to_all", "p2p"} == set(PRESETS["acceptance"].ops)


def test_without_a_preset_everything_is_measured_once() -> None:
    spec = bench(LOCAL)
    assert DEFAULT.ops == ("all",)
    assert (spec.sizes, spec.dtypes, spec.modes) == ([2**10, 2**13, 2**16, 2**19, 2**22], ["fp32"], ["throughput"])
    assert (spec.iterations, spec.warmup, spec.check, spec.left_out) == (20, 5, 1, [])


def test_explicit_options_override_the_preset() -> None:
    spec = bench(
        preset="full",
        ops=["broadcast"],
        dtypes=["uint8"],
        modes=["latency"],
        begin="1M",
        end="4M",
        factor=2,
        iterations=3,
        warmup=0,
        check=0,
    )
    assert (spec.ops, spec.dtypes, spec.modes) == (["broadcast"], ["uint8"], ["latency"])
    assert (spec.sizes, spec.iterations, spec.warmup, spec.check) == ([2**20, 2**21, 2**22], 3, 0, 0)
    assert bench(preset="full", begin="1G", end="3G", step="1G").sizes == [2**30, 2**31, 3 * 2**30]
    assert bench(LOCAL, end="8M", factor=1024).sizes == [2**10, 2**20]
    assert bench(LOCAL, begin="8M").sizes == [2**23]  # beyond the preset's end: this size alone
    assert bench(preset="acceptance", end="64K").sizes == [2**16]


def test_sums_of_bytes_are_left_out_of_all_and_named() -> None:
    spec = bench(preset="full")
    assert spec.left_out == ["all_reduce uint8", "reduce_scatter uint8", "reduce uint8"]
    assert bench(ops=["all"], dtypes=["fp16", "uint8"]).left_out == spec.left_out
    assert bench(preset="quick", dtypes=["uint8"]).left_out == ["all_reduce uint8"]
    assert bench(ops=["all_gather"], dtypes=["uint8"]).left_out == []


def test_the_algorithm_and_variables_reach_the_ranks_environment() -> None:
    spec = bench(ops=["all_reduce"], algo="ring", variables=["NCCL_DEBUG=INFO", "FI_EFA_X=a=b"])
    assert spec.environment == {"NCCL_ALGO": "Ring", "NCCL_DEBUG": "INFO", "FI_EFA_X": "a=b"}
    assert bench(algo="ring").ops == bench().ops  # what only sends and receives has no algorithm, and may be there
    assert bench().environment == {}


@pytest.mark.parametrize(
    ("options", "says"), [({"modes": ["graph"]}, "no GPUs"), ({"algo": "ring"}, "there is only gloo")]
)
def test_bench_rejects_graphs_and_algorithms_without_gpus(options: dict[str, Any], says: str) -> None:
    with pytest.raises(WorkloadError, match=says):
        bench(LOCAL, **options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"nodes": 5}, "at most 4"),
        ({"per_node": 9}, "8 GPUs"),
        ({"nodes": 1, "per_node": 1}, "has no peer"),
        ({"dtypes": ["fp8"]}, "'fp32', 'fp16', 'bf16'"),
        ({"ops": ["reduce"], "dtypes": ["fp32", "uint8"]}, "reduce would add up bytes"),
        ({"modes": ["fast"]}, "'throughput', 'latency' or 'graph'"),
        ({"preset": "slow"}, "'quick', 'acceptance' or 'full'"),
        ({"factor": 2, "step": "1M"}, "one of the two"),
        ({"step": "1"}, "more than 1000"),
        ({"patterns": ["diagonal"]}, "diagonal"),
        ({"algo": "tree", "ops": ["all_reduce", "all_gather"]}, "all_reduce, not for all_gather"),
        ({"algo": "best"}, "'ring', 'tree'"),
        ({"algo": "ring", "variables": ["NCCL_ALGO=Tree"]}, "one of the two"),
        ({"variables": ["PATH=/"]}, "--env PATH: write NAME=VALUE with a name that begins with NCCL_"),
        ({"variables": ["NCCL_DEBUG"]}, "NAME=VALUE"),
        ({"variables": ["NCCL_SECRET_KEY=x"]}, "suggests a secret"),
        ({"ops": ["alltoall"]}, "all_to_all"),
        ({"begin": "1X"}, "not a size"),
        ({"begin": "2M", "end": "1M"}, "swap -b and -e"),
        ({"inject_fault": "hang:16"}, "below 16"),
        ({"inject_fault": "explode:1"}, "corrupt:RANK, stale:RANK or hang:RANK"),
        ({"inject_fault": "hang:1:timed"}, "the first two accept"),
        ({"inject_fault": "stale:1:later"}, ":before, :timed or :after"),
    ],
)
def test_bench_rejects_what_cannot_be_measured(options: dict[str, Any], says: str) -> None:
    with pytest.raises((WorkloadError, ValidationError), match=says):
        bench(**options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"name": "a", "resume": "b"}, "one of the two"),
        ({"name": "../a"}, "folder"),
        ({"workers": 33}, "8 slots"),
        ({"checkpoint_dir": None}, "--checkpoint-dir"),
    ],
)
def test_train_rejects_what_does_not_fit(options: dict[str, Any], says: str) -> None:
    defaults = DigitsOptions(checkpoint_dir="gs://bucket")
    assert resolve(OUTPUTS, defaults).workers == 16
    with pytest.raises(WorkloadError, match=says):
        resolve(OUTPUTS, defaults.model_copy(update=options))
    assert "GLOO_SOCKET_IFNAME" not in environment(resolve(OUTPUTS, defaults), OUTPUTS)
