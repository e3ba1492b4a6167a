"""Follow a job's log to its end, over a connection that may drop.

Ray's own tail ends without an error when the connection drops (ray#51601, #57002, #60665), and a new one starts over.
This module polls the whole log, which only grows, and passes on new lines until the job's status is terminal.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from workloads.client.api import Api, Job, UnreachableError
from workloads.exits import Exit, WorkloadError

# Limit on traffic: a long log (NCCL_DEBUG=INFO on many ranks) is polled less often.
BYTES_PER_SECOND = 2e6
SHORTEST_PAUSE_S = 0.5


def follow(
    api: Api,
    job_id: str,
    on_line: Callable[[str], None],
    *,
    patience_s: float = 120,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Job:
    """Pass every line of the job's log to `on_line`, once and in order, until the job is over, and return the job.

    Lines have no line end. A last line without one is passed when the job is over. UnreachableError if the connection
    is lost for `patience_s` seconds: the job may still be running.
    """
    seen = 0
    pending = ""
    last_answer = clock()
    while True:
        try:
            # Status first: the log of a finished job is complete.
            job = api.job(job_id)
            text = api.logs(job_id)
        except UnreachableError as error:
            if clock() - last_answer > patience_s:
                raise UnreachableError(
                    f"lost the cluster for {patience_s:.0f} s while following job {job_id}, which may still be"
                    f" running: {error}\nwhen it answers again: rdma-ray logs {job_id}"
                ) from error
            sleep(SHORTEST_PAUSE_S)
            continue
        last_answer = clock()
        # A restarting agent returns an empty log, which adds nothing.
        pending += text[seen:]
        seen = max(seen, len(text))
        *lines, pending = pending.split("\n")
        for line in lines:
            on_line(line)
        if job.terminal:
            if pending:
                on_line(pending)
            return job
        sleep(max(SHORTEST_PAUSE_S, len(text) / BYTES_PER_SECOND))


def exit_code(job: Job) -> int:
    """Return the exit code of a finished job: its driver's, if there is one."""
    if not job.terminal:
        raise WorkloadError(f"job {job.id} is {job.status}, not over")
    if job.status == "SUCCEEDED":
        return Exit.OK
    if job.status == "STOPPED":
        return Exit.STOPPED
    if not job.exit_code:
        return Exit.ERROR  # FAILED without the driver's code: it never started, or its node died
    return job.exit_code if job.exit_code > 0 else 128 - job.exit_code
