"""The proxy of real Ray Serve with the middleware: the service's token and Ray's are two, and each opens one door.

Run as a module with two ports, it is Ray with a service, as the service's pods start it, until standard input ends.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infra.kubernetes.service_pod import authorized
from tests.unit.test_listener import free_port
from tests.workloads.conftest import ROOT

pytestmark = pytest.mark.ray
MODULE = "tests.workloads.serving.test_authorized"
OF_SERVICE, OF_RAY, NEW = "token-of-the-service", "token-of-ray-0123456789abcdef012345", "another-token"


def middlewares() -> list[Any]:
    """Return the middleware of a proxy, with the token in a file of the test."""
    authorized.TOKEN = Path(os.environ["SERVE_TOKEN_FILE"])
    return authorized.middlewares()


def main(dashboard: int, port: int) -> None:
    """Serve an application that answers with the headers of its request."""
    import ray
    from ray import serve
    from starlette.requests import Request

    class Echo:
        async def __call__(self, request: Request) -> dict[str, dict[str, str]]:
            return {"of-a-replica": dict(request.headers)}

    ray.init(num_cpus=2, dashboard_host="127.0.0.1", dashboard_port=dashboard, _temp_dir=os.environ["SERVED_FOLDER"])
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(serve.deployment(name="echo")(Echo).bind())
    print("SERVED", flush=True)
    sys.stdin.read()


@dataclass
class Served:
    serve: int
    dashboard: int
    token: Path

    def status(self, port: int, token: str | None, path: str = "/") -> int:
        """Return the status of a request with a token."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("GET", path, headers=headers)
            return connection.getresponse().status
        finally:
            connection.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service on a Ray of its own, whose processes have both tokens, as in a pod. Its sockets need a short path."""
    folder = tmp_path_factory.mktemp("served")
    made = Served(free_port(), free_port(), folder / "auth_token")
    made.token.write_text(OF_SERVICE)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": OF_RAY,
        "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": f"{MODULE}:middlewares",
        "SERVE_TOKEN_FILE": str(made.token),
        "SERVED_FOLDER": str(short := Path(tempfile.mkdtemp(prefix="served-", dir="/tmp"))),
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", MODULE, str(made.dashboard), str(made.serve)]
    log = folder / "log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        assert any(line.startswith("SERVED") for line in process.stdout), log.read_text()[-3000:]
        yield made
        process.communicate(timeout=60)
    shutil.rmtree(short)


def test_each_token_opens_its_own_door(served: Served) -> None:
    assert served.status(served.serve, OF_SERVICE) == 200
    for token in (None, "", OF_RAY, f"{OF_SERVICE}x"):
        for path in ("/", "/-/routes", "/x"):
            assert served.status(served.serve, token, path) == 401
    assert served.status(served.serve, None, "/-/healthz") == 200
    assert served.status(served.dashboard, OF_RAY, "/api/jobs/") == 200
    for path in ("/api/jobs/", "/api/version", "/api/serve/applications/", "/api/packages/gcs/a.zip"):
        assert served.status(served.dashboard, OF_SERVICE, path) == 403


@pytest.mark.parametrize(
    "request_",
    [
        "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {ray}\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nauthorization: bearer {ray}\r\nauthorization: Bearer {ray}\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {ray}\r\n\r\n",
        "GET //-/healthz HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /-/healthz/../ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /-/healthz?x HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {ray}\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.0\r\nx-ray-authorization: Bearer {ray}\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nCookie: ray-authentication-token={ray}\r\n\r\n",
        (
            "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer {ray}\r\n\r\n"
        ),
    ],
)
def test_raw_requests_with_rays_token_reach_no_replica(served: Served, request_: str) -> None:
    with socket.create_connection(("127.0.0.1", served.serve), timeout=10) as connection:
        connection.sendall(request_.format(ray=OF_RAY).encode())
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while data := connection.recv(65536):
            answer += data
    assert answer.startswith(b"HTTP/1.1 ")
    assert b"of-a-replica" not in answer


def test_replica_gets_the_request_without_a_token_and_a_new_token_holds_at_once(served: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.serve, timeout=30)
    connection.request("GET", "/", headers={"Authorization": f"Bearer {OF_SERVICE}", "X-Own": "kept"})
    headers = json.loads(connection.getresponse().read())["of-a-replica"]
    connection.close()
    assert headers["x-own"] == "kept"
    assert "authorization" not in headers
    served.token.write_text(NEW)
    assert (served.status(served.serve, OF_SERVICE), served.status(served.serve, NEW)) == (401, 200)
    served.token.write_text(OF_SERVICE)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
