"""Submit a job."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workloads.client.api import Api
from workloads.exits import WorkloadError

PACKAGE = Path(__file__).resolve().parents[1]


def submit(
    api: Api,
    job_id: str,
    command: str,
    runtime_env: Mapping[str, Any] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Start `command` on the cluster under `job_id`, unless it was started already."""
    if any(job.id == job_id for job in api.jobs()):
        if api.call(f"/api/jobs/{job_id}").get("entrypoint") != command:
            raise WorkloadError(f"a job {job_id} with another command exists already: choose another ID")
        return
    job = {
        "submission_id": job_id,
        "entrypoint": command,
        "runtime_env": dict(runtime_env or {}),
        "metadata": dict(metadata or {}),
    }
    api.call("/api/jobs/", "POST", job)


def upload(api: Api, name: str, data: bytes) -> str:
    """Upload data to the cluster's key-value store, and return its URI, `gcs://NAME`."""
    api.call(f"/api/packages/gcs/{name}", "PUT", data, read=bytes)
    return f"gcs://{name}"


def upload_package(api: Api, archive: bytes) -> str:
    """Upload a zip file for a runtime environment, and return its URI."""
    return upload(api, f"_ray_pkg_{hashlib.sha256(archive).hexdigest()[:32]}.zip", archive)


def own_package(api: Api) -> str:
    """Upload this package's sources, and return the URI of a `working_dir` or `py_modules` that contains it."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        for file in sorted(PACKAGE.rglob("*.py")):
            opened.writestr(zipfile.ZipInfo(str(file.relative_to(PACKAGE.parent))), file.read_bytes())
    return upload_package(api, archive.getvalue())
