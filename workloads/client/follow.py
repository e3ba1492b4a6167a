"""Follow a job's log over a connection that may drop."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from workloads.client.api import Job, JobsApi, UnknownError, UnreachableError
from workloads.exits import WorkloadError

# Limit on traffic: a long log (NCCL_DEBUG=INFO on many ranks) is polled less often.
BYTES_PER_SECOND = 2e6
SHORTEST_PAUSE_S = 0.5
PATIENCE_S = 300  # the job runs on while a laptop changes its network


def follow(
    api: JobsApi, job_id: str, on_line: Callable[[str], None], on_poll: Callable[[Job], None] = lambda _: None
) -> Job:
    """Pass every line of the job's log to `on_line`, once and in order, until the job is over, and return the job.

    `on_poll` gets the job at every poll before its end.

    Ray's own tail ends without an error when the connection drops (ray#51601, #57002, #60665), and a new one starts
    over. This polls the whole log, which only grows. Lines have no line end. A last line without one is passed when
    the job is over. UnreachableError if the connection is lost for `PATIENCE_S` seconds: the job may still be running.
    WorkloadError if the cluster has restarted, which ends its jobs.
    """
    api.patience_s = max(api.patience_s, PATIENCE_S)
    seen, pending = 0, ""
    job: Job | None = None
    while True:
        try:
            # Status first: the log of a finished job is complete.
            job = api.job(job_id)
            text = api.logs(job)
        except UnknownError:
            if job is None:
                raise
            raise WorkloadError(
                f"the cluster has restarted and no longer knows job {job_id}, which was {job.status} and ended with it"
            ) from None
        except UnreachableError as error:
            raise UnreachableError(
                f"lost the cluster for {api.patience_s:.0f} s while following job {job_id}, which may still be"
                f" running: {error}\nwhen it answers again: rdma-ray logs {job_id}"
            ) from error
        pending += text[seen:]
        seen = max(seen, len(text))
        end = pending.rfind("\n") + 1
        for line in lines_of(pending[:end]):
            on_line(line)
        pending = pending[end:]
        if job.terminal:
            if pending:
                on_line(pending)
            return job
        on_poll(job)
        api.sleep(max(SHORTEST_PAUSE_S, len(text) / BYTES_PER_SECOND))


def lines_of(text: str) -> Iterator[str]:
    """Yield the lines of a log one by one: a list of empty lines may be eight times the size of the log."""
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield text[start:end]
        start = end + 1
