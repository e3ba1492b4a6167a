"""Driver of `rdma-ray run` on the cluster, as the entry point of a Ray job: runs the user's command.

python -m workloads.launch.driver REQUEST_JSON
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

from workloads.exits import WorkloadError
from workloads.launch import secrets
from workloads.launch.options import RunOptions

NOT_FOUND, NOT_RUN = 127, 126  # exit codes of shells for a command that does not exist, and that cannot run


def main(text: str) -> int:
    """Run the command as requested, and return the exit code of the process."""
    options = RunOptions.model_validate_json(text)
    try:
        environment = dict(options.environment)
        if options.secrets:
            values = os.environ if options.secrets_here else secrets.take(secrets.own_job_id())
            environment |= {name: values[name] for name in options.secrets}
    except (WorkloadError, KeyError) as error:
        missing = f"the client did not send the secret {error}" if isinstance(error, KeyError) else str(error)
        print(missing, file=sys.stderr)
        return 1
    if options.mode == "driver":
        return replace_by(options.command, environment)
    # The head's own command needs none of it, and Ray takes a second to import.
    return int(import_module("workloads.launch.session").run(options, environment))


def replace_by(command: tuple[str, ...], environment: dict[str, str]) -> int:
    """Replace this process by the command, which then is the job's entry point. Return only if it cannot run."""
    # The image's interpreter need not be on PATH.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, os.environ | {"PATH": path} | environment)
    except OSError as error:
        print(f"cannot run {command[0]!r} on the head: {error.strerror}", file=sys.stderr)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
