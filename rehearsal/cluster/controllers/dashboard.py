"""Stub of Ray's dashboards, to which the operator submits jobs: an HTTP proxy that responds for every head.

Replaces the head's job API, since no container runs. It responds to the three requests that KubeRay 1.6.2 sends for a
RayJob (ray-operator/controllers/ray/rayjob_controller.go: submit, get, stop) like Ray 2.60, but only if the Service
selects a ready head pod. With `authOptions.mode: token` it requires the cluster's token, otherwise returns 401.
Jobs end with the head that has them, or with its container: nothing stores them (Ray docs, fault_tolerance/gcs, read
2026-11).
"""

from __future__ import annotations

import base64
import hmac
import json
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from infra.catalog.pins import RAY_API
from infra.kubernetes.pods import TOKEN_KEY
from rehearsal.cluster.controllers.snapshot import condition
from rehearsal.engine.kind import Json, value_at
from tools.kubernetes.api import Api

FINAL = ("SUCCEEDED", "FAILED", "STOPPED")
_HEADERS = ("x-ray-authorization", "authorization")


@dataclass
class Job:
    """Submitted job. `cluster` is NAMESPACE/NAME of its RayCluster, `head` identifies the head's container that has it;
    times are seconds since the epoch."""

    id: str
    cluster: str
    head: str
    request: Json
    status: str = "PENDING"
    message: str = ""
    began: float = field(default_factory=time.time)
    ended: float | None = None

    def answer(self) -> Json:
        """Return the job as Ray describes it."""
        return {
            "job_id": self.id,
            "submission_id": self.id,
            "status": self.status,
            "message": self.message,
            "entrypoint": self.request.get("entrypoint", ""),
            "start_time": int(self.began * 1000),
            **({"end_time": int(self.ended * 1000)} if self.ended is not None else {}),
        }


