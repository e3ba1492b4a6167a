"""A job on the cluster: this package as its working directory, its own id, the token in a header."""

from __future__ import annotations

import logging
import secrets
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from infra.outputs import Outputs
from workloads.client.api import Api
from workloads.client.mode import refuse_jobs
from workloads.exits import WorkloadError, last_line

PACKAGE = Path(__file__).resolve().parents[1]

# Every job gets these: one thread per process where many ranks share a machine, and lines as they are printed.
JOB_ENVIRONMENT = {
    "PYTHONUNBUFFERED": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",  # Ray drops lines that look alike; events of two epochs do
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",  # else every line of a Train worker comes twice
}


def new_id(kind: str) -> str:
    """A submission id that sorts by time and names the workload: `nccl-20261121-130501-a1b2c3`."""
    return f"{kind}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def entrypoint(outputs: Outputs, module: str, arguments: Sequence[str]) -> str:
    """The shell line that starts `module` on the head.

    On `local` the nodes run in this very environment, and its interpreter need not be on the nodes' PATH.
    """
    python = sys.executable if outputs.target == "local" else "python"
    return shlex.join([python, "-m", module, *arguments])


def submit(
    outputs: Outputs,
    job_id: str,
    command: str,
    environment: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Api:
    """Start `command` on the stack's cluster under `job_id`, with this package importable as `workloads`.

    Returns the interface that follows it. Raises what Api raises, and WorkloadError where the stack's Ray takes no
    jobs or refuses this one.
    """
    refuse_jobs(outputs)
    api = Api.of(outputs)
    # Asked first: Ray's client turns a refused token and a closed port into messages of its own.
    api.version()

    from ray.job_submission import JobSubmissionClient  # 1.6 s, so that only a submission pays it

    client = JobSubmissionClient(api.address, headers=api.headers)
    # Ray's client sets its own level to INFO and tells of every package that it packs.
    for chatty in ("ray.dashboard.modules.dashboard_sdk", "ray._private.runtime_env.packaging"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    with staged_package() as folder:
        try:
            client.submit_job(
                entrypoint=command,
                submission_id=job_id,
                runtime_env={"working_dir": str(folder), "env_vars": JOB_ENVIRONMENT | dict(environment or {})},
                metadata=dict(metadata or {}),
            )
        except RuntimeError as error:
            raise WorkloadError(f"Ray refused job {job_id}: {last_line(error)}") from error
    return api


@contextmanager
def staged_package() -> Iterator[Path]:
    """A folder that holds nothing but this package's sources: what the cluster gets (some 100 KB)."""
    with tempfile.TemporaryDirectory(prefix="rdma-ray-") as folder:
        shutil.copytree(PACKAGE, Path(folder) / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        yield Path(folder)
