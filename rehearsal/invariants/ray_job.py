"""Invariants of the RayJob, if Ray runs as one. For the cluster in it, see `ray`."""

from __future__ import annotations

from collections.abc import Iterator

from rehearsal.invariants.invariant import Invariant, Stack, at, expect
from rehearsal.invariants.kubernetes import RAY_JOB


def the_ray_job_runs_its_entry_point_once(stack: Stack) -> Iterator[str]:
    """The RayJob runs the stack file's entry point once, submitted by the operator to its own cluster."""
    for job in stack.of(RAY_JOB):
        yield from expect(
            job,
            spec__entrypoint=stack.cloud.ray.entrypoint,
            spec__submissionMode="HTTPMode",
            spec__backoffLimit=0,
            spec__clusterSelector=None,
        )


def the_ray_job_gives_its_nodes_back(stack: Stack) -> Iterator[str]:
    """The cluster is deleted after the job: at once in a queue, otherwise after minutes for reading its log.

    In a queue, its quota belongs to the next workload from then on.
    """
    for job in stack.of(RAY_JOB):
        yield from expect(job, spec__shutdownAfterJobFinishes=True, spec__deletionStrategy=None)
        if stack.cloud.queue == "kueue":
            yield from expect(job, spec__ttlSecondsAfterFinished=0)
        elif not 0 < (stays := at(job, "spec.ttlSecondsAfterFinished") or 0) <= 900:
            yield f"{job.name}: its cluster stays for {stays} s"


def the_ray_job_has_a_deadline_for_its_machines_alone(stack: Stack) -> Iterator[str]:
    """The RayJob waits for machines as long as the capacity may take, and runs as long as it needs."""
    for job in stack.of(RAY_JOB):
        yield from expect(job, spec__activeDeadlineSeconds=None)
        waits = at(job, "spec.preRunningDeadlineSeconds")
        if waits is None or waits < stack.capacity_wait_s:
            yield f"{job.name}: it waits {waits} s, but machines may take {stack.capacity_wait_s} s"


INVARIANTS: tuple[Invariant, ...] = (
    the_ray_job_runs_its_entry_point_once,
    the_ray_job_gives_its_nodes_back,
    the_ray_job_has_a_deadline_for_its_machines_alone,
)
