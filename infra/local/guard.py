"""Guard process of a Ray node: it starts the node, stops it unless the creator commits, and runs until the node ends.

Run as `python -m infra.local.guard FOLDER COMMAND…`, with a pipe on standard input. The creator writes `COMMIT` once
the node is ready. If the pipe closes before that, the creator failed or was killed, and the guard ends the node and
removes FOLDER, so a crash during a create leaves no process or file. After the commit, SIGTERM ends the node; when one
of Ray's processes dies, `ray start --block` ends the rest, and the guard exits.

COMMAND is the node's `ray start --block`, with its output in FOLDER/ray.log.
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

COMMIT = b"commit\n"
_POLL_S = 0.2
_RAY_GRACE_S = 8.0


def main(folder: Path, command: list[str]) -> int:
    """Start the node and wait until it ends; return the exit status of the process."""
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)

    with (folder / "ray.log").open("ab") as log:
        ray = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)
    committed = abandoned = False
    while ray.poll() is None and not stopping:
        if committed:
            time.sleep(_POLL_S)
        elif select.select([sys.stdin.fileno()], [], [], _POLL_S)[0]:
            if os.read(sys.stdin.fileno(), len(COMMIT)) != COMMIT:
                abandoned = True
                break
            committed = True

    if ray.poll() is None:
        processes.end([psutil.Process(ray.pid)], grace_s=_RAY_GRACE_S)
    # Ray's teardown misses processes whose parent was killed; they still carry the node's mark.
    processes.end_marked(os.environ[processes.MARK])
    if abandoned or (stopping and not committed):
        # The creator is gone. If Ray ended first, the creator still reads its log.
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if committed else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
