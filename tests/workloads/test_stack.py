"""Outputs from a file and from the engine, the refusals, and that none of them shows a secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.outputs import Outputs
from workloads.client import stack
from workloads.exits import WorkloadError
from workloads.nccl.request import request as bench_request
from workloads.nccl.spec import Spec
from workloads.train.request import environment
from workloads.train.request import request as train_request

TOKEN = "t0ken-that-nobody-may-see"
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
        "version": "2.60.0",
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
    monkeypatch.delenv(stack.FILE_VARIABLE, raising=False)
    monkeypatch.delenv("STACK", raising=False)


def bench(**options: Any) -> Spec:
    defaults: dict[str, Any] = {
        "ops": ["all"],
        "begin": "1K",
        "end": None,
        "factor": None,
        "iterations": 20,
        "warmup": 5,
        "dtype": "fp32",
        "nodes": None,
        "per_node": None,
        "timeout_s": 1,
        "wait_s": 1,
        "inject_fault": None,
    }
    return bench_request(OUTPUTS, **(defaults | options))


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "outputs.json"
    file.write_text(json.dumps(DOCUMENT))
    assert stack.read_outputs(None, file) == OUTPUTS


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"absent\.json"):
        stack.read_outputs(None, tmp_path / "absent.json")


def test_what_does_not_fit_is_named_without_its_values(tmp_path: Path) -> None:
    file = tmp_path / "outputs.json"
    file.write_text(json.dumps(DOCUMENT | {"token": TOKEN, "ray": {"token": [TOKEN]}}))
    with pytest.raises(WorkloadError, match=r"ray\.cluster: Field required") as caught:
        stack.read_outputs(None, file)
    assert TOKEN not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


def engine(folder: Path, script: str) -> None:
    (folder / "bin").mkdir()
    program = folder / "bin" / "pulumi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)


def test_the_engine_is_asked_for_the_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "PROJECT", tmp_path)
    (tmp_path / "document").write_text(json.dumps(DOCUMENT))
    engine(tmp_path, 'echo "$@" > asked; cat document')
    assert stack.read_outputs("gke", None) == OUTPUTS
    assert (tmp_path / "asked").read_text().split() == [
        *("stack", "output", "--json", "--show-secrets", "--non-interactive", "--stack", "gke")
    ]


@pytest.mark.parametrize("script", ["echo 'error: no stack named local found' >&2; exit 255", "echo '{}'"])
def test_no_stack_says_make_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(stack, "PROJECT", tmp_path)
    engine(tmp_path, script)
    with pytest.raises(WorkloadError, match="make up STACK=local"):
        stack.read_outputs(None, None)


def test_no_engine_says_make_setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "PROJECT", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WorkloadError, match="make setup"):
        stack.read_outputs(None, None)


def test_a_stack_that_scales_from_zero_is_measured_on_two_whole_nodes() -> None:
    spec = bench()
    assert (spec.nodes, spec.per_node, spec.use_gpu, spec.elastic) == (2, 8, True, True)
    assert (spec.sizes[0], spec.sizes[-1]) == (2**10, 2**33)
    assert Spec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"nodes": 5}, "at most 4"),
        ({"per_node": 9}, "8 GPUs"),
        ({"nodes": 1, "per_node": 1}, "nobody to talk to"),
        ({"dtype": "fp8"}, "fp32, fp16, bf16"),
        ({"ops": ["alltoall"]}, "all_to_all"),
        ({"begin": "1X"}, "not a size"),
        ({"begin": "2M", "end": "1M"}, "swap -b and -e"),
        ({"inject_fault": "hang:16"}, "below 16"),
        ({"inject_fault": "explode:1"}, "corrupt:RANK or hang:RANK"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_any_cluster_is_asked(options: dict[str, Any], says: str) -> None:
    with pytest.raises(WorkloadError, match=says):
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
def test_what_cannot_be_trained_is_refused(options: dict[str, Any], says: str) -> None:
    defaults: dict[str, Any] = {
        "epochs": 1,
        "workers": None,
        "name": None,
        "resume": None,
        "checkpoint_dir": "gs://bucket",
        "min_accuracy": 0.9,
        "wait_s": 1,
    }
    assert train_request(OUTPUTS, **defaults).workers == 16
    with pytest.raises(WorkloadError, match=says):
        train_request(OUTPUTS, **(defaults | options))
    assert "GLOO_SOCKET_IFNAME" not in environment(train_request(OUTPUTS, **defaults), None)
