"""The language model by Ray Train and by `rdma-ray run -- torchrun`: the same losses, and each continues the other."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.workloads.conftest import Cluster
from tests.workloads.train.gpt_reference import assert_reference, losses, more, request, start, train
from workloads.exits import Exit


def test_ray_train_and_torchrun_have_the_same_losses_and_continue_each_other(cluster: Cluster, tmp_path: Path) -> None:
    """Two launches at a time, on the four CPUs of the two nodes."""
    storage, empty = cluster.storage / "gpt", tmp_path / "empty"
    empty.mkdir()

    def by_ray_train(words: list[str], world: int) -> dict[str, Any]:
        file = tmp_path / f"ray-{world}.json"
        return _result(cluster, file, "train", "gpt", "--workers", str(world), *words, "--json", str(file))

    def by_torchrun(words: list[str], nodes: int) -> dict[str, Any]:
        file = tmp_path / f"torchrun-{nodes}.json"
        gang = ("run", "--nodes", str(nodes), "--per-node", "1", "--working-dir", str(empty), "--", "torchrun")
        return _result(cluster, file, *gang, "-m", "workloads.train", "gpt", *words, "--json", str(file))

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(by_ray_train, start(storage, "ray"), 2), pool.submit(by_torchrun, start(storage, "run"), 2)
        expected = losses(train(request(tmp_path, "whole", 2), 2))
        for started in first:
            assert_reference(started.result(), expected, world=2)
        rest = pool.submit(by_ray_train, more(storage, "run"), 3), pool.submit(by_torchrun, more(storage, "ray"), 1)
        for continued, world in zip(rest, (3, 1), strict=True):
            assert_reference(continued.result(), expected, world=world)


def _result(cluster: Cluster, file: Path, *words: str) -> dict[str, Any]:
    done = cluster.rdma_ray(*words)
    assert done.returncode == Exit.OK, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(file.read_text())
    return found
