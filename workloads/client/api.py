"""Ray's REST interface (the dashboard's port) with the token, and following a job over a connection that may drop.

Submissions go through Ray's own client: see run.py.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pydantic import SecretStr

from infra.outputs import Outputs
from workloads.client.stack import unanswered
from workloads.exits import Exit, WorkloadError

# Limit on traffic: a long log (NCCL_DEBUG=INFO on many ranks) is polled less often.
BYTES_PER_SECOND = 2e6
SHORTEST_PAUSE_S = 0.5
LAST_TIME = 253402300800e3  # milliseconds since 1970, the year 10000
LARGEST = 2**29  # bytes of an answer; Ray answers with the whole log of a job


class UnreachableError(WorkloadError):
    """Ray did not answer, or the connection dropped. Only `follow` retries."""


@dataclass(frozen=True)
class Job:
    """A job of the cluster. Times are seconds since 1970; `exit_code` is the driver's, once it ended."""

    id: str
    status: str
    message: str
    started: float | None
    ended: float | None
    exit_code: int | None
    metadata: dict[str, str]

    @property
    def terminal(self) -> bool:
        return self.status in ("SUCCEEDED", "FAILED", "STOPPED")

    @staticmethod
    def of(details: dict[str, Any]) -> Job:
        """Return a job from Ray's JobDetails. WorkloadError if it is none."""
        try:
            return Job(
                id=details.get("submission_id") or details.get("job_id") or "",
                status=details["status"],
                message=details.get("message") or "",
                started=_seconds(details.get("start_time")),
                ended=_seconds(details.get("end_time")),
                exit_code=details.get("driver_exit_code"),
                metadata=details.get("metadata") or {},
            )
        except (AttributeError, KeyError, TypeError) as error:
            raise WorkloadError(f"Ray's answer is not the details of a job ({error}): see `rdma-ray list`") from None


@dataclass
class Api:
    """REST interface of a Ray head. The token is in a header only.

    Methods raise UnreachableError if Ray does not answer, and WorkloadError for other errors.

    Args:
        address: `http://host:port`, as in the stack's outputs.
        unanswered: Hint in the error message if Ray does not answer.
    """

    address: str
    token: SecretStr
    cluster: str
    timeout_s: float = 10
    unanswered: str = "Is the cluster up?"

    @classmethod
    def of(cls, outputs: Outputs) -> Api:
        """Return the interface of a stack's Ray."""
        ray = outputs.ray
        return cls(ray.jobs.rstrip("/"), ray.token, ray.cluster, unanswered=unanswered(outputs))

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token.get_secret_value()}"}

    def job(self, job_id: str) -> Job:
        return Job.of(self.call(_path(job_id)))

    def jobs(self) -> list[Job]:
        """Return all jobs that the cluster knows, newest first."""
        return sorted(map(Job.of, self.call("/api/jobs/")), key=lambda job: job.started or 0, reverse=True)

    def logs(self, job_id: str) -> str:
        """Return the whole log so far; empty before the driver has started."""
        return str(self.call(_path(job_id, "logs")).get("logs") or "")

    def stop(self, job_id: str, timeout_s: float = 60) -> Job:
        """Stop a job, wait for its end, and return it. WorkloadError after `timeout_s`."""
        self.call(_path(job_id, "stop"), method="POST")
        deadline = time.monotonic() + timeout_s
        while not (job := self.job(job_id)).terminal:
            if time.monotonic() > deadline:
                raise WorkloadError(f"job {job_id} still {job.status} {timeout_s:.0f} s after the request to stop")
            time.sleep(0.5)
        return job

    def nodes(self) -> list[dict[str, Any]]:
        """Return all known nodes: node_id, node_ip, state (ALIVE or DEAD), resources_total, is_head_node."""
        answer = self.call("/api/v0/nodes?detail=1&limit=10000")
        return list(answer["data"]["result"]["result"])

    def version(self) -> str:
        return str(self.call("/api/version")["ray_version"])

    def call(
        self, path: str, method: str = "GET", body: object = None, *, read: Callable[[bytes], Any] = json.loads
    ) -> Any:
        """Return the answer's JSON, or what `read` makes of its bytes. A body that is not bytes is sent as JSON."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, content, method=method, headers=self.headers)
        try:
            with _opener.open(request, timeout=self.timeout_s) as answer:
                if len(data := answer.read(LARGEST + 1)) > LARGEST:
                    raise WorkloadError(f"{self.address}{path} answers with more than {LARGEST // 2**20} MiB")
                return read(data)
        except urllib.error.HTTPError as error:
            raise self._explain(error, path) from None
        except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
            # OSError: refused, reset, timed out. The others: the answer is truncated, or another server's.
            reason = getattr(error, "reason", None) or error
            raise UnreachableError(f"Ray does not answer at {self.address} ({reason}). {self.unanswered}") from None

    def _explain(self, error: urllib.error.HTTPError, path: str) -> WorkloadError:
        if error.code in (401, 403):
            return WorkloadError(
                f"the token does not fit this cluster: {self.address} answered {error.code}"
                f" {'(no token)' if error.code == 401 else '(another token)'}. The stack's outputs are of another run"
                f" of {self.cluster!r}: `make up` updates them; with --outputs FILE, write that file again"
            )
        if error.code == 404:
            return WorkloadError(f"{self.address} does not know {path.split('?')[0]}: see `rdma-ray list` for the jobs")
        body = error.read(2000).decode(errors="replace").strip()
        return WorkloadError(f"{self.address}{path.split('?')[0]} answered {error.code}: {body}")


def _seconds(milliseconds: float | None) -> float | None:
    return milliseconds / 1000 if milliseconds and 0 < milliseconds < LAST_TIME else None


def _path(job_id: str, *rest: str) -> str:
    return "/".join(["/api/jobs", quote(job_id, safe="", errors="surrogateescape"), *rest])


# No proxy: the address is a loopback port or a private network's, and a token must not pass a proxy.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


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

    Ray's own tail ends without an error when the connection drops (ray#51601, #57002, #60665), and a new one starts
    over. This polls the whole log, which only grows. Lines have no line end. A last line without one is passed when
    the job is over. UnreachableError if the connection is lost for `patience_s` seconds: the job may still be running.
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
    if job.status == "SUCCEEDED":
        return Exit.OK
    if job.status == "STOPPED":
        return Exit.STOPPED
    if not job.exit_code:
        return Exit.ERROR  # FAILED without the driver's code: it never started, or its node died
    return job.exit_code if job.exit_code > 0 else 128 - job.exit_code
