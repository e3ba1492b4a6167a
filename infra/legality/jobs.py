"""Rules about Ray as an Indexed Job: what it runs, how large it is, and who admits it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.problems import OUR_CONTRACT, Problem

if TYPE_CHECKING:
    from infra.legality import Rule
    from infra.settings import Settings

JOBS = "Kubernetes docs, concepts/workloads/controllers/job: an Indexed Job runs one pod per index (read 2026-11)"


def job_without_entrypoint(s: Settings) -> Problem | None:
    """A Job ends with what it runs, so it has to run something."""
    if s.target == "local" or s.ray.mode != "indexed-job" or s.ray.entrypoint is not None:
        return None
    return Problem(
        settings=("ray.mode", "ray.entrypoint"),
        says="An indexed-job runs one entry point and ends with it; none is given.",
        fix='set ray.entrypoint, such as "python /app/train.py", or ray.mode to cluster',
        source=OUR_CONTRACT,
    )


def entrypoint_without_job(s: Settings) -> Problem | None:
    """A cluster gets its jobs later, from its users."""
    if s.target == "local" or s.ray.mode == "indexed-job" or s.ray.entrypoint is None:
        return None
    return Problem(
        settings=("ray.entrypoint", "ray.mode"),
        says="A cluster has no entry point: nothing would run this one.",
        fix="set ray.mode to indexed-job, or leave ray.entrypoint out and submit it with `rdma-ray submit`",
        source=OUR_CONTRACT,
    )


def job_wants_a_fixed_size(s: Settings) -> Problem | None:
    """Nothing adds a pod to a Job, and its head waits for every one."""
    if s.target == "local" or s.ray.mode != "indexed-job" or s.ray.min_workers == s.ray.max_workers:
        return None
    return Problem(
        settings=("ray.minWorkers", "ray.maxWorkers", "ray.mode"),
        says=f"An indexed-job has ray.maxWorkers pods from beginning to end, {s.ray.max_workers} here; it cannot "
        f"begin with {s.ray.min_workers}.",
        fix=f"set ray.minWorkers to {s.ray.max_workers} (or leave it out), or ray.mode to cluster",
        source=JOBS,
    )


def job_in_a_queue(s: Settings) -> Problem | None:
    """This version hands RayClusters to Kueue, not Jobs."""
    if s.target == "local" or s.ray.mode != "indexed-job" or s.queue == "none":
        return None
    return Problem(
        settings=("ray.mode", "queue"),
        says="This version gives an indexed-job to no queue: it would start past Kueue, on nodes that Kueue counts as "
        "free.",
        fix="set queue to none, or ray.mode to cluster",
        source=OUR_CONTRACT,
    )


RULES: tuple[Rule, ...] = (
    job_without_entrypoint,
    entrypoint_without_job,
    job_wants_a_fixed_size,
    job_in_a_queue,
)
