"""Submit a job over a connection that may drop: never twice, and never without knowing whether it was submitted.

Uses REST, because Ray's client cannot follow a port-forward that changes its port, repeats nothing, and takes seconds
to import (Ray 2.60).
"""

from __future__ import annotations

import hashlib
import io
import shlex
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from workloads.client.api import JobsApi, Patience, UnknownError, UnreachableError
from workloads.exits import WorkloadError

PACKAGE = Path(__file__).resolve().parents[1]
LARGEST_UPLOAD = 100 * 2**20  # bytes; ray: _private/ray_constants.py DASHBOARD_CLIENT_MAX_SIZE, 2.60, read 2026-11
SUBMISSION_S = 60  # the first job of a head waits until its agent has connected to Ray
REFUSED = (
    "status code 400"  # the head answers 500 for a 400 of its agent (ray: dashboard/modules/job/job_head.py, 2.60)
)
JOB_ID = "RDMA_RAY_JOB_ID"
"""Variable with a job's ID in each of its processes on every node, by which `shell` finds its ranks."""


class TakenError(WorkloadError):
    """Ray knows another job by this ID."""


def submit(
    api: JobsApi,
    job_id: str,
    words: list[str],
    runtime_env: Mapping[str, Any] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Start a command on the cluster under `job_id`, unless it was started already.

    The ID is the key of Ray's record of the job, so that one ID never starts two jobs. WorkloadError if Ray refuses the
    job, TakenError if it knows another command by this ID; UnreachableError if it stays unclear whether the job was
    submitted.
    """
    environment = dict(runtime_env or {})
    if job_id.isprintable():
        environment["env_vars"] = {**environment.get("env_vars", {}), JOB_ID: job_id}
    job = {
        "submission_id": job_id,
        "entrypoint": (command := as_one_process(words)),
        "runtime_env": environment,
        "metadata": dict(metadata or {}),
    }
    api.version()  # reports a closed port or another token, before anything is unclear
    patience = Patience(api)
    while True:
        try:
            api.once("/api/jobs/", "POST", job, timeout_s=SUBMISSION_S)
            return
        except UnreachableError as error:
            if _submitted(api, job_id, command):
                return
            if REFUSED in str(error):
                raise WorkloadError(f"Ray refused job {job_id}: {error}") from None
            try:
                patience.wait(error)
            except UnreachableError:
                unclear = f"it is unclear whether job {job_id} was submitted (`rdma-ray list` shows it): {error}"
                raise UnreachableError(unclear) from None


def as_one_process(words: list[str]) -> str:
    """Return the line of a job that is one process: the command replaces the shell that starts it.

    To stop a job, Ray signals the processes that it has at this moment (dashboard/modules/job/job_supervisor.py, 2.60).
    A shell such as dash starts a command as a child: one that began a moment later would run on, without a job, and
    hold its nodes (seen 2026-11-27).
    """
    return f"exec {shlex.join(words)}"


def _submitted(api: JobsApi, job_id: str, command: str) -> bool:
    """Return whether Ray knows the job. TakenError if it is another one."""
    try:
        details = api.details(job_id)
    except UnknownError:
        return False
    if details.get("entrypoint") != command:
        raise TakenError(f"job {job_id} already exists with a different command: choose another ID")
    return True


def upload(api: JobsApi, name: str, data: bytes) -> str:
    """Upload data to the cluster's key-value store, and return its URI, `gcs://NAME`. WorkloadError above 100 MiB."""
    if len(data) > LARGEST_UPLOAD:
        raise WorkloadError(
            f"an upload of {len(data) / 2**20:.0f} MiB: Ray accepts at most {LARGEST_UPLOAD // 2**20} MiB"
        )
    api.call(f"/api/packages/gcs/{name}", "PUT", data, read=bytes)
    return f"gcs://{name}"


def upload_for_minutes(api: JobsApi, name: str, data: bytes) -> None:
    """Upload data that Ray deletes after 10 minutes by default, whatever becomes of this client."""
    with suppress(UnknownError):
        # Pins the name for this time, although there is nothing yet (ray: job_head.py, get_package, 2.60).
        api.call(f"/api/packages/gcs/{name}", read=bytes)
    upload(api, name, data)


def upload_package(api: JobsApi, archive: bytes) -> str:
    """Upload a zip file for a runtime environment unless the cluster has it, and return its URI."""
    name = f"_ray_pkg_{hashlib.sha256(archive).hexdigest()[:32]}.zip"
    try:
        # Ray also keeps the package for some minutes, until a job uses it.
        api.call(f"/api/packages/gcs/{name}", read=bytes)
        return f"gcs://{name}"
    except UnknownError:
        return upload(api, name, archive)


def own_package(api: JobsApi) -> str:
    """Upload this package's sources, and return the URI of a `working_dir` or `py_modules` that contains it."""
    files = sorted(PACKAGE.rglob("*.py"))
    return upload_package(api, zipped({str(file.relative_to(PACKAGE.parent)): file.read_bytes() for file in files}))


def zipped(files: Mapping[str, bytes]) -> bytes:
    """Return a zip file that depends on the files' names and contents only."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in files.items():
            opened.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return archive.getvalue()
