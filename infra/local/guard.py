"""The guard of one Ray node: it starts the node, waits to be told that the node is wanted, and stays until it ends.

Run as `python -m infra.local.guard FOLDER COMMAND…`, with a pipe on standard input. The creator writes `COMMIT` once
the node is ready; if the pipe closes before that, the creator failed or was killed, and the guard takes the node down
again and removes FOLDER. So a crash in the middle of a create leaves nothing running and nothing lying about.
Afterwards SIGTERM ends the node; when one of Ray's processes dies, `ray start --block` ends the rest, and the guard
goes too.

COMMAND is the `ray start --block` of the node, whose output goes to FOLDER/ray.log.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from infra.local import processes

COMMIT = b"wanted\n"
_POLL_S = 0.2
_RAY_GRACE_S = 8.0


def main(folder: Path, command: list[str]) -> int:
    """Start the node and stay until it is over; returns the exit status for the process."""
    asked_to_stop = False

    def stop(*_: object) -> None:
        nonlocal asked_to_stop
        asked_to_stop = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)

    with (folder / "ray.log").open("ab") as log:
        ray = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)
    wanted = given_up = False
    while ray.poll() is None and not asked_to_stop:
        if wanted:
            time.sleep(_POLL_S)
        elif select.select([sys.stdin.fileno()], [], [], _POLL_S)[0]:
            if os.read(sys.stdin.fileno(), len(COMMIT)) != COMMIT:
                given_up = True
                break
            wanted = True

    if ray.poll() is None:
        processes.end([psutil.Process(ray.pid)], grace_s=_RAY_GRACE_S)
    # Ray's own teardown misses processes whose parent was killed; they still carry the node's mark.
    processes.end_marked(os.environ[processes.MARK])
    if given_up or (asked_to_stop and not wanted):
        # Whoever made the folder is gone. If Ray ended by itself the creator still wants to read its log.
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if wanted else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
