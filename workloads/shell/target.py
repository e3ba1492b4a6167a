"""What the argument WHERE of `rdma-ray shell` and `forward` names: the head, a node, or a rank of a running job."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from workloads.client.head import RayHost
from workloads.exits import WorkloadError
from workloads.shell.reach import NodeReport, RankProcess, Reach

HEAD = "head"
_RANK = re.compile(r"(?:rank:)?([0-9]{1,6})")


@dataclass(frozen=True)
class Target:
    """A node, or a rank on it. `report` is what the node has shown, if it was asked."""

    place: RayHost
    rank: RankProcess | None = None
    report: NodeReport | None = None


def target_of(way: Reach, where: str, job_id: str | None, port: int = 0) -> Target:
    """Return what WHERE names. WorkloadError if it does not exist or does not run.

    Args:
        job_id: Job of the rank; None for the only one that has ranks.
        port: Port that the report is about.
    """
    places = way.places()
    if found := _RANK.fullmatch(where):
        return _rank(way, [place for place in places if place.problem is None], int(found[1]), job_id, port)
    if job_id is not None:
        raise WorkloadError(f"--job {job_id}: {where} is not a rank: write `rank:0`, or leave --job out")
    place = _node(way, places, where)
    if place.problem is not None:
        raise WorkloadError(f"nothing can run in {place.name}, which is {place.problem}")
    return Target(place)


def _node(way: Reach, places: Sequence[RayHost], where: str) -> RayHost:
    found = [place for place in places if (place.head if where == HEAD else where in place.addresses)]
    if where == HEAD and found:
        return found[0]
    if where == HEAD:
        raise WorkloadError(way.missing_head() or "there is no head: see `rdma-ray doctor`")
    names = "\n".join(f"  {' '.join(place.addresses)}" for place in found or places)
    if not found:
        raise WorkloadError(f"no node is called {where!r}; write `head`, a rank such as `rank:0`, or one of\n{names}")
    if len(found) > 1:
        raise WorkloadError(f"several nodes are called {where!r}: choose one by its first name\n{names}")
    return found[0]


def _rank(way: Reach, places: Sequence[RayHost], rank: int, job_id: str | None, port: int) -> Target:
    reports, silent = way.ask(places, port) if places else ([], [])
    found = [(place, report, each) for place, report in reports for each in report.ranks]
    jobs = sorted({each.job for *_, each in found})
    missing = "".join(f"\nnot asked: {reason}" for reason in silent)
    if job_id is None and len(jobs) > 1:
        raise WorkloadError(f"several jobs have ranks, {', '.join(jobs)}: choose one with --job ID")
    if job_id is None and not jobs:
        raise WorkloadError(f"no rank runs: `rdma-ray list` shows the jobs{missing}")
    job = job_id or jobs[0]
    if job not in jobs:
        state = way.stack.api.job(job)
        if state.terminal:
            raise WorkloadError(f"job {job} is over: it {state.status}")
        raise WorkloadError(f"job {job} is {state.status} and has no ranks, or none that has started{missing}")
    of_job = [(place, report, each) for place, report, each in found if each.job == job]
    for place, report, each in of_job:
        if each.rank == rank:
            return Target(place, each, report)
    world = next((int(each.world) for *_, each in of_job if re.fullmatch("[0-9]{1,6}", each.world)), 0)
    if rank >= world:
        raise WorkloadError(f"job {job} has no rank {rank}: it has ranks 0 to {world - 1}")
    raise WorkloadError(f"rank {rank} of job {job} does not run: it has ended, or not started{missing}")
