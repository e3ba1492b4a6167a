"""`rdma-ray slurm run` in an allocation of a real Slurm: of salloc, and of a batch script."""

from __future__ import annotations

import json
import sys

from tests.slurm.conftest import READY_S, ROOT, Run, assert_nothing_is_left
from tools.slurm.cluster import Slurm

RDMA_RAY = f"""
export PYTHONPATH={ROOT}
rdma() {{ {sys.executable} -m workloads.cli "$@"; }}
"""
SALLOC = """
rdma slurm run -- bash -c 'echo first; exit 7'; echo "code $?"
# As in a terminal's foreground, from which a script's background differs.
foreground='import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])'
python -c "$foreground" $(command -v python) -m workloads.cli slurm run -- sleep 600 &
until ls rdma-ray-slurm/*/outputs.json 2>/dev/null || ! kill -0 $!; do sleep 0.2; done
kill -INT $!; wait $!; echo "code $?"
echo "after Ctrl-C: $(ls rdma-ray-slurm) $(squeue --noheader --steps)"
export RDMA_RAY_OUTPUTS=$(rdma slurm run); echo "code $?"
mkdir code && touch code/file
rdma run --nodes 2 --all --working-dir code -- bash -c 'echo rank $RANK; ls'; echo "code $?"
rdma status --json > status.json
rdma slurm run --time 5 -- true; echo "code $?"
"""
BATCH = """#!/bin/bash
rdma slurm run -- bash -c 'echo in the batch script; exit 3'
"""


def test_cluster_is_a_step_of_the_users_allocation_and_ends_with_it(slurm: Slurm) -> None:
    """Twice in one of salloc, the second time up to Ctrl-C; a cluster that stays until its exit; and a batch script.

    The allocations are made for four tasks with a CPU and a GPU each; the clusters have a node with all of them.
    """
    (slurm.home("alice") / "salloc.sh").write_text(RDMA_RAY + SALLOC)
    (slurm.home("bob") / "batch.sh").write_text(BATCH.replace("\n", "\n" + RDMA_RAY, 1))
    tasks = ["--nodes=2", "--ntasks-per-node=2", "--cpus-per-task=1", "--mem=1G", "--nodelist=n0,n1"]
    batch = slurm.run(["sbatch", "--parsable", *tasks, "--output=rdma-ray-%j.log", "batch.sh"], user="bob")
    salloc = ["salloc", *tasks, "--gpus-per-task=1", "bash", "salloc.sh"]
    python = {"PATH": f"{sys.prefix}/bin:{slurm.environment['PATH']}"}
    done = slurm.run(salloc, user="alice", variables=python)
    said = done.stdout.splitlines()
    codes = [line for line in said if line.startswith("code ")]
    assert codes == ["code 7", "code 130", "code 0", "code 0", "code 1"], done.stderr
    assert {"first", "after Ctrl-C:  ", "rank 0 | rank 0", "rank 1 | rank 1"} <= set(said)
    status = json.loads((slurm.home("alice") / "status.json").read_text())
    assert [(node["cpus"], node["gpus"]) for node in status["nodes"]] == [(2, 2), (2, 2)]
    assert "--time 5: this shell is in the allocation of job" in done.stderr
    assert_nothing_is_left(slurm, "alice")
    job = Run(slurm, "bob", batch.stdout.strip())
    slurm.until("the batch script has ended", job.ended, READY_S)
    assert (job.show("ExitCode"), "in the batch script" in job.log) == ("3:0", True), job.log
    assert_nothing_is_left(slurm, "bob")
