"""Ray's REST interface (the dashboard's port): requests with the token, repeated while Ray does not answer."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from pydantic import SecretStr

from infra import listener
from infra.outputs import Outputs
from workloads import untrusted
from workloads.client.answer import END_LINES, Ending, text_of, whole
from workloads.client.forward import Forward
from workloads.client.stack import unanswered
from workloads.exits import Exit, WorkloadError, last_line
from workloads.history.record import UNKNOWN

FIRST_S = 5  # patience before the first answer, for a head that is starting
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 5.0  # between attempts
BUSY = (429, 500, 502, 503, 504)
LAST_TIME = 253402300800e3  # milliseconds since 1970, the year 10000
LONGEST_LOG_S = 600  # for Ray to read a log; its default is 30
BYTES_PER_SECOND = 1e6  # slowest upload
# Ray's head passes an ID on to its agent as a part of a path, unquoted: to stop `a/../b` stops the job `b` (ray:
# dashboard/modules/job/job_head.py, stop_job_internal, 2.60, tried 2026-11).
_PASSED_ON = re.compile(r"(?!\.{1,2}\Z)[^/?#%\\\x00-\x1f\x7f]+")
_IN_NO_PATH = (".", "..")
"""IDs that clients and servers remove from a path (RFC 3986, 5.2.4)."""


class UnreachableError(WorkloadError):
    """Ray did not answer, or is unable to answer now. `status` is the answer's, if there is one."""

    def __init__(self, message: str, status: int | None = None, *, refused: bool = False) -> None:
        super().__init__(message)
        self.status, self.refused = status, refused


class UnknownError(WorkloadError):
    """Ray does not know the object in the path."""


@dataclass(frozen=True)
class Job:
    """A job of the cluster. Times are seconds since 1970; `exit_code` is the driver's, once it ended.

    `node` is the ID of the driver's node, once it has one. A job that was not `submitted` is a driver that connected.
    """

    id: str
    status: str
    message: str
    started: float | None
    ended: float | None
    exit_code: int | None
    metadata: dict[str, str]
    node: str | None = None
    submitted: bool = True
    driver: str | None = None  # its ID in Ray's tables of actors and placement groups, once it has connected

    @property
    def terminal(self) -> bool:
        return self.status in ("SUCCEEDED", "FAILED", "STOPPED", UNKNOWN)

    @staticmethod
    def of(details: Any) -> Job:
        """Return a job from Ray's JobDetails. WorkloadError if they do not describe one.

        A value of an unexpected type becomes None or is left out: the submitter of a job chooses most of them.
        """
        if not isinstance(details, dict) or not isinstance(details.get("status"), str):
            raise WorkloadError("Ray's answer does not describe a job: see `rdma-ray list`")
        metadata, code = details.get("metadata"), details.get("driver_exit_code")
        of_user = metadata if isinstance(metadata, dict) else {}
        texts = {name: text for name, text in details.items() if isinstance(text, str)}
        return Job(
            id=texts.get("submission_id") or texts.get("job_id") or "",
            status=details["status"],
            message=texts.get("message", ""),
            started=_seconds(details.get("start_time")),
            ended=_seconds(details.get("end_time")),
            exit_code=code if type(code) is int and -128 <= code <= 255 else None,
            metadata={name: text for name, text in of_user.items() if isinstance(text, str)},
            node=texts.get("driver_node_id"),
            submitted=details.get("type") != "DRIVER",
            driver=texts.get("job_id"),
        )


@dataclass(frozen=True)
class RayNode:
    """A node of Ray, with its CPUs and GPUs in total."""

    ip: str
    name: str
    head: bool
    alive: bool
    cpus: float
    gpus: float


