"""The connection of a node to the head of its cluster: proof of a shared token, presence, and messages.

For pods of an Indexed Job and nodes of a Slurm allocation. The head's port is open to the network, and its address may
belong to another job or another user by now. So both sides prove, for this connection, that they know the job's token,
and neither sends it. One JSON object per line, and then heartbeats and the messages of both programs:

    head: hello    job, generation, nonce    a generation is one process of a head
    node: join     name, nonce, proof        HMAC-SHA256 of "node", job, generation, name and both nonces, by the token
    head: welcome  proof                     of "head" and the same; or `second`, also with it; or `refused`
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
import json
import resource
import secrets
import socket
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

BEAT_S = 5.0
SILENT = 12
"""Heartbeats without one from the other side, a minute: a lost host closes no connection. A number and not a time, as
Slurm can suspend all nodes of a job for hours."""
GREETING_S = 5.0  # for a whole greeting, however slowly its bytes come
GREETINGS = 256  # at once; one more ends the oldest one of the address that has the most
LINE, MESSAGE = 1024, 2**16  # bytes of the longest line before and after the proof
PAUSE_S = 0.1
STRANGER = "a connection without this job's token"

Message = dict[str, Any]
Heard = Callable[[str, Message], None]
BROKEN = (OSError, TimeoutError, ValueError, KeyError, TypeError, ArithmeticError)
"""What the end of a connection, silence, and messages with whatever content raise."""


class RefusedError(Exception):
    """No connection: of another `job`, without the `token`, or the `second` one of a node (`kind`)."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


