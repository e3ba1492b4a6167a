"""Who is at the other end of a connection to this machine: real sockets of this user and of another one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from infra import listener
from infra.listener import ListenerError, check, connect, get
from infra.local.loopback import alive_nodes, http_status, listens
from tests.clone import wait_until
from tests.other_user import NOBODY, OtherUser, needs_root

OTHERS = rf"another user listens there, (nobody \(uid {NOBODY}\)|uid {NOBODY})$"


def free_port() -> int:
    """Return a port that is free on all addresses, by IPv4 and IPv6."""
    with socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def port() -> int:
    return free_port()


def listening(host: str, port: int, *, only_ipv6: bool = True) -> socket.socket:
    """Return a listener of this process."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(only_ipv6))
    made.bind((host, port))
    made.listen()
    return made


@pytest.mark.parametrize(
    ("at", "to"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.5", "127.0.0.5"),
        ("0.0.0.0", "127.0.0.1"),
        ("::", "127.0.0.1"),
        ("::", "::1"),
        ("::1", "::1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
    ],
)
@pytest.mark.parametrize("accepts", [True, False])
@needs_root
def test_own_listener_passes_and_another_users_does_not(port: int, at: str, to: str, accepts: bool) -> None:
    with closing(listening(at, port, only_ipv6=False)) as own, closing(connect(to, port, 5)) as connection:
        if accepts:
            with closing(own.accept()[0]):
                check(connection)
    with OtherUser((at, port, 0), accepts=accepts) as other:
        with pytest.raises(ListenerError, match=OTHERS):
            connect(to, port, 5)
        assert other.ends().nothing


@needs_root
def test_other_users_wildcard_is_not_this_users_address(port: int) -> None:
    """The system lets no two users listen where one connection could go to both; by IPv6 alone it is another one."""
    wanted = (("0.0.0.0", port), ("::", port, 0), ("127.0.0.9", port), ("::", port, 1))
    with closing(listening("127.0.0.1", port)), OtherUser(*wanted, ready=False) as other:
        wait_until(lambda: len(bound(port)) == 3, timeout_s=10)
        assert bound(port) == {("127.0.0.1", os.geteuid()), ("127.0.0.9", NOBODY), ("::", NOBODY)}
        connect("127.0.0.1", port, 5).close()
        for host in ("127.0.0.9", "::1"):
            with pytest.raises(ListenerError, match=OTHERS):
                connect(host, port, 5)
        assert other.ends().nothing
    with OtherUser(("0.0.0.0", port)), pytest.raises(OSError, match="in use"):
        listening("127.0.0.1", port)


def bound(port: int) -> set[tuple[str, int]]:
    return {(str(each.local[0]), each.uid) for each in listener._sockets(port) if each.state == listener.LISTEN}


@needs_root
def test_a_listener_that_closes_after_it_accepted_does_not_pass(port: int) -> None:
    """Although this user listens there by then."""
    with ExitStack() as stack:
        other = stack.enter_context(OtherUser(("127.0.0.1", port), closes=True))
        connection = stack.enter_context(closing(socket.create_connection(("127.0.0.1", port))))
        other.says("closed")
        stack.enter_context(closing(listening("127.0.0.1", port)))
        with pytest.raises(ListenerError, match=OTHERS):
            check(connection)


def test_a_listener_that_has_gone_is_no_answer(port: int) -> None:
    with closing(listening("127.0.0.1", port)) as own:
        connection = socket.create_connection(("127.0.0.1", port))
        own.accept()[0].close()
    with closing(connection), pytest.raises(ConnectionAbortedError, match=f"the listener at 127.0.0.1:{port} is gone"):
        check(connection)


@needs_root
def test_root_is_trusted_and_another_user_is_not_by_a_plain_user(port: int) -> None:
    code = (
        # The codec, because this user may be unable to read Python's library.
        "import os, sys\nsys.path.insert(0, sys.argv[2])\nfrom infra.listener import connect\n'a'.encode('idna')\n"
        "os.setuid(4242)\ntry:\n    connect('127.0.0.1', int(sys.argv[1]), 5); print('passed')\n"
        "except OSError as error: print(error)"
    )

    def said() -> str:
        command = [sys.executable, "-c", code, str(port), str(Path(listener.__file__).parents[1])]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    with closing(listening("127.0.0.1", port)):
        assert said() == "passed\n"
    with OtherUser(("127.0.0.1", port)):
        assert f"uid {NOBODY}" in said()


@pytest.mark.parametrize("content", [None, "sl\ngarbage\n"])
def test_a_system_that_shows_no_owners_gets_nothing(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    table = tmp_path / "tcp"
    if content is not None:
        table.write_text(content)
    monkeypatch.setattr(listener, "TABLES", (table,))
    with (
        closing(listening("127.0.0.1", port)),
        pytest.raises(ListenerError, match="this system does not show whose process listens there"),
    ):
        connect("127.0.0.1", port, 5)


def test_a_child_that_listens_is_known_on_such_a_system(
    server: HTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "TABLES", (tmp_path / "nothing",))
    url = f"http://127.0.0.1:{server.server_port}"
    assert get(url, None, 5, known=True) == (307, b"content")
    with pytest.raises(ListenerError):
        get(url, None, 5)


def test_another_machine_is_not_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Remote:
        def getpeername(self) -> tuple[str, int]:
            return ("192.0.2.7", 8265)

        def getsockname(self) -> tuple[str, int]:
            return ("192.0.2.1", 40000)

    monkeypatch.setattr(listener, "TABLES", (tmp_path / "nothing",))
    check(Remote())  # type: ignore[arg-type]


@needs_root
def test_own_address_of_this_machine_is_checked(port: int) -> None:
    """As a Slurm head has one. In a network namespace, with an address that is not a loopback address."""
    code = f"""
import ctypes, subprocess, sys
sys.path.insert(0, {str(Path(listener.__file__).parents[1])!r})
assert ctypes.CDLL(None).unshare(0x40000000) == 0  # CLONE_NEWNET
subprocess.run("ip link set lo up && ip address add 10.9.8.7/32 dev lo", shell=True, check=True)
from infra.listener import connect
from tests.other_user import OtherUser
with OtherUser(("10.9.8.7", {port})) as other:
    try:
        connect("10.9.8.7", {port}, 5)
    except OSError as error:
        print(error)
    assert other.ends().nothing
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"nothing was sent to 10.9.8.7:{port}: another user listens there" in done.stdout, done.stderr


class Keeping(BaseHTTPRequestHandler):
    """Keeps the paths and the tokens of its requests. It redirects to itself."""

    kept: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        self.kept.append((self.path, self.headers["Authorization"]))
        self.send_response(307)
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(b"content")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    Keeping.kept = []
    with HTTPServer(("127.0.0.1", 0), Keeping) as made:
        threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
        yield made
        made.shutdown()


def test_a_request_passes_no_proxy_and_no_redirect(server: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert get(f"http://127.0.0.1:{server.server_port}/a?b=1", "t", 5) == (307, b"content")
    assert Keeping.kept == [("/a?b=1", "Bearer t")]


@needs_root
def test_the_local_stacks_requests_name_the_other_user(port: int) -> None:
    url = f"http://127.0.0.1:{port}"
    assert (http_status(url, token="t"), alive_nodes(url, "t"), listens("127.0.0.1", port)) == (None, {}, False)
    with OtherUser(("127.0.0.1", port)) as other:
        for request in (
            lambda: http_status(url, token="t"),
            lambda: alive_nodes(url, "t"),
            lambda: listens("127.0.0.1", port),
        ):
            with pytest.raises(ListenerError, match=OTHERS):
                request()
        assert other.ends().nothing
