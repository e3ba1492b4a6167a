"""The port on which nodes meet, also under attack: nodes join in seconds, no token is sent, and the log stays short."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from infra.kubernetes.indexed_job_pod import link as link_module
from infra.kubernetes.indexed_job_pod.link import BROKEN, Link, Members, Message, RefusedError, join, proof

ADDRESS, TOKEN, JOB = "127.0.0.1", "0123456789abcdef" * 4, "job-7"
GREETING_S, JOINED_S, CONNECTIONS = 2.0, 5.0, 600
HEAD = f"""
import asyncio, resource, socket, sys
from infra.kubernetes.indexed_job_pod import link
link.GREETING_S = {GREETING_S}
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
async def main():
    listener = socket.create_server(("{ADDRESS}", 0), backlog=socket.SOMAXCONN)
    lost = []
    def heard(name, message):
        lost.extend([name] * (message["kind"] == "lost"))
    members = link.Members(listener, "{TOKEN}", ["n1", "n2"], "{JOB}", lambda text: print(text, flush=True), heard)
    print(members.port, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print(sorted(members.links), lost, flush=True)
asyncio.run(main())
"""

Attack = Callable[[int, list[socket.socket]], None]


def idle(port: int, held: list[socket.socket]) -> None:
    """Open as many as possible, and send nothing."""
    for number in range(CONNECTIONS):
        source = (f"127.0.{number % 3}.{1 + number % 200}", 0)  # many addresses, as far as that helps
        held.append(socket.create_connection((ADDRESS, port), timeout=1, source_address=source))


def drip(port: int, held: list[socket.socket]) -> None:
    """Send a byte to each again and again."""
    while True:
        if len(held) < CONNECTIONS:
            held.append(socket.create_connection((ADDRESS, port), timeout=1))
        for connection in held[:: 1 + len(held) // 20]:
            with contextlib.suppress(OSError):
                connection.send(b"x")


def beats(port: int, held: list[socket.socket]) -> None:
    """Send heartbeats without an end, as fast as possible."""
    while True:
        if len(held) < 20:
            held.append(socket.create_connection((ADDRESS, port), timeout=1))
        for connection in held:
            try:
                connection.sendall(b'{"kind": "beat"}\n' * 50)
            except OSError:
                held.remove(connection)


def anything(port: int, held: list[socket.socket]) -> None:
    """Send what is no greeting: other characters and types, no end of a line, half a greeting, proofs of all kinds."""
    fields = (b'"nonce": "n", "proof": "0"', b'"nonce": 1, "proof": 1', '"nonce": "n", "proof": "täst"'.encode())
    texts = (
        *(b"\xff\xfe\n", b"[]\n", b"{}\n", b"[" * 1000 + b"\n", b"x" * 100_000, b"GET / HTTP/1.1\r\n\r\n"),
        *(
            b'{"kind": "join"}\n',
            b'{"kind": "refused"}\n',
            b'{"kind": "join", "name": "n1"',
            b"\n",
            b"9" * 1000 + b"\n",
        ),
        *(b'{"kind": "join", "name": "n1", %s}\n' % each for each in fields),
        *(
            b'{"kind": "join", "name": %s, "nonce": 1, "proof": "\\ud800"}\n' % each
            for each in (b"[]", b"1e999", b"null")
        ),
    )
    for number in range(CONNECTIONS):
        connection = socket.create_connection((ADDRESS, port), timeout=1)
        held.append(connection)
        with contextlib.suppress(OSError):
            connection.sendall(texts[number % len(texts)])
            connection.shutdown(socket.SHUT_WR)


def churn(port: int, held: list[socket.socket]) -> None:
    """Connect and reset as fast as possible."""
    while True:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.connect((ADDRESS, port))
        held[:] = [*held[-50:], connection]


@contextlib.contextmanager
def attacked(attack: Attack, port: int) -> Iterator[None]:
    """Attack from a separate process until the end of the block."""
    if not (child := os.fork()):
        resource.setrlimit(resource.RLIMIT_NOFILE, (2048, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        held: list[socket.socket] = []
        while True:
            with contextlib.suppress(OSError):
                attack(port, held)
            time.sleep(0.01)
            del held[:-CONNECTIONS]
    try:
        time.sleep(1.0)  # at its height
        yield
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


@pytest.mark.parametrize("attack", [idle, drip, beats, anything, churn])
def test_nodes_join_in_seconds_whatever_others_do_with_the_port(attack: Attack) -> None:
    """With 128 descriptors, and hundreds of connections that never end their greeting."""
    head = subprocess.Popen(
        [sys.executable, "-c", HEAD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert head.stdout is not None
    port = int(head.stdout.readline())

    async def both() -> list[Link]:
        links: list[Link] = []
        for name in ("n1", "n2"):
            began, tries = time.monotonic(), 0
            while len(links) < int(name[1]):
                tries += 1
                with contextlib.suppress(*BROKEN):
                    links.append(await join(ADDRESS, port, TOKEN, name, JOB))
                assert time.monotonic() - began < JOINED_S, f"{name} did not join, {tries} attempts"
        return links

    with attacked(attack, port):
        links = asyncio.run(both())
        time.sleep(GREETING_S)  # the attack goes on
        with pytest.raises(BlockingIOError):
            links[1].connection.recv(1)
        output, _ = head.communicate("\n", timeout=20)
    [refused, seen] = output.splitlines()
    assert refused.startswith("refused a connection without this job's token, from 127.0.")
    assert (seen, head.returncode) == ("['n1', 'n2'] []", 0)


class Port:
    """A head's port: what it says and hears."""

    def __init__(self, *names: str) -> None:
        self.said: list[str] = []
        self.heard: list[tuple[str, str]] = []
        listener = socket.create_server((ADDRESS, 0))
        self.members = Members(listener, TOKEN, names, JOB, self.said.append, self._heard)
        self.port = self.members.port

    def _heard(self, name: str, message: Message) -> None:
        self.heard.append((name, message["kind"]))

    async def join(self, name: str, token: str = TOKEN, job: str = JOB) -> Link:
        return await join(ADDRESS, self.port, token, name, job)


def with_port(*names: str) -> Callable[[Callable[[Port], Awaitable[None]]], Callable[[], None]]:
    """Run a test in an event loop, with a port for these nodes; no task of it may end with an exception."""

    def decorated(test: Callable[[Port], Awaitable[None]]) -> Callable[[], None]:
        async def in_loop() -> None:
            problems: list[dict[str, Any]] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))
            port = Port(*names)
            await test(port)
            await port.members.close()
            assert problems == []

        def run() -> None:  # not a lambda, on which pytest puts no mark
            asyncio.run(in_loop())

        return run

    return decorated


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "BEAT_S", 0.02)
    monkeypatch.setattr(link_module, "GREETING_S", 1.0)


