"""Membership: each node keeps a connection to the first node's process. Both sides notice at once when it ends.

The port is open to the network, and after the job another user may listen on it. So both sides prove that they know the
job's token, and neither sends it. Lines of ASCII:

    first node: NONCE
    node:       NAME NONCE PROOF    HMAC-SHA256 of "node NAME" and both nonces, with the token as its key
    first node: PROOF               of "head NAME" and both nonces
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import resource
import secrets
import select
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from workloads.slurm.facts import free_port

LINE = 1024  # bytes of the longest line
GREETING_S = 5.0  # for a whole greeting, however slowly its bytes come
GREETINGS = 256
"""Maximum of connections that greet at once. Beyond it, the oldest connection of the busiest address is closed."""
BATCH = 4  # connections to accept before the answers of earlier ones are read
PAUSE_S = 0.1
STRANGER = "a connection without this job's token"
# A host that has lost its power or its network sends nothing: after a minute without an answer it is lost (tcp(7)).
_ALIVE = ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 3))


class ImpostorError(OSError):
    """The listener at the first node's address does not know the token."""


@dataclass(eq=False)
class Greeting:
    """A connection that has not yet proved anything."""

    connection: socket.socket
    source: str
    until: float
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))
    text: bytes = b""


class Members(AbstractContextManager["Members"]):
    """The first node's side. `seen` has the names of the nodes that have connected.

    One thread serves all connections: clients that open hundreds, send nothing, or send garbage delay no node.

    Args:
        nodes: Names of the nodes; others are refused.
        say: Gets one line for all connections without the token, and one for each name that is refused.
    """

    def __init__(self, address: str, token: str, nodes: Collection[str], say: Callable[[str], None]) -> None:
        self._token, self._nodes, self._say = token, nodes, say
        self._listener = _listen(address)
        self.port = int(self._listener.getsockname()[1])
        self.seen: dict[str, socket.socket] = {}
        self._lost: list[str] = []
        self._greetings: list[Greeting] = []  # the oldest one first
        self._limit = _greetings()
        self._said: set[str] = set()
        self._closed = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # the thread returns from its wait
        self._thread.join()
        for connection in (self._listener, *(each.connection for each in self._greetings), *self.seen.values()):
            connection.close()
        self._selector.close()

    def lost(self) -> str | None:
        """Return the name of a node whose connection has ended."""
        return self._lost[0] if self._lost else None

    def _run(self) -> None:
        while not self._closed:
            due = self._greetings[0].until - time.monotonic() if self._greetings else None
            for key, _ in self._selector.select(None if due is None else max(due, 0.0)):
                if key.data is None:
                    self._accept()
                elif isinstance(key.data, str):
                    self._watch(key.data)
                elif key.data in self._greetings:  # not ended since by a newer one
                    self._read(key.data)
            now = time.monotonic()
            for late in [each for each in self._greetings if each.until <= now]:
                self._end(late)

    def _accept(self) -> None:
        for _ in range(BATCH):
            try:
                connection, (source, *_) = self._listener.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM) and not self._closed:
                    self._end_one()
                    time.sleep(PAUSE_S)
                return  # the next turn accepts what waits: EAGAIN, ECONNABORTED, errors of its network (accept(2))
            connection.setblocking(False)
            greeting = Greeting(connection, str(source), time.monotonic() + GREETING_S)
            self._greetings.append(greeting)
            self._selector.register(connection, selectors.EVENT_READ, greeting)
            try:
                connection.send(f"{greeting.nonce}\n".encode())
            except OSError:
                self._end(greeting)
            if len(self._greetings) > self._limit:
                self._end_one()

    def _end_one(self) -> None:
        """End the oldest greeting of the address that has the most."""
        sources = Counter(each.source for each in self._greetings)
        if sources:
            most = max(sources.values())
            self._end(next(each for each in self._greetings if sources[each.source] == most))

    def _end(self, greeting: Greeting, refused: str = STRANGER) -> None:
        self._greetings.remove(greeting)
        self._selector.unregister(greeting.connection)
        greeting.connection.close()
        if refused not in self._said:
            self._said.add(refused)
            with contextlib.suppress(OSError):  # the disk of the log is full
                self._say(f"refused {refused}, from {greeting.source} to port {self.port}; further ones are not shown")

    def _read(self, greeting: Greeting) -> None:
        try:
            read = greeting.connection.recv(LINE)
        except BlockingIOError:
            return
        except OSError:
            read = b""
        greeting.text += read
        if read and len(greeting.text) < LINE and not greeting.text.endswith(b"\n"):
            return
        # Whatever the bytes are, they have a representation of ASCII; the proof is compared as bytes.
        name, nonce, shown = (*greeting.text.decode("ascii", "backslashreplace").split(), "", "", "")[:3]
        nonces = (greeting.nonce, nonce)
        if not hmac.compare_digest(shown.encode(), proof(self._token, "node", name, *nonces)):
            self._end(greeting)
        elif name not in self._nodes:
            self._end(greeting, f"a node {name!r} that is not of this job")
        elif name in self.seen:
            self._end(greeting, f"a second connection of node {name}")
        else:
            self._admit(greeting, name, proof(self._token, "head", name, *nonces))

    def _admit(self, greeting: Greeting, name: str, answer: bytes) -> None:
        connection = self.seen[name] = greeting.connection  # before the node knows
        try:
            connection.send(answer + b"\n")
            keep_alive(connection)
        except OSError:
            del self.seen[name]
            self._end(greeting)
            return
        self._greetings.remove(greeting)
        self._selector.modify(connection, selectors.EVENT_READ, name)

    def _watch(self, name: str) -> None:
        if ended(self.seen[name], 0.0):
            self._selector.unregister(self.seen[name])
            self._lost.append(name)


