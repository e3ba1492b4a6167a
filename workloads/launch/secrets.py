"""Secrets of a run: values that the client puts into the cluster's key-value store, and the driver takes out once.

The client writes a JSON object of names and values by Ray's upload of packages, `PUT /api/packages/gcs/NAME`, which
stores bytes as they are (ray: _private/runtime_env/packaging.py, 2.60). They are in the memory of the head, not in
the job's record, its log or a command line. Imports Ray on use.
"""

from __future__ import annotations

import json
import os

from workloads.exits import WorkloadError


def name(job_id: str) -> str:
    """Return the name of the package with the secrets of a job."""
    return f"rdma-ray-secrets-{job_id}"


def own_job_id() -> str:
    """Return the submission ID of the job whose entry point this process is (ray: job_supervisor.py, 2.60)."""
    config = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR") or "{}")
    found = (config.get("metadata") or {}).get("job_submission_id")
    if not found:
        raise WorkloadError("this process is not the entry point of a Ray job: submit it with `rdma-ray run`")
    return str(found)


def take(job_id: str) -> dict[str, str]:
    """Return the secrets of a job, and delete them from the cluster. WorkloadError if there are none."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # Cython, without types

    store = GcsClient(os.environ["RAY_ADDRESS"])
    key = f"gcs://{name(job_id)}".encode()
    value = store.internal_kv_get(key, None)
    store.internal_kv_del(key, False, None)
    if value is None:
        raise WorkloadError(
            f"the secrets of job {job_id} are not in the cluster: Ray's head restarted, or the job did. Run it again"
        )
    found: dict[str, str] = json.loads(value)
    return found