@pytest.mark.usefixtures("fast")
@with_port("n1")
async def test_slow_greeting_ends_in_total_time(port: Port) -> None:
    """A byte now and then does not hold a connection."""
    reader, writer = await asyncio.open_connection(ADDRESS, port.port)
    began = time.monotonic()
    with contextlib.suppress(ConnectionError):
        while not reader.at_eof() and time.monotonic() - began < 20:
            writer.write(b"x")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1000), 0.1)
    assert 0.9 * link_module.GREETING_S < time.monotonic() - began < 3 * link_module.GREETING_S


@with_port("n1", "n2")
async def test_names_that_are_not_awaited_are_refused_in_one_line(port: Port) -> None:
    """Also with the token: a second node of a name, which would hide the end of the first one, and an unknown name."""
    one = await port.join("n1")
    for _ in range(2):
        with pytest.raises(RefusedError) as refused:
            await port.join("n1")
        assert refused.value.kind == "second"
        with pytest.raises(ConnectionError, match="closed"):
            await port.join("n9\x1b[2J")
    where = f"from {ADDRESS} to port {port.port}; further ones are not shown"
    assert port.said == [
        f"refused a second connection of node n1, {where}",
        f"refused a node 'n9\\x1b[2J' that is not of this job, {where}",
    ]
    assert port.heard == [("n1", "joined"), *[("n1", "second")] * 2]
    with pytest.raises(BlockingIOError):
        one.connection.recv(1)


