"""The guard of every test: a socket beyond loopback fails the test that used it, by name."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.network_guard import GUARD, BeyondLoopbackError, is_loopback

# Reserved for documentation (RFC 5737, RFC 3849): nothing answers there.
OTHER, OTHER_V6 = "192.0.2.1", "2001:db8::1"


@pytest.fixture
def refused() -> Iterator[list[str]]:
    """What the guard refused, forgotten in the end: these tests use such sockets on purpose."""
    yield GUARD.refused
    GUARD.refused.clear()


def connect(host: str, family: socket.AddressFamily = socket.AF_INET) -> None:
    with socket.socket(family) as one:
        one.settimeout(0.1)
        one.connect((host, 9))


def connect_in_a_loop() -> None:
    asyncio.run(asyncio.wait_for(asyncio.open_connection(OTHER, 9), 1))


def send() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as one:
        one.sendto(b"x", (OTHER, 9))


@pytest.mark.parametrize(
    "use",
    [lambda: connect(OTHER), lambda: connect(OTHER_V6, socket.AF_INET6), connect_in_a_loop, send],
    ids=["connect", "connect to IPv6", "asyncio", "send"],
)
def test_socket_beyond_loopback_names_the_test(
    refused: list[str], request: pytest.FixtureRequest, use: Callable[[], None]
) -> None:
    with pytest.raises(BeyondLoopbackError) as error:
        use()
    assert request.node.nodeid in str(error.value)
    assert refused == [str(error.value)]


def test_loopback_and_unix_sockets_are_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connected = socket.create_connection(("localhost", server.getsockname()[1]))
        connected.close()
    # A Unix socket's path is short, and a test's folder may not be.
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind("socket")
        server.listen()
        client.connect("socket")
    assert [is_loopback(host) for host in ("127.9.0.1", "::1", "localhost", "0.0.0.0", "example.com")] == [True] * 3 + [
        False
    ] * 2
