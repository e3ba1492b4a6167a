"""Driver of `rdma-ray run` on the cluster, as the entry point of a Ray job: runs the user's command.

python -m workloads.run.driver REQUEST_JSON
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from workloads import sealed
from workloads.exits import WorkloadError
from workloads.gang.masked import run_masked
from workloads.gang.options import RunOptions
from workloads.history.record import JobRecord
from workloads.secrecy import Masker

NOT_FOUND, NOT_RUN = 127, 126  # exit codes of shells for a command that does not exist, and that cannot run


def main(text: str) -> int:
    """Run the command as requested, and return the exit code of the process."""
    options = RunOptions.model_validate_json(text)
    secrets: dict[str, str] = {}
    try:
        if options.secrets:
            values = os.environ if options.secrets_here else sealed.receive(options.client_key)
            secrets = {name: values[name] for name in options.secrets}
    except (WorkloadError, KeyError) as error:
        missing = f"the client did not send the secret {error}" if isinstance(error, KeyError) else str(error)
        print(missing, file=sys.stderr)
        return 1
    if options.evidence:
        return int(import_module("workloads.run.actors").run(options, secrets))
    if options.mode == "driver":
        return run_command(options.command, dict(options.environment), secrets)
    # The head's own command needs none of it, and Ray takes a second to import.
    return int(import_module("workloads.run.session").run(options, secrets))


def run_command(
    command: tuple[str, ...],
    environment: dict[str, str],
    secrets: dict[str, str],
    record: JobRecord | None = None,
    **child: Any,
) -> int:
    """Run a command in place of this process, and return its exit code.

    Without secrets, record and options of a `child` (as for `run_masked`), it replaces this process, and the function
    returns only if it cannot run. Otherwise, it removes the secrets from the command's output, and keeps the output.
    """
    # NeMo-RL gives the driver's whole environment to ray.init, which refuses what the job's runtime_env has already.
    driver = {"RAY_OVERRIDE_JOB_RUNTIME_ENV": "1"}
    # The image's interpreter need not be on PATH.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    variables = os.environ | driver | {"PATH": path} | environment | secrets
    sys.stdout.flush()
    try:
        if secrets or record is not None or child:
            return run_masked(command, variables, Masker(secrets.values()), record, **child)
        os.execvpe(command[0], command, variables)
    except OSError as error:
        print(f"cannot run {command[0]!r} on the head: {error.strerror}", file=sys.stderr)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
