"""Driver of a command that is itself a job's entry point: a child process, since this cluster accepts no other job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping

from workloads.client.api import Job
from workloads.gang.masked import JOB_CONFIG, STOPPING, child, job_config
from workloads.history.record import JobRecord
from workloads.history.recording import recording


def has_working_dir() -> bool:
    """Return whether Ray distributes the working directory of this entry point, a submitted job, to every node."""
    config = json.loads(os.environ.get(JOB_CONFIG) or "{}")
    return "working_dir" in (config.get("runtime_env") or {})


def driver_environment(variables: Mapping[str, str], working_dir: str | None = None) -> dict[str, str]:
    """Return the environment of a driver, with the job's runtime environment that `ray.init` passes to every node.

    Args:
        variables: Variables of the driver, and of the processes that it starts on other nodes.
        working_dir: URI of the folder in which these start; None for that of the job.
    """
    return os.environ | variables | {JOB_CONFIG: job_config(variables, working_dir)}


def run_driver(
    job_id: str,
    module: str,
    request: str,
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
    *,
    working_dir: str | None = None,
    private: Mapping[str, str] | None = None,
    record: JobRecord | None = None,
) -> Job:
    """Run a driver to its end, pass each line of its output to `on_line`, and return it as a finished job.

    The driver connects to the cluster of RAY_ADDRESS. It gets the signals of this process, which waits for its end: Ray
    and the pods of an Indexed Job send theirs to a whole process group, Slurm and users also to one process.

    Args:
        module: Module of the driver; `request` is its argument.
        environment: See `driver_environment`, as for `working_dir`.
        private: Variables of the driver alone, such as secrets.
        record: What the storage keeps of the job; None for nothing.
    """
    stopped = False

    def send(process: subprocess.Popen[str], _: int) -> None:
        nonlocal stopped
        stopped = True
        process.terminate()

    with recording(record) as keeper:
        with child(
            [sys.executable, "-m", module, request],
            STOPPING,
            send,
            env=driver_environment(environment, working_dir) | dict(private or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # as in the log of a submitted job
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    keeper.write(line.encode())
                    on_line(line.removesuffix("\n"))
                code = process.wait()
            finally:
                process.terminate()
                process.wait()
        keeper.end(code, stopped=stopped)
    status, message = ("SUCCEEDED", "") if code == 0 else ("FAILED", f"the driver exited with {code}")
    return Job(id=job_id, status=status, message=message, started=None, ended=None, exit_code=code, metadata={})
