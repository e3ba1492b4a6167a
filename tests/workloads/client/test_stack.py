"""Outputs from a file and from the engine, options against them, and stacks whose Ray runs one entry point."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from infra.outputs import Outputs
from tests.clone import executable
from tests.workloads.stack_outputs import GKE as DOCUMENT
from tests.workloads.stack_outputs import TOKEN, outputs
from workloads.cli import main
from workloads.client import stack
from workloads.exits import Exit, WorkloadError
from workloads.nccl.judge.expectation import limits_of
from workloads.nccl.options import BenchOptions
from workloads.nccl.presets import PRESETS
from workloads.options import StackOptions

OUTPUTS = Outputs.model_validate(DOCUMENT)


def bench(outputs: Outputs = OUTPUTS, **options: Any) -> BenchOptions:
    return BenchOptions(**options).resolve(outputs, limits_of(outputs.machine))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"absent\.json"):
        stack.read_outputs(StackOptions(outputs=str(tmp_path / "absent.json")))


def test_invalid_outputs_are_named_without_values(tmp_path: Path) -> None:
    file = tmp_path / "outputs.json"
    file.write_text(json.dumps(DOCUMENT | {"token": TOKEN, "ray": {"token": [TOKEN]}}))
    with pytest.raises(WorkloadError, match=r"ray\.cluster: Field required") as caught:
        stack.read_outputs(StackOptions(outputs=str(file)))
    assert TOKEN not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in place of the project."""
    monkeypatch.delenv("STACK", raising=False)
    monkeypatch.setattr(stack, "PROJECT", tmp_path)
    (tmp_path / "Pulumi.yaml").write_text("name: rdma-ray\n")
    return tmp_path


def engine(project: Path, script: str) -> None:
    executable(project / "bin" / "pulumi", f"#!/bin/sh\n{script}\n")


def test_outputs_come_from_the_engine(project: Path) -> None:
    (project / "document").write_text(json.dumps(DOCUMENT))
    engine(project, 'echo "$@" > called; cat document')
    assert stack.read_outputs(StackOptions(stack="gke")) == OUTPUTS
    called = "stack output --json --show-secrets --non-interactive --stack gke\n"
    assert (project / "called").read_text() == called


@pytest.mark.parametrize("script", ["echo 'error: no stack named local found' >&2; exit 255", "echo '{}'"])
def test_a_missing_stack_names_make_up(project: Path, script: str) -> None:
    engine(project, script)
    with pytest.raises(WorkloadError, match="make up STACK=local"):
        stack.read_outputs(StackOptions())


def test_a_missing_engine_names_make_setup(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(project))
    with pytest.raises(WorkloadError, match="make setup"):
        stack.read_outputs(StackOptions())


def test_a_stack_that_scales_from_zero_is_measured_on_two_whole_nodes() -> None:
    spec = bench()
    assert (spec.nodes, spec.per_node, spec.use_gpu, spec.elastic) == (2, 8, True, True)
    assert (spec.sizes[0], spec.sizes[-1]) == (2**10, 2**33)
    assert BenchOptions.from_json(spec.to_json()) == spec


@pytest.mark.parametrize("name", [None, *PRESETS])
def test_every_preset_resolves(name: str | None) -> None:
    assert bench(preset=name).sizes[-1] >= 2**30  # where health is judged
    small = bench(outputs(), preset=name)
    assert 2**10 <= small.sizes[0] <= small.sizes[-1] <= 2**22
    assert len(small.sizes) <= 5
    assert "graph" not in small.modes


