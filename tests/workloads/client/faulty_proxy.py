"""HTTP proxy in front of a Ray head that fails as networks and busy servers do."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

Fault = int | str | None
"""Status to answer with; "cut": half of the answer; "lose": no answer, after the head has acted; None: no fault."""


class Proxy(AbstractContextManager["Proxy"]):
    """Proxy on 127.0.0.1. `fault` decides for each request, by its method and path."""

    def __init__(self, target: str, fault: Callable[[str, str], Fault] = lambda _method, _path: None) -> None:
        self.target, self.fault = urlsplit(target), fault
        self.port = 0
        self._connections: set[socket.socket] = set()
        self.up()

    def __exit__(self, *_: object) -> None:
        self.down()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def up(self) -> None:
        """Listen; after `down`, on the same port."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def setup(self) -> None:
                proxy._connections.add(self.request)
                super().setup()

            def finish(self) -> None:
                proxy._connections.discard(self.request)
                with suppress(OSError):
                    super().finish()

            def handle(self) -> None:
                with suppress(OSError, http.client.HTTPException):
                    super().handle()

            def do_GET(self) -> None:
                proxy._pass(self)

            def do_POST(self) -> None:
                proxy._pass(self)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def down(self) -> None:
        """Refuse connections, and reset those that are open."""
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _pass(self, request: BaseHTTPRequestHandler) -> None:
        fault = self.fault(request.command, request.path)
        body = request.rfile.read(int(request.headers["Content-Length"] or 0))
        if isinstance(fault, int):
            request.send_error(fault)
            return
        head = http.client.HTTPConnection(self.target.hostname or "", self.target.port, timeout=60)
        head.request(request.command, request.path, body, dict(request.headers))
        answer = head.getresponse()
        content = answer.read()
        head.close()
        request.close_connection = True
        if fault == "lose":
            return
        request.send_response(answer.status)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content[: len(content) // 2] if fault == "cut" else content)