class Link(AbstractContextManager["Link"]):
    """Another node's side.

    Raises:
        ImpostorError: The other side is not this job's first node.
        OSError: It does not answer, which another attempt may change.
    """

    def __init__(self, address: str, port: int, name: str, token: str) -> None:
        self._connection = socket.create_connection((address, port), timeout=GREETING_S)
        until = time.monotonic() + 2 * GREETING_S  # longer than the first node waits, which has then decided
        try:
            nonces = (_line(self._connection, until), secrets.token_hex(16))
            shown = proof(token, "node", name, *nonces).decode()
            self._connection.sendall(f"{name} {nonces[1]} {shown}\n".encode())
            answer = _line(self._connection, until).encode()
            if not hmac.compare_digest(answer, proof(token, "head", name, *nonces)):
                raise ImpostorError("the listener there does not know this job's token")
            keep_alive(self._connection)
        except BaseException:
            self._connection.close()
            raise

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def closed(self, within_s: float) -> bool:
        """Wait up to `within_s` seconds; return whether the first node has ended."""
        return ended(self._connection, within_s)


def proof(token: str, role: str, name: str, *nonces: str) -> bytes:
    """Return a proof that only a process with the token can compute, for one side of one connection."""
    return hmac.new(token.encode(), " ".join((role, name, *nonces)).encode(), "sha256").hexdigest().encode()


def keep_alive(connection: socket.socket) -> None:
    """Make the kernel check whether the other host still exists."""
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _ALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, name, value)


def ended(connection: socket.socket, within_s: float) -> bool:
    """Return whether the other side has closed the connection, or its host is gone. Nothing is ever sent."""
    wait = select.poll()  # unlike select, for descriptors above 1024 as well
    wait.register(connection, select.POLLIN)
    if not wait.poll(1000 * within_s):
        return False
    try:
        return not connection.recv(LINE)
    except OSError:
        return True


def _greetings() -> int:
    """Return how many connections may greet at once: descriptors for everything else stay free."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return GREETINGS if most == resource.RLIM_INFINITY else min(GREETINGS, most // 4)


def _listen(address: str) -> socket.socket:
    """Return a socket that listens on a free port. Another process may take one that was free a moment ago."""
    while True:
        try:
            listener = socket.create_server((address, free_port(address)), backlog=socket.SOMAXCONN)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            listener.setblocking(False)
            return listener


def _line(connection: socket.socket, until: float) -> str:
    """Return a line of the other side. Raises OSError if it ends, is too slow, or is too long."""
    text = b""
    while not text.endswith(b"\n"):
        connection.settimeout(max(until - time.monotonic(), 0.001))
        read = connection.recv(LINE)
        text += read
        if not read or len(text) > LINE:
            raise ConnectionError("it closed the connection" if not read else "it sent a line that is too long")
    return text.decode("ascii", "backslashreplace").strip()