def test_explicit_options_override_the_preset() -> None:
    chosen: dict[str, Any] = {"ops": ["broadcast"], "dtypes": ["uint8"], "modes": ["latency"], "factor": 2}
    spec = bench(preset="full", begin="1M", end="4M", iterations=3, warmup=0, check=0, **chosen)
    assert (spec.ops, spec.dtypes, spec.modes) == (["broadcast"], ["uint8"], ["latency"])
    assert (spec.sizes, spec.iterations, spec.warmup, spec.check) == ([2**20, 2**21, 2**22], 3, 0, 0)
    assert bench(preset="full", begin="1G", end="3G", step="1G").sizes == [2**30, 2**31, 3 * 2**30]
    assert bench(outputs(), end="8M", factor=1024).sizes == [2**10, 2**20]
    assert bench(outputs(), begin="8M").sizes == [2**23]  # beyond the preset's end: this size alone
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
    ("options", "says"),
    [
        ({"outputs": outputs(), "modes": ["graph"]}, "no GPUs"),
        ({"outputs": outputs(), "algo": "ring"}, "there is only gloo"),
        ({"nodes": 5}, "at most 4"),
        ({"per_node": 9}, "8 GPUs"),
        ({"nodes": 1, "per_node": 1}, "has no peer"),
        ({"ops": ["reduce"], "dtypes": ["fp32", "uint8"]}, "reduce would add up bytes"),
        ({"factor": 2, "step": "1M"}, "only one of them"),
        ({"step": "1"}, "more than 1000"),
        ({"patterns": ["diagonal"]}, "diagonal"),
        ({"algo": "tree", "ops": ["all_reduce", "all_gather"]}, "all_reduce, not for all_gather"),
        ({"algo": "ring", "variables": ["NCCL_ALGO=Tree"]}, "only one of them"),
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
    with pytest.raises(WorkloadError, match=says):
        bench(**options)


def written(folder: Path, mode: str | None) -> Path:
    """Return a file of outputs with this ray.mode, or without one."""
    ray: dict[str, Any] = DOCUMENT["ray"] | ({} if mode is None else {"mode": mode})
    file = folder / "outputs.json"
    file.write_text(json.dumps(DOCUMENT | {"ray": ray, "storage": {"path": "/bucket"}}))
    return file


def test_outputs_hide_both_tokens_of_a_service(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = DOCUMENT | {"ray": DOCUMENT["ray"] | {"serveToken": "of-requests"}}
    (tmp_path / "outputs.json").write_text(json.dumps(document))
    assert main(["outputs", "--outputs", str(tmp_path / "outputs.json")]) == Exit.OK
    said = capsys.readouterr().out
    ray = json.loads(said)["ray"]
    assert (ray["token"], ray["serveToken"]) == ("**********", "**********")
    assert "of-requests" not in said


@pytest.mark.parametrize("command", ["bench nccl", "bench hunt", "train digits"])
@pytest.mark.parametrize("mode", ["job", "indexed-job", "service"])
def test_jobs_are_rejected_with_an_alternative(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str, command: str
) -> None:
    assert main([*command.split(), "--outputs", str(written(tmp_path, mode))]) == Exit.ERROR
    said = capsys.readouterr().err
    for advice in (f"the stack's ray.mode is {mode}", "set ray.mode to cluster", "rdma-ray bench job"):
        assert advice in said
    assert "does not answer" not in said, "it connected before it refused"


@pytest.mark.parametrize(
    ("mode", "commands", "hint"),
    [
        ("job", ["status"], r"ray.mode is job: .* kubectl -n ray get rayjob a3u"),
        ("indexed-job", ["list", "logs j", "stop j"], r"ray.mode is indexed-job: .* kubectl -n ray get job a3u"),
        (None, ["status", "bench nccl"], r"Is the cluster 'a3u' up\?"),  # a cluster, which accepts jobs
    ],
)
def test_without_a_head_the_error_says_where_to_look(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str | None, commands: list[str], hint: str
) -> None:
    file = written(tmp_path, mode)
    for command in commands:
        assert main([*command.split(), "--outputs", str(file)]) == Exit.ERROR
        assert re.search(rf"does not answer at http://127.0.0.1:1 .* {hint}", capsys.readouterr().err)