@with_port("n1", "n2")
async def test_sides_with_different_tokens_or_jobs_do_not_join(port: Port) -> None:
    for kind, token, job in (("token", "guessed", JOB), ("job", TOKEN, "job-8")):
        with pytest.raises(RefusedError) as refused:
            await port.join("n1", token, job)
        assert refused.value.kind == kind
    assert (port.members.unproven, list(port.members.links), port.heard) == (["n1"], [], [])


@pytest.mark.parametrize("kind", ["welcome", "second", "end"])
def test_impostor_gets_no_token_and_no_node(kind: str) -> None:
    """It knows the job, which is no secret, accepts every node, and returns the proof that it received."""
    received: list[bytes] = []

    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'{"kind": "hello", "job": "%s", "generation": "g", "nonce": "n"}\n' % JOB.encode())
        received.append(await reader.readline())
        shown = json.loads(received[0])["proof"]
        writer.write(b'{"kind": "%s", "proof": "%s"}\n' % (kind.encode(), shown.encode()))

    async def run() -> None:
        server = await asyncio.start_server(impostor, ADDRESS, 0)
        with pytest.raises(RefusedError) as refused:
            await join(ADDRESS, server.sockets[0].getsockname()[1], TOKEN, "n1", JOB)
        assert refused.value.kind == "token"

    asyncio.run(run())
    assert received
    assert not any(TOKEN.encode() in text for text in received)


@with_port("n1", "n2")
async def test_both_sides_notice_the_end_and_hear_each_other(port: Port) -> None:
    one, two = await port.join("n1"), await port.join("n2")
    one.send("failed", why="x" * 10_000)
    await until(lambda: ("n1", "failed") in port.heard)
    port.members.links["n2"].send("go")
    assert (await two.receive())["kind"] == "go"
    one.connection.close()
    await until(lambda: ("n1", "lost") in port.heard)
    await port.members.close()
    with pytest.raises(ConnectionError, match="closed"):
        await two.receive()


@pytest.mark.usefixtures("fast")
@with_port("n1", "n2")
async def test_silent_side_is_lost_and_one_that_was_suspended_with_all_others_is_not(port: Port) -> None:
    """Slurm suspends all nodes of a job: when they go on, much time has passed, and few heartbeats are missing."""
    silent, beating = await port.join("n1"), await port.join("n2")
    tasks = [asyncio.ensure_future(each) for each in (beating.beat(), beating.receive())]
    await asyncio.sleep(3 * link_module.BEAT_S)
    time.sleep(2 * link_module.SILENT * link_module.BEAT_S)  # both sides: they share the loop
    await asyncio.sleep(3 * link_module.BEAT_S)
    assert port.heard == [("n1", "joined"), ("n2", "joined")]
    await until(lambda: ("n1", "lost") in port.heard)
    await asyncio.sleep(2 * link_module.SILENT * link_module.BEAT_S)
    assert ("n2", "lost") not in port.heard
    assert not any(task.done() for task in tasks)
    silent.connection.close()
    for task in tasks:
        task.cancel()


@with_port("n1")
async def test_accept_survives_every_error(port: Port) -> None:
    """Too many open files, also of the whole system; a connection that is gone; errors of its network (accept(2))."""
    errors = ["EMFILE", "ENFILE", "ECONNABORTED", "EPROTO", "ENOBUFS", "ENOMEM", "EHOSTUNREACH", "EPERM"]
    accept = socket.socket.accept

    def failing(listener: socket.socket) -> tuple[socket.socket, object]:
        if errors:
            raise OSError(getattr(errno, errors.pop()), "x")
        return accept(listener)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "accept", failing)
        await port.join("n1")
    assert (list(port.members.links), errors) == (["n1"], [])


def test_proofs_of_both_sides_jobs_nodes_and_connections_differ() -> None:
    proofs = {
        proof(token, role, job, generation, name, a, b)
        for token in (TOKEN, "other") for role in ("node", "head") for job in ("j1", "j2")
        for generation in ("g1", "g2") for name in ("n1", "n2") for a, b in ("xy", "yx")
    }  # fmt: skip
    assert len(proofs) == 64