class Link:
    """A connection. `nonce` is the node's: unique to this connection."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection, self.longest, self.nonce, self.generation = connection, LINE, "", ""
        self._text, self._unheard = b"", 0

    def send(self, kind: str, **fields: object) -> None:
        """Send a message; `receive` detects a broken connection, and one whose other side reads nothing."""
        data = json.dumps({"kind": kind, **fields}).encode() + b"\n"
        with contextlib.suppress(OSError):
            if self.connection.send(data) < len(data):
                self.connection.shutdown(socket.SHUT_RDWR)

    async def receive(self) -> Message:
        """Return the next message that is no heartbeat. Raises one of `BROKEN`."""
        while True:
            line = await self._line()
            try:
                message = json.loads(line)
            except RecursionError:
                raise ValueError("not a message") from None
            if not isinstance(message, dict) or "kind" not in message:
                raise ValueError("not a message")
            self._unheard = 0
            if message["kind"] != "beat":
                return message
            await asyncio.sleep(0)  # heartbeats without a pause hold up nothing else

    async def _line(self) -> bytes:
        while b"\n" not in self._text:
            if len(self._text) >= self.longest:
                raise ValueError("a line that is too long")
            read = await asyncio.get_running_loop().sock_recv(self.connection, LINE)
            if not read:
                raise ConnectionError("silent" if self._unheard > SILENT else "the connection was closed")
            self._text += read
        line, _, self._text = self._text.partition(b"\n")
        return line

    async def beat(self) -> None:
        """Send heartbeats; end the connection if the other side is silent."""
        while self._unheard <= SILENT:
            await asyncio.sleep(BEAT_S)
            self._unheard += 1
            self.send("beat")
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)  # `receive` returns


class Members:
    """The head's side. `links` has the nodes that have joined, by name; `unproven` those that had no token.

    No connection delays another one, whoever opens hundreds, sends nothing, or sends anything.

    Args:
        names: Names of the nodes; others are refused.
        say: Gets one line for all connections without the token, and one for each name that is refused.
        heard: Gets the name of a node and its message, or one of this class: `joined`, `second` (a refused connection
            of a node that has joined), `lost` (with `why`).
    """

    def __init__(
        self, listener: socket.socket, token: str, names: Collection[str], job: str, say: Callable[[str], None],
        heard: Heard, generation: str = "",
    ) -> None:  # fmt: skip
        self._listener, self._token, self._names, self._say, self._heard = listener, token, names, say, heard
        self.port = int(listener.getsockname()[1])
        self.job, self.generation = job, generation or secrets.token_hex(8)
        self.links: dict[str, Link] = {}
        self.unproven: list[str] = []
        self._said: set[str] = set()
        self._greetings: dict[asyncio.Task[None], str] = {}  # source by task, the oldest one first
        self._joined: set[asyncio.Task[None]] = set()
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)  # descriptors for everything else stay free
        self._limit = GREETINGS if most == resource.RLIM_INFINITY else min(GREETINGS, most // 4)
        self._accepting = asyncio.ensure_future(self._accept())

    async def close(self, within_s: float = 0.0) -> None:
        """Wait for the nodes that have joined to leave, and end all connections."""
        if self._joined:
            await asyncio.wait(self._joined, timeout=within_s)
        for task in (tasks := [self._accepting, *self._greetings, *self._joined]):
            task.cancel()
        await asyncio.wait(tasks)
        self._listener.close()

    async def _accept(self) -> None:
        self._listener.setblocking(False)
        while True:
            await asyncio.sleep(0)  # sock_accept does not yield while connections wait
            try:
                connection, (source, *_) = await asyncio.get_running_loop().sock_accept(self._listener)
            except OSError as error:  # also ECONNABORTED, and errors of the connection's network (accept(2))
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._end_one()
                    await asyncio.sleep(PAUSE_S)
                continue
            task = asyncio.ensure_future(self._serve(Link(connection), str(source)))
            self._greetings[task] = str(source)
            task.add_done_callback(lambda _, ended=connection: ended.close())  # type: ignore[misc]
            if len(self._greetings) > self._limit:
                self._end_one()

    def _end_one(self) -> None:
        """End the oldest greeting of the address that has the most."""
        if self._greetings:
            [(source, _)] = Counter(self._greetings.values()).most_common(1)
            task = next(task for task, each in self._greetings.items() if each == source)
            self._refuse(STRANGER, self._greetings.pop(task))
            task.cancel()

    async def _serve(self, link: Link, source: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            async with asyncio.timeout(GREETING_S):
                name = await self._greet(link, source)
        except BROKEN:
            name = None
            self._refuse(STRANGER, source)
        finally:
            self._greetings.pop(task, None)
        if name is None:
            return
        self._joined.add(task)
        beating = asyncio.ensure_future(link.beat())
        try:
            self._heard(name, {"kind": "joined"})
            while True:
                self._heard(name, await link.receive())
        except BROKEN as error:
            self._heard(name, {"kind": "lost", "why": str(error)})
        finally:
            beating.cancel()
            self._joined.remove(task)

    async def _greet(self, link: Link, source: str) -> str | None:
        """Return the name of a node that has joined. Raises one of `BROKEN`."""
        nonce = secrets.token_hex(16)
        link.send("hello", job=self.job, generation=self.generation, nonce=nonce)
        said = await link.receive()
        name, link.nonce = str(said["name"]), str(said["nonce"])
        bound = (self.job, self.generation, name, nonce, link.nonce)
        if not _proves(said, self._token, "node", *bound):
            if name in self._names and name not in self.unproven:
                self.unproven.append(name)
            link.send("refused")
            self._refuse(STRANGER, source)
        elif name not in self._names:
            self._refuse(f"a node {name!r} that is not of this job", source)
        elif name in self.links:
            link.send("second", proof=proof(self._token, "head", *bound))
            self._refuse(f"a second connection of node {name}", source)
            self._heard(name, {"kind": "second"})
        else:
            self.links[name] = link  # before the node knows
            link.longest = MESSAGE
            link.send("welcome", proof=proof(self._token, "head", *bound))
            return name
        return None

    def _refuse(self, what: str, source: str) -> None:
        if what not in self._said:
            self._said.add(what)
            with contextlib.suppress(OSError):  # the disk of the log is full
                self._say(f"refused {what}, from {source} to port {self.port}; further ones are not shown")


async def join(host: str, port: int, token: str, name: str, job: str) -> Link:
    """Connect to the head at an address, as the node with this name.

    Raises:
        RefusedError: It is another head, or refuses this node.
        OSError, ValueError, KeyError, TypeError: It does not answer as a head does (`BROKEN`), which may change.
    """
    link = Link(socket.socket())
    try:
        async with asyncio.timeout(2 * GREETING_S):  # longer than the head waits, which has then decided
            await asyncio.get_running_loop().sock_connect(link.connection, (host, port))
            hello = await link.receive()
            if hello["job"] != job:
                raise RefusedError("job", f"that is the head of another Job, {hello['job']!r}")
            link.generation, link.nonce = str(hello["generation"]), secrets.token_hex(16)
            bound = (job, link.generation, name, str(hello["nonce"]), link.nonce)
            link.send("join", name=name, nonce=link.nonce, proof=proof(token, "node", *bound))
            said = await link.receive()
        if said["kind"] == "refused" or not _proves(said, token, "head", *bound):
            raise RefusedError("token", "what listens there does not know this job's token")
        if said["kind"] == "second":
            raise RefusedError("second", "the head has a connection of this node")
    except BaseException:
        link.connection.close()
        raise
    link.longest = MESSAGE
    return link


def proof(token: str, *bound: str) -> str:
    """Return what only a process with the token can compute, for one side of one connection."""
    return hmac.new(token.encode(), json.dumps(bound).encode(), "sha256").hexdigest()


def _proves(said: Message, token: str, *bound: str) -> bool:
    # As bytes: the other side may have sent any characters.
    return hmac.compare_digest(str(said["proof"]).encode(), proof(token, *bound).encode())
