"""Who is there: each node keeps a connection to the first node's process, whose end shows at once on both sides."""

from __future__ import annotations

import contextlib
import hmac
import select
import socket
import threading
from contextlib import AbstractContextManager

from workloads.slurm.facts import free_port

LINE = 1024  # bytes of the longest greeting
GREETING_S = 5.0
# A host that has lost its power or its network sends nothing: after a minute without an answer it is lost (tcp(7)).
_ALIVE = ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 3))


class Members(AbstractContextManager["Members"]):
    """The first node's side. `seen` has the names of the nodes that have connected.

    The port is open to the network, so a connection counts only after a line with the token.
    """

    def __init__(self, address: str, token: str) -> None:
        self._token = token
        self._listener = socket.create_server((address, free_port(address)))
        self.port = int(self._listener.getsockname()[1])
        self.seen: dict[str, socket.socket] = {}
        threading.Thread(target=self._accept, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for connection in self.seen.values():
            connection.close()

    def lost(self) -> str | None:
        """Return the name of a node whose connection has ended."""
        return next((name for name, connection in [*self.seen.items()] if ended(connection, 0)), None)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._greet, args=(connection,), daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            connection.settimeout(GREETING_S)
            text = b""
            while not text.endswith(b"\n") and len(text) < LINE and (read := connection.recv(LINE)):
                text += read
            token, name = text.decode().split()
            if hmac.compare_digest(token, self._token):
                keep_alive(connection)
                self.seen[name] = connection
                return
        connection.close()


class Link(AbstractContextManager["Link"]):
    """Another node's side. Raises OSError if the first node does not answer."""

    def __init__(self, address: str, port: int, name: str, token: str) -> None:
        self._connection = socket.create_connection((address, port), timeout=GREETING_S)
        keep_alive(self._connection)
        self._connection.sendall(f"{token} {name}\n".encode())

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def closed(self, within_s: float) -> bool:
        """Wait up to `within_s` seconds; return whether the first node has ended."""
        return ended(self._connection, within_s)


def keep_alive(connection: socket.socket) -> None:
    """Have the kernel find out whether the other host still exists."""
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _ALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, name, value)


def ended(connection: socket.socket, within_s: float) -> bool:
    """Return whether the other side has closed the connection, or its host is gone. Nothing is ever sent."""
    if not select.select([connection], [], [], within_s)[0]:
        return False
    try:
        return not connection.recv(LINE)
    except OSError:
        return True
