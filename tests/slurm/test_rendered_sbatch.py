"""The sbatch file that `rdma-ray render` prints, on a real Slurm."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.slurm.conftest import READY_S, SMALL, Run, assert_nothing_is_left, rdma_ray
from tests.workloads.train.gpt_reference import FIRST, assert_reference, losses, more, request, train
from tools.slurm.cluster import Slurm


def test_rendered_file_continues_a_training(slurm: Slurm, tmp_path: Path) -> None:
    """A user's own sbatch: torchrun on both nodes, in the folder of the submission, from three ranks' checkpoint."""
    expected = losses(train(request(tmp_path, "whole", 2), 2))
    home = slurm.home("alice")
    train(request(home / "train", "gpt", 3, steps=FIRST), 3)
    for path in [home / "train", *(home / "train").rglob("*")]:
        os.chown(path, slurm.uids["alice"], slurm.uids["alice"])
    words = ["gpt", *more(home / "train", "gpt"), "--json", "gpt.json"]
    command = ["run", "--nodes", "2", "--", "torchrun", "-m", "workloads.train", *words]
    rendered = rdma_ray(slurm, "alice", "render", "sbatch", *SMALL, *command)
    assert rendered.returncode == 0, rendered.stderr
    (home / "gpt.sbatch").write_text(rendered.stdout)
    job = Run(slurm, "alice", slurm.run(["sbatch", "--parsable", "gpt.sbatch"], user="alice").stdout.strip())
    slurm.until(f"job {job.id} has ended", job.ended, READY_S)
    assert job.show("ExitCode") == "0:0", job.log
    assert_reference(json.loads((home / "gpt.json").read_text()), expected, world=2)
    assert_nothing_is_left(slurm, "alice")
