"""Driver of a command that is itself a job's entry point: a child process, since this cluster accepts no other job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping

from workloads.client.api import Job

JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Variable from which `ray.init` reads a submitted job's runtime environment (Ray 2.60: _private/worker.py)."""


def run_driver(
    job_id: str, module: str, request: str, environment: Mapping[str, str], on_line: Callable[[str], None]
) -> Job:
    """Run a driver to its end, pass each line of its output to `on_line`, and return it as a finished job.

    The driver connects to the cluster of RAY_ADDRESS. It ends with this process: Ray and the pods of an Indexed Job
    send their signals to a whole process group.

    Args:
        module: Module of the driver; `request` is its argument.
        environment: Variables of the driver, and of the processes that it starts on other nodes.
    """
    config = json.loads(os.environ.get(JOB_CONFIG) or "{}")
    runtime = config.get("runtime_env") or {}
    variables = (runtime.get("env_vars") or {}) | dict(environment)
    config["runtime_env"] = runtime | {"env_vars": variables}
    process = subprocess.Popen(
        [sys.executable, "-m", module, request],
        env=os.environ | environment | {JOB_CONFIG: json.dumps(config)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # as in the log of a submitted job
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            on_line(line.removesuffix("\n"))
        code = process.wait()
    finally:
        process.terminate()
        process.wait()
    status, message = ("SUCCEEDED", "") if code == 0 else ("FAILED", f"the driver exited with {code}")
    return Job(id=job_id, status=status, message=message, started=None, ended=None, exit_code=code, metadata={})
