"""What the engine starts in a sweep in place of a host or plugin: hands everything to `warm`, and ends with its engine.

    fork_client.py SOCKET WHAT [arguments of the engine]

Only the standard library's smallest parts, since every millisecond here counts several times a run.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys

_LOOK_S = 0.2


def main() -> None:
    """Connect, hand over, wait for the end of the fork, of the engine, or for the engine's word."""
    engine = os.getppid()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(0))
    request = {"what": sys.argv[2], "environment": dict(os.environ), "engine": engine}
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(sys.argv[1])
        text = json.dumps(request).encode() + b"\n"
        sent = socket.send_fds(server, [text], [1, 2, os.open(".", os.O_RDONLY)])
        server.sendall(text[sent:])
        # The engine waits for the end of these, too, which are the fork's now.
        os.close(1)
        os.close(2)
        while os.getppid() == engine and not select.select([server], [], [], _LOOK_S)[0]:
            pass
    os._exit(0)


if __name__ == "__main__":
    main()
