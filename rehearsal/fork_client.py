"""Client of the fork server, which the engine starts instead of a language host or plugin, and the program as
kubectl.

    fork_client.py SOCKET WHAT [arguments]

It sends its request to `fork_server`, ends with its engine, and has the exit status of kubectl. It imports little,
because it starts many times in every run.
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
    """Connect, send the request, and wait for the end of the fork or of the engine, or for a signal from the engine."""
    engine = os.getppid()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(0))
    request = {"what": sys.argv[2], "arguments": sys.argv[3:], "environment": dict(os.environ), "engine": engine}
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(sys.argv[1])
        text = json.dumps(request).encode() + b"\n"
        sent = socket.send_fds(server, [text], [1, 2, os.open(".", os.O_RDONLY), 0])
        server.sendall(text[sent:])
        # The engine also waits for the end of these descriptors. The fork has its own copies.
        os.close(1)
        os.close(2)
        while os.getppid() == engine and not select.select([server], [], [], _LOOK_S)[0]:
            pass
        status = server.recv(1) if os.getppid() == engine else b""
    os._exit(status[0] if status else 0)


if __name__ == "__main__":
    main()