class Dashboard:
    """The proxy. The operator gets `url` as HTTP_PROXY.

    Jobs change from PENDING to RUNNING and after `runs_s` seconds to SUCCEEDED. If `manual` is set, a test changes them
    by `change`.
    """

    def __init__(self, api: Api, report: Callable[..., None], *, runs_s: float = 3.0) -> None:
        self._api = api
        self._report = report
        self._runs_s = runs_s
        self._lock = threading.Lock()
        self._jobs: dict[tuple[str, str], Job] = {}
        self.manual = False
        """Whether jobs wait for `change`."""
        self.refused: list[str] = []
        """The clusters of requests without the right token, one entry each."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="ray dashboard", daemon=True)

    @property
    def url(self) -> str:
        """The URL of the proxy."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def jobs(self) -> list[Job]:
        """The jobs of the heads that run, the oldest first."""
        with self._lock:
            return list(self._jobs.values())

    def start(self) -> None:
        """Start listening."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def change(self, job: str, status: str, message: str = "") -> None:
        """Set the status of a job. Raises `KeyError` for an unknown job."""
        with self._lock:
            self._change({each.id: each for each in self._jobs.values()}[job], status, message)

    def reconcile(self, _snapshot: object = None) -> None:
        """Forget the jobs of lost heads, and update the status of those that are due."""
        now = time.time()
        with self._lock:
            for cluster in {job.cluster for job in self._jobs.values()}:
                namespace, name = cluster.split("/")
                labels = f"ray.io/cluster={name},ray.io/node-type=head"
                self._forget(cluster, {_identity(pod) for pod in self._api.list("v1", "Pod", namespace, labels)})
            for job in [] if self.manual else self._jobs.values():
                if job.status == "PENDING":
                    self._change(job, "RUNNING", "Job is currently running.")
                elif job.status == "RUNNING" and now - job.began > self._runs_s:
                    self._change(job, "SUCCEEDED", "Job finished successfully.")

    def answer(self, method: str, url: str, headers: Callable[[str], str | None], body: bytes) -> tuple[int, Json]:
        """Return the dashboard's answer for `url`, as (HTTP status, JSON)."""
        address = urlsplit(url)
        found = self._cluster(address.hostname or "")
        if found is None:
            return 502, {"error": f"no head answers at {address.netloc}"}
        cluster, head = found
        name = f"{cluster['metadata']['namespace']}/{cluster['metadata']['name']}"
        if not self._known(cluster, headers):
            self.refused.append(name)
            return 401, {"error": "Unauthorized: Missing or invalid authentication token"}
        with self._lock:
            self._forget(name, {head})
            match method, [part for part in address.path.split("/") if part]:
                case "POST", ["api", "jobs"]:
                    return self._submit(name, head, json.loads(body))
                case _, ["api", "jobs", id_, *rest]:
                    if (job := self._jobs.get((name, id_))) is None:
                        return 404, {"error": f"Job {id_} does not exist"}
                    if (method, rest) == ("GET", []):
                        return 200, job.answer()
                    if (method, rest) == ("POST", ["stop"]):
                        running = job.status not in FINAL
                        if running:
                            self._change(job, "STOPPED", "Job was intentionally stopped.")
                        return 200, {"stopped": running}
        return 404, {"error": f"{method} {address.path}: the stub of the dashboard does not support this"}

    def _forget(self, cluster: str, heads: Collection[str]) -> None:
        for key, job in list(self._jobs.items()):
            if job.cluster == cluster and job.head not in heads:
                del self._jobs[key]
                self._report("JobChanged", cluster=cluster, job=job.id, status="lost with its head")

    def _submit(self, cluster: str, head: str, request: Json) -> tuple[int, Json]:
        id_ = request["submission_id"]
        if (cluster, id_) in self._jobs:
            return 500, {"error": f"Job with submission_id {id_} already exists. Please use a different submission_id."}
        self._jobs[cluster, id_] = Job(id=id_, cluster=cluster, head=head, request=request)
        self._report("JobChanged", cluster=cluster, job=id_, status="PENDING")
        return 200, {"job_id": id_, "submission_id": id_}

    def _change(self, job: Job, status: str, message: str) -> None:
        job.status, job.message = status, message
        if status in FINAL:
            job.ended = time.time()
        self._report("JobChanged", cluster=job.cluster, job=job.id, status=status)

    def _cluster(self, host: str) -> tuple[Json, str] | None:
        """Return the RayCluster whose head service has this name, and the identity of its head, if that is ready."""
        service, namespace, *_ = [*host.split("."), "", ""]
        service_object = self._api.get("v1", "Service", service, namespace)
        selector = value_at(service_object, "spec.selector") or {}
        name = selector.get("ray.io/cluster")
        if not name:
            return None
        labels = ",".join(f"{key}={value}" for key, value in selector.items())
        heads = self._api.list("v1", "Pod", namespace, labels)
        ready = [
            pod for pod in heads if not pod["metadata"].get("deletionTimestamp") and condition(pod, "Ready") == "True"
        ]
        its = self._api.get(RAY_API, "RayCluster", str(name), namespace) if ready else None
        return (its, _identity(ready[0])) if its else None

    def _known(self, cluster: Json, headers: Callable[[str], str | None]) -> bool:
        options = value_at(cluster, "spec.authOptions") or {}
        if options.get("mode") != "token":
            return True
        metadata = cluster["metadata"]
        secret = self._api.get("v1", "Secret", options.get("secretName") or metadata["name"], metadata["namespace"])
        token = base64.b64decode((value_at(secret, "data") or {}).get(TOKEN_KEY) or "")
        shown = next((value for name in _HEADERS if (value := headers(name)) is not None), "")
        return bool(token) and hmac.compare_digest(shown.encode(), b"Bearer " + token)


def _identity(pod: Json) -> str:
    """Return what changes when another container runs Ray: the pod, or the restarts of its first container."""
    restarts = {each["name"]: each["restartCount"] for each in value_at(pod, "status.containerStatuses") or ()}
    return f"{pod['metadata']['uid']} {restarts.get(pod['spec']['containers'][0]['name'], 0)}"


def _handler(dashboard: Dashboard) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                status, answer = dashboard.answer(self.command, self.path, self.headers.get, body)
            except Exception as problem:  # The operator sees the error and retries.
                status, answer = 500, {"error": f"{type(problem).__name__}: {problem}"}
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _answer  # noqa: N815 - the names that the server looks for

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class' name
            """Log nothing: the controllers report events."""

    return Handler
