"""Rules about Ray as a job, a RayJob or an Indexed Job: what it runs, and how large it is."""

from __future__ import annotations

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
        fix="set ray.mode to job or indexed-job, or leave ray.entrypoint out and submit it with `rdma-ray submit`",
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
    if s.target == "local" or s.ray.mode != "job" or (s.ray.entrypoint or "").split()[:1] != [EVERYWHERE]:
        return None
    return Problem(
        settings=("ray.entrypoint", "ray.mode"),
        says="A job's entry point runs on the head alone, which has no GPU: torchrun would find nothing to train on.",
        fix="set ray.mode to indexed-job, which runs torchrun on every node, or let the entry point ask Ray for GPUs",
        source=HTTP_MODE,
    )


RULES: tuple[Rule, ...] = (
    job_without_entrypoint,
    entrypoint_without_job,
    job_wants_a_fixed_size,
    torchrun_on_the_head,
)
