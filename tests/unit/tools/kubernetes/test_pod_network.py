"""tools/kubernetes/pod_network.py: only addresses with a route are connected."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clone import wait_until
from tools.kubernetes import pod_network
from tools.process import Programs

WITHIN_S = 20.0


class Network:
    """The proxy as a program in `folder`, and an echo server on loopback."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self._folder = folder
        self._programs = Programs(folder, work=folder)
        self.echo = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()
        self.route({})
        command = [sys.executable, "-I", pod_network.__file__, "pods.sock", "routes.json", *flags]
        self._programs.start("pod-network", command, os.environ)

    def route(self, routes: dict[str, str]) -> None:
        (self._folder / "routes.json").write_text(json.dumps(routes))

    def connect(self, address: str) -> tuple[str, socket.socket]:
        """Request a connection as the API server does. Returns the status line and the connection."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(WITHIN_S)
        wait_until(lambda: not connection.connect_ex(str(self._folder / "pods.sock")), "the proxy listens", WITHIN_S)
        connection.sendall(f"CONNECT {address} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        said = b""
        while b"\r\n\r\n" not in said:
            said += connection.recv(4096)
        return said.decode().partition("\r\n")[0], connection

    def close(self) -> None:
        self._programs.stop()
        self.echo.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.echo.accept()
            except OSError:
                return
            with connection:
                while data := connection.recv(4096):
                    connection.sendall(data)


@pytest.fixture(params=[()])
def network(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    # A Unix socket's path is short, and a test's folder may not be.
    monkeypatch.chdir(tmp_path)
    network = Network(Path(), *request.param)
    yield network
    network.close()


def test_route_connects_both_ways(network: Network) -> None:
    network.route({"10.0.0.9:443": f"127.0.0.1:{network.echo.getsockname()[1]}"})
    status, connection = network.connect("10.0.0.9:443")
    with connection:
        assert status == "HTTP/1.1 200 Connected"
        connection.sendall(b"hello")
        assert connection.recv(5) == b"hello"
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(5) == b""


def test_address_without_a_route_is_refused(network: Network) -> None:
    """Also if something listens at the address."""
    status, connection = network.connect(f"127.0.0.1:{network.echo.getsockname()[1]}")
    connection.close()
    assert status.startswith("HTTP/1.1 502 There is no pod network")


def test_route_to_nothing_is_reported(network: Network) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    network.route({"10.0.0.9:443": f"127.0.0.1:{port}"})
    status, connection = network.connect("10.0.0.9:443")
    connection.close()
    assert status.startswith("HTTP/1.1 502 Nothing answers there")


@pytest.mark.parametrize("network", [("--direct",)], indirect=True)
def test_direct_mode_dials_without_a_route(network: Network) -> None:
    status, connection = network.connect(f"127.0.0.1:{network.echo.getsockname()[1]}")
    connection.close()
    assert status == "HTTP/1.1 200 Connected"