@dataclass
class JobsApi:
    """REST interface of a Ray head. The token is in a header of requests to the head only.

    Nothing is sent to an address of this machine at which another user listens. http.client follows no redirect and
    uses no proxy. Every request is repeated while Ray does not answer, so it must have the same effect when sent twice.
    Methods raise UnreachableError after `patience_s` seconds without an answer, at once if nothing of this user listens
    and nothing has answered yet, and WorkloadError for other errors.

    Args:
        address: `http://host:port`, as in the stack's outputs.
        timeout_s: Limit of an attempt.
        unanswered: Hint in the error message if Ray does not answer.
        forward: Port-forward to use instead of `address`.
        note: Callback for a message when Ray has not answered for some seconds.
    """

    address: str
    token: SecretStr
    cluster: str
    timeout_s: float = 10
    unanswered: str = "Is the cluster up?"
    forward: Forward | None = None
    patience_s: float = 30
    note: Callable[[str], None] = field(default=lambda _: None, repr=False)
    kept_out: Callable[[], Mapping[str, str]] = field(default=dict, repr=False)  # Connection.kept_out
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    answered: bool = field(default=False, init=False)

    @classmethod
    def of(cls, outputs: Outputs, forward: Forward | None = None) -> JobsApi:
        """Return the interface of a stack's Ray."""
        ray = outputs.ray
        return cls(ray.jobs.rstrip("/"), ray.token, ray.cluster, unanswered=unanswered(outputs), forward=forward)

    @property
    def headers(self) -> dict[str, str]:
        token = self.token.get_secret_value()
        if not (token.isascii() and token.isprintable()):  # http.client's own error would print it
            raise WorkloadError("the token in the stack's outputs contains characters that are invalid in HTTP headers")
        return {"Authorization": f"Bearer {token}"}

    def job(self, job_id: str) -> Job:
        """Return a job. UnknownError if Ray does not know it."""
        return Job.of(self.details(job_id))

    def details(self, job_id: str) -> dict[str, Any]:
        """Return Ray's JobDetails. UnknownError if Ray does not know the job."""
        if job_id in _IN_NO_PATH:
            jobs = [each for each in self._listed() if each.get("submission_id") == job_id]
        else:
            jobs = [self.call(_path(job_id))]
        if not jobs or not isinstance(jobs[0], dict):  # "" names the list of jobs
            raise UnknownError(f"{job_id!r} is not the ID of a job: see `rdma-ray list`")
        return dict(jobs[0])

    def jobs(self) -> list[Job]:
        """Return all jobs that the cluster knows, newest first."""
        return sorted(map(Job.of, self._listed()), key=lambda job: job.started or 0, reverse=True)

    def _listed(self) -> list[dict[str, Any]]:
        jobs = self.call("/api/jobs/")
        if not isinstance(jobs, list) or not all(isinstance(each, dict) for each in jobs):
            raise WorkloadError("Ray's answer is not a list of jobs: see `rdma-ray doctor`")
        return jobs

    def logs(self, job: str | Job) -> str:
        """Return the whole log of a job so far; empty before the driver has started. Line ends are `\\n`.

        Invalid UTF-8 is replaced; an incomplete character at the end is left out. Ray's /api/jobs/ID/logs answers
        500 to both (ray: dashboard/modules/job/job_log_storage_client.py, 2.60, read 2026-11). This path streams the
        file. It knows no offset. /api/v0/logs/stream, which would send new lines only, never ends on the head, and each
        one occupies one of the 100 concurrent requests of the State API (dashboard/modules/state/state_head.py, 2.60).
        """
        return str(self._log(job, -1, whole))

    def end_of_log(self, job: str | Job) -> tuple[str, bool]:
        """Return the last lines of a job's log, as `logs` does, and whether they are the log's last ones.

        At most END_BYTES, from the first whole line on. If its lines are so long that Ray sends more than END_READ, or
        for more than END_S seconds, they are from before.
        """
        ending = Ending(self.clock)
        text = str(self._log(job, END_LINES, ending))
        return text, ending.whole

    def _log(self, job: str | Job, lines: int, take: Callable[[http.client.HTTPResponse], bytes]) -> str:
        job = self.job(job) if isinstance(job, str) else job
        if not job.submitted:
            raise WorkloadError(f"Ray keeps no log of {job.id}: it was not submitted as a job")
        if not job.node:
            return ""
        # Ray resolves the node by the job, but requires one of its two parameters.
        wanted = {"submission_id": job.id, "node_id": job.node}
        query = urlencode({**wanted, "lines": lines, "timeout": LONGEST_LOG_S}, errors="surrogateescape")
        return str(self.call(f"/api/v0/logs/file?{query}", read=text_of, take=take))

    def stop(self, job_id: str, timeout_s: float = 60, ask: Callable[[], object] | None = None) -> Job:
        """Stop a job, wait for its end, and return it. WorkloadError after `timeout_s`.

        Args:
            ask: Asks the job to end instead of Ray's head, which cannot do it for every ID (`reaches`).
        """
        if ask is not None:
            ask()
        elif reaches(job_id):
            self.call(_path(job_id, "stop"), method="POST")
        else:
            raise WorkloadError(f"Ray's head would stop a job other than {job_id!r}; use `rdma-ray stop` instead")
        deadline = time.monotonic() + timeout_s
        while not (job := self.job(job_id)).terminal:
            if time.monotonic() > deadline:
                raise WorkloadError(f"job {job_id} is still {job.status} {timeout_s:.0f} s after the request to stop")
            time.sleep(0.5)
        return job

    def forget(self, job_id: str) -> None:
        """Delete the record of a job that is over, unless its ID could name another job."""
        if reaches(job_id):
            self.call(_path(job_id), method="DELETE")

    def nodes(self) -> list[RayNode]:
        """Return all nodes that Ray knows."""
        try:
            return [
                RayNode(
                    ip=each["node_ip"] if isinstance(each["node_ip"], str) else "",
                    name=str(each["node_name"]),
                    head=each["is_head_node"] is True,
                    alive=each["state"] == "ALIVE",
                    cpus=untrusted.number(each["resources_total"].get("CPU")) or 0,
                    gpus=untrusted.number(each["resources_total"].get("GPU")) or 0,
                )
                for each in self.call("/api/v0/nodes?detail=1&limit=10000")["data"]["result"]["result"]
            ]
        except (AttributeError, LookupError, TypeError):
            raise WorkloadError("Ray's answer is not a list of nodes: see `rdma-ray doctor`") from None

    def version(self) -> str:
        """Return the version of Ray on the head. WorkloadError if the answer has none."""
        found = self.call("/api/version")
        version = found.get("ray_version") if isinstance(found, dict) else None
        if not isinstance(version, str):
            raise WorkloadError("Ray's answer has no version: see `rdma-ray doctor`")
        return version

    def call(self, path: str, method: str = "GET", body: object = None, **how: Any) -> Any:
        """Send a request as `once` does, repeatedly while Ray does not answer."""
        patience = Patience(self)
        while True:
            try:
                return self.once(path, method, body, **how)
            except UnreachableError as error:
                patience.wait(error)

    def once(
        self,
        path: str,
        method: str = "GET",
        body: object = None,
        *,
        read: Callable[[bytes], Any] = untrusted.read,
        take: Callable[[http.client.HTTPResponse], bytes] = whole,
        timeout_s: float | None = None,
    ) -> Any:
        """Send a request once. UnreachableError if Ray does not answer.

        Args:
            body: Content of the request; sent as JSON if it is not bytes.
            read: Function of the answer's content that returns its value; by default, that in JSON.
            take: Function of the answer that returns its content.
        """
        try:
            address = self.forward.address() if self.forward else self.address
        except WorkloadError as error:
            if self.answered:
                raise UnreachableError(str(error)) from None
            raise
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        limit = (timeout_s or self.timeout_s) + len(data or b"") / BYTES_PER_SECOND
        try:
            status, location, answer = self._exchange(address, path, method, data, limit, take)
            self.answered = True
            if status == 200:
                return read(answer)
        except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
            # OSError: refused, reset, timed out. The others: the answer is truncated, or another server's.
            if self.forward:
                self.forward.drop(address)
            refused = isinstance(error, (ConnectionRefusedError, listener.ListenerError)) and not self.forward
            message = f"Ray does not answer at {address} ({error or type(error).__name__}). {self.unanswered}"
            raise UnreachableError(message, refused=refused) from None
        raise self._explain(address, path, status, location, answer)

    def _exchange(
        self,
        address: str,
        path: str,
        method: str,
        data: bytes | None,
        timeout_s: float,
        take: Callable[[http.client.HTTPResponse], bytes],
    ) -> tuple[int, str | None, bytes]:
        """Return the status, the target of a redirect, and the content of an answer."""
        place = urlsplit(address)
        if place.scheme not in ("http", "https") or not place.hostname:
            raise WorkloadError(f"the stack's outputs have {address!r} as Ray's address, not an http:// address")
        kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
        connection = kind(place.hostname, place.port, timeout=timeout_s)
        try:
            connection.connect()
            if self.forward and not self.forward.runs(address):
                # Another process may have got the port.
                raise ConnectionAbortedError("kubectl port-forward has ended")
            # A certificate proves the server of https.
            if place.scheme == "http":
                listener.check(connection.sock, known=self.forward is not None)
            connection.request(method, place.path.rstrip("/") + path, data, self.headers)
            answer = connection.getresponse()
            return answer.status, answer.headers["Location"], take(answer)
        finally:
            connection.close()

    def _explain(self, address: str, path: str, status: int, location: str | None, answer: bytes) -> WorkloadError:
        path = path.split("?")[0]
        if status in (401, 403):
            return WorkloadError(
                f"the token does not match this cluster: {address} answered {status}"
                f" {'(no token)' if status == 401 else '(another token)'}. The stack's outputs are from another run"
                f" of {self.cluster!r}: `make up` updates them; with --outputs FILE, write that file again"
            )
        if status == 404:
            return UnknownError(f"{address} does not know {path}: see `rdma-ray list` for the jobs")
        if 300 <= status < 400:
            return WorkloadError(f"{address}{path} redirects to {location}: not followed, because of the token")
        # A traceback's last line is its error.
        reason = last_line(ValueError(answer[-2000:].decode(errors="replace")))
        message = f"{address}{path} answered {status}: {reason}"
        return UnreachableError(message, status) if status in BUSY else WorkloadError(message)


