"""The port on which nodes meet, under attack: nodes join in seconds, and the job's log gets one line."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clone import wait_until
from workloads.slurm import facts, members, node
from workloads.slurm.members import ImpostorError, Link, Members, proof

GREETING_S = 2.0
ADDRESS, TOKEN = "127.0.0.1", "0123456789abcdef" * 4
HEAD = f"""
import resource, sys
from workloads.slurm import members
from workloads.slurm.members import Members
members.GREETING_S = {GREETING_S}
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
with Members("{ADDRESS}", "{TOKEN}", ["n1", "n2"], lambda text: print(text, flush=True)) as members:
    print(members.port, flush=True)
    sys.stdin.readline()
    print(sorted(members.seen), members.lost(), flush=True)
"""
CONNECTIONS = 600
JOINED_S = 5.0

Attack = Callable[[int, list[socket.socket]], None]


def idle(port: int, held: list[socket.socket]) -> None:
    """Open as many as possible, and send nothing."""
    for number in range(CONNECTIONS):
        # Each from an address of its own, as far as that helps.
        source = (f"127.0.{number % 3}.{1 + number % 200}", 0)
        held.append(socket.create_connection((ADDRESS, port), timeout=1, source_address=source))


def drip(port: int, held: list[socket.socket]) -> None:
    """Send a byte to each again and again."""
    while True:
        if len(held) < CONNECTIONS:
            held.append(socket.create_connection((ADDRESS, port), timeout=1))
        for connection in held[:: 1 + len(held) // 20]:
            with contextlib.suppress(OSError):
                connection.send(b"x")


def anything(port: int, held: list[socket.socket]) -> None:
    """Send what is no greeting: other characters, other alphabets in the proof, no end of a line, half a greeting."""
    for number in range(CONNECTIONS):
        connection = socket.create_connection((ADDRESS, port), timeout=1)
        held.append(connection)
        text = (
            b"\xff\xfe\x00\n",
            "n1 x täst\n".encode(),
            b"x" * 4096,
            b"GET / HTTP/1.1\r\n\r\n",
            b"\n",
            b"n1 a b c d\n",
        )
        with contextlib.suppress(OSError):
            connection.sendall(text[number % len(text)])
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
    """Attack from a process of its own until the end of the block."""
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


@pytest.mark.parametrize("attack", [idle, drip, anything, churn])
def test_nodes_join_in_seconds_whatever_others_do_with_the_port(attack: Attack) -> None:
    """With 128 descriptors, and hundreds of connections that never end their greeting."""
    head = subprocess.Popen(
        [sys.executable, "-c", HEAD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert head.stdout is not None
    port = int(head.stdout.readline())
    with attacked(attack, port), contextlib.ExitStack() as links:
        for name in ("n1", "n2"):
            began, tries = time.monotonic(), 0
            while True:
                tries += 1
                with contextlib.suppress(OSError):
                    link = links.enter_context(Link(ADDRESS, port, name, TOKEN))
                    break
                assert time.monotonic() - began < JOINED_S, f"{name} did not join, {tries} attempts"
            assert time.monotonic() - began < JOINED_S
        time.sleep(GREETING_S)  # the attack goes on
        assert not link.closed(0.0)
        output, _ = head.communicate("\n", timeout=20)
    [refused, seen] = output.splitlines()
    assert refused.startswith("refused a connection without this job's token, from 127.0.")
    assert (seen, head.returncode) == ("['n1', 'n2'] None", 0)


def test_slow_greeting_ends_in_total_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not hold a connection."""
    monkeypatch.setattr(members, "GREETING_S", 1.0)
    with Members(ADDRESS, TOKEN, ["n1"], print) as head, socket.create_connection((ADDRESS, head.port)) as slow:
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - began < 10:
                slow.send(b"x")
                time.sleep(0.1)
        assert 0.9 < time.monotonic() - began < 5


def test_names_that_are_not_awaited_are_refused_in_one_line() -> None:
    """Also with the token: a second node of a name, which would hide the end of the first one, and an unknown name."""
    said: list[str] = []
    with Members(ADDRESS, TOKEN, ["n1", "n2"], said.append) as head, Link(ADDRESS, head.port, "n1", TOKEN) as one:
        for name in ("n1", "n9\x1b[2J", "n1"):
            with pytest.raises(ConnectionError, match="closed"):
                Link(ADDRESS, head.port, name, TOKEN)
        assert (list(head.seen), one.closed(0.0), head.lost()) == (["n1"], False, None)
    where = f"from {ADDRESS} to port {head.port}; further ones are not shown"
    assert said == [
        f"refused a second connection of node n1, {where}",
        f"refused a node 'n9\\x1b[2J' that is not of this job, {where}",
    ]


