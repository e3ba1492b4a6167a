"""Rules about Ray as a job, a RayJob or an Indexed Job: what it runs, and how large it is."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from infra.problems import OUR_CONTRACT, Problem

if TYPE_CHECKING:
    from infra.legality import Rule
    from infra.settings import Settings

JOBS = {
    "indexed-job": "Kubernetes docs, concepts/workloads/controllers/job: an Indexed Job runs one pod per index (read "
    "2026-11)",
    "job": "ray-project/kuberay: preRunningDeadlineSeconds ends with a cluster that is ready, "
    "ray-operator/controllers/ray/rayjob_controller.go, v1.6.2",
}
HTTP_MODE = "ray-project/kuberay: HTTPMode hands the entry point to the head, v1.6.2"
EVERYWHERE = "torchrun"
MODULE = ["-m", "torch.distributed.run"]
"""torchrun is a name for this module (PyTorch docs, elastic/run, read 2026-11)."""
OUR_INDEXED_JOB = "rdma-ray: docs/indexed-job.md"


def job_without_entrypoint(s: Settings) -> Problem | None:
    """A job ends with what it runs, so it has to run something."""
    if s.target == "local" or s.ray.mode not in JOBS or s.ray.entrypoint is not None:
        return None
    return Problem(
        settings=("ray.mode", "ray.entrypoint"),
        says=f"Mode {s.ray.mode} runs one entry point and ends with it; none is given.",
        fix='set ray.entrypoint, such as "python /app/train.py", or ray.mode to cluster',
        source=OUR_CONTRACT,
    )


def entrypoint_without_job(s: Settings) -> Problem | None:
    """A cluster gets its jobs later, from its users."""
    if s.target == "local" or s.ray.mode in JOBS or s.ray.entrypoint is None:
        return None
    return Problem(
        settings=("ray.entrypoint", "ray.mode"),
        says="A cluster has no entry point: nothing would run this one.",
        fix="set ray.mode to job or indexed-job, or leave ray.entrypoint out and hand it in later by `ray job submit`",
        source=OUR_CONTRACT,
    )


def job_wants_a_fixed_size(s: Settings) -> Problem | None:
    """Nothing adds a node to a job, and it begins when it has every one."""
    if s.target == "local" or s.ray.mode not in JOBS or s.ray.min_workers == s.ray.max_workers:
        return None
    return Problem(
        settings=("ray.minWorkers", "ray.maxWorkers", "ray.mode"),
        says=f"Mode {s.ray.mode} has ray.maxWorkers nodes from beginning to end, {s.ray.max_workers} here; it cannot "
        f"begin with {s.ray.min_workers}.",
        fix=f"set ray.minWorkers to {s.ray.max_workers} (or leave it out), or ray.mode to cluster",
        source=JOBS[s.ray.mode],
    )


def torchrun_on_the_head(s: Settings) -> Problem | None:
    """A RayJob's entry point runs on the head, which has no GPU; torchrun wants to run on every node."""
    if s.target == "local" or s.ray.mode != "job" or not _runs_torchrun(s.ray.entrypoint or ""):
        return None
    return Problem(
        settings=("ray.entrypoint", "ray.mode"),
        says="A job's entry point runs on the head alone, which has no GPU: torchrun would find nothing to train on.",
        fix="set ray.mode to indexed-job, which runs torchrun on every node, or let the entry point ask Ray for GPUs",
        source=HTTP_MODE,
    )


def torchrun_on_one_pod(s: Settings) -> Problem | None:
    """An Indexed Job's pods all run an entry point that begins with torchrun; any other runs on the first alone."""
    entrypoint = s.ray.entrypoint or ""
    if s.target == "local" or s.ray.mode != "indexed-job" or s.ray.max_workers == 1:
        return None
    if entrypoint.split()[:1] == [EVERYWHERE] or not _runs_torchrun(entrypoint):
        return None
    return Problem(
        settings=("ray.entrypoint", "ray.maxWorkers", "ray.mode"),
        says=f"Only an entry point that begins with {EVERYWHERE} runs on every pod. This one runs on the first, and "
        f"the other {s.ray.max_workers - 1} would be paid for and idle.",
        fix=f"begin it with {EVERYWHERE}: what has to come before goes into the image, or into the program",
        source=OUR_INDEXED_JOB,
    )


def _runs_torchrun(line: str) -> bool:
    """Whether a command of this line for a shell is torchrun, by any path, or as the module that it is."""
    reader = shlex.shlex(line, posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    try:
        words = list(reader)
    except ValueError:
        # A quote that never ends: the shell will say so.
        return False
    begins = True
    for at, word in enumerate(words):
        name = word.rpartition("/")[2]
        if begins and (name == EVERYWHERE or (name.startswith("python") and words[at + 1 : at + 3] == MODULE)):
            return True
        # What may stand before a command, and a command after it.
        begins = set(word) <= set("();<>|&") or (begins and ("=" in word or word in ("env", "exec", "time", "nohup")))
    return False


RULES: tuple[Rule, ...] = (
    job_without_entrypoint,
    entrypoint_without_job,
    job_wants_a_fixed_size,
    torchrun_on_the_head,
    torchrun_on_one_pod,
)