class Patience:
    """Time that a command still waits for Ray.

    Only the time of attempts and pauses counts, each up to its limit: a stopped or sleeping client loses nothing.
    """

    def __init__(self, api: JobsApi) -> None:
        self._api = api
        self._waited, self._noted, self._pause = 0.0, False, FIRST_PAUSE_S
        self._began = api.clock()

    def wait(self, error: UnreachableError) -> None:
        """Pause before the next attempt. Raises `error` if the patience is exhausted."""
        api = self._api
        self._waited += min(api.clock() - self._began, api.timeout_s)
        limit = api.patience_s if api.answered else min(FIRST_S, api.patience_s)
        if self._waited >= limit or (error.refused and not api.answered):
            raise error
        if self._waited >= FIRST_S and not self._noted:
            self._noted = True
            api.note(f"{error} Trying again for {limit:.0f} s")
        api.sleep(self._pause)
        self._waited += self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE_S)
        self._began = api.clock()


def exit_code(job: Job) -> int:
    """Return the exit code of a finished job: its driver's, if there is one."""
    if job.status == "SUCCEEDED":
        return Exit.OK
    if job.status == "STOPPED":
        return Exit.STOPPED
    if not job.exit_code:
        return Exit.ERROR  # FAILED without the driver's code: it never started, or its node died
    return job.exit_code if job.exit_code > 0 else 128 - job.exit_code


def reaches(job_id: str) -> bool:
    """Return whether a request to stop or delete a job of this ID reaches this job, and no other one."""
    return _PASSED_ON.fullmatch(job_id) is not None


def _seconds(milliseconds: object) -> float | None:
    value = untrusted.number(milliseconds)
    return value / 1000 if value and value < LAST_TIME else None


def _path(job_id: str, *rest: str) -> str:
    return "/".join(["/api/jobs", quote(job_id, safe="", errors="surrogateescape"), *rest])