@contextlib.contextmanager
def impostor(answer: Callable[[socket.socket], None]) -> Iterator[tuple[int, list[bytes]]]:
    """Listen where the first node did; yield the port, and what comes."""
    received: list[bytes] = []
    with socket.create_server((ADDRESS, 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.settimeout(5)
                        connection.sendall(hashlib.md5(b"x").hexdigest().encode() + b"\n")
                        received.append(connection.recv(1024))
                        answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield int(server.getsockname()[1]), received
        server.shutdown(socket.SHUT_RDWR)


def test_impostor_gets_no_token_and_no_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`head.json` outlives the first node when its host loses power; another user may get the port then."""
    for name, text in {"token": TOKEN, "nodes": f"n0 {ADDRESS}\nn1 {ADDRESS}\n"}.items():
        (tmp_path / name).write_text(text)
    tmp_path.chmod(0o700)
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    monkeypatch.setattr(facts, "resolve", lambda _: ADDRESS)

    def reflect(connection: socket.socket) -> None:
        connection.sendall(received[-1].split()[-1] + b"\n")

    started: list[object] = []
    monkeypatch.setattr(node.SlurmNode, "_start_ray", lambda *_: started.append(_))
    for answer in (reflect, lambda connection: connection.sendall("täst\n".encode())):
        with impostor(answer) as (port, received):
            with pytest.raises(ImpostorError):
                Link(ADDRESS, port, "n1", TOKEN)
            cluster = {"gcs": f"{ADDRESS}:1", "members": port, "address": ADDRESS}
            (tmp_path / "head.json").write_text(json.dumps(cluster))
            with pytest.raises(node.Stop) as stop:
                node.SlurmNode(tmp_path, tmp_path, 5.0, "", {})._worker()
        assert str(stop.value).startswith(f"n1: refused {ADDRESS}:{port} as the first node: ")
        assert received
        assert not any(TOKEN.encode() in text for text in received)
    assert not started, "Ray would send its token"


def test_node_tries_again_until_its_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that the attack on the first node ended is no end of the job."""
    for name, text in {"token": TOKEN, "nodes": f"n1 {ADDRESS}\n"}.items():
        (tmp_path / name).write_text(text)
    tmp_path.chmod(0o700)
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    monkeypatch.setattr(facts, "resolve", lambda _: ADDRESS)
    monkeypatch.setattr(node, "START_POLL_S", 0.05)
    monkeypatch.setattr(members, "GREETING_S", 0.5)
    worker = node.SlurmNode(tmp_path, tmp_path, 20.0, "", {})
    with Members(ADDRESS, TOKEN, ["n1"], print) as head:
        port = head.port
        with worker._link(ADDRESS, port):
            wait_until(lambda: head.seen.keys() == {"n1"}, timeout_s=10)
    late = threading.Timer(0.5, lambda: held.append(socket.create_server((ADDRESS, port))))
    held: list[socket.socket] = []
    late.start()
    worker.deadline = time.monotonic() + 2
    with pytest.raises(node.Stop, match=rf"does not answer at {ADDRESS}:{port} \(.*\) within 20 s"):
        worker._link(ADDRESS, port)
    late.join()
    held[0].close()


def test_accept_survives_every_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many open files, also of the whole system; a connection that is gone; errors of its network (accept(2))."""
    errors = ["EMFILE", "ENFILE", "ECONNABORTED", "EPROTO", "ENOBUFS", "ENOMEM", "EHOSTUNREACH", "EPERM"]
    with Members(ADDRESS, TOKEN, ["n1"], print) as head:
        accept = socket.socket.accept

        def failing(listener: socket.socket) -> tuple[socket.socket, object]:
            if errors:
                raise OSError(getattr(errno, errors.pop()), "x")
            return accept(listener)

        monkeypatch.setattr(socket.socket, "accept", failing)
        with Link(ADDRESS, head.port, "n1", TOKEN):
            assert (list(head.seen), errors) == (["n1"], [])


def test_proofs_of_both_sides_and_all_nodes_differ() -> None:
    proofs = {
        proof(TOKEN, role, name, a, b) for role in ("node", "head") for name in ("n1", "n2") for a, b in ("xy", "yx")
    }
    assert len(proofs) == 8
