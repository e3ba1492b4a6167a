"""`train convnext` as a user runs it, on several real Ray nodes, with images by Ray Data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

from tests.workloads.conftest import Cluster
from workloads.exits import Exit
from workloads.train.result import TrainResult

PNG = b"\x89PNG"


def test_run_gives_a_result_a_picture_and_exit_code_0(cluster: Cluster, tmp_path: Path) -> None:
    """Three workers on two nodes; the tasks that read images use the fourth CPU."""
    rng = np.random.default_rng(0)
    for part, label in ((part, label) for part in ("train", "val") for label in range(4)):
        folder = tmp_path / part / f"class-{label}"
        folder.mkdir(parents=True)
        for number in range(12):
            pixels = rng.integers(60 * label, 60 * label + 60, (48, 56, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")
    done = cluster.rdma_ray(
        *("train", "convnext", "--data", "ray", "--data-path", str(tmp_path), "--workers", "3", "--batch", "4"),
        *("--set", "classes=4", "--set", "image=32", "--steps", "10", "--out", "run"),
        *("--min-accuracy", "0.1"),
    )
    assert done.returncode == Exit.OK, done.stdout + done.stderr
    result = TrainResult.model_validate(json.loads((cluster.folder / "run" / "result.json").read_text()))
    assert (cluster.folder / "run" / "run.png").read_bytes().startswith(PNG)

    assert (result.exit_code, result.step, result.steps, result.world, result.backend) == (0, 10, 10, 3, "gloo")
    assert (result.epoch_steps, len(result.epochs or [])) == (4, 2)
    assert all("accuracy_5" in epoch for epoch in result.epochs or [])
    assert result.reason.startswith("test accuracy")
    assert len({worker.node_id for worker in result.workers or []}) == 2
    figures = result.figures
    assert figures is not None
    assert figures.communication is not None
    assert figures.mfu is None  # no GPU, so no peak to hold it against
    assert result.task is not None
    assert result.task["compile"]["graphs"] >= 1
    assert result.task["compile"]["graph_breaks"] == 0
    assert result.timeline is not None
    assert [phase.name for phase in result.timeline.phases][-2:] == ["compiled", "first step"]
    assert result.goodput is not None
    assert 0 < result.goodput.share < 1
    assert "no GPUs in this stack: size tiny" in done.stderr
    assert "img/s over 3 workers" in " ".join(done.stdout.split())
