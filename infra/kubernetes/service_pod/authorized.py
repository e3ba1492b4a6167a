"""Middleware of Ray Serve's HTTP proxies, in every pod of a RayService: a request needs the service's token.

This is not Ray's token, with which a client could run code on the cluster. A proxy calls `middlewares` as it starts
(RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH; Ray 2.60: serve/_private/http_util.py, configure_http_middlewares). If that
fails, no proxy starts and the port stays closed.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Any, Send], Awaitable[None]]

TOKEN = Path("/etc/rdma-ray-serve/auth_token")
"""File of the token. The kubelet writes the new one about a minute after the Secret changes (Kubernetes docs, concepts/
configuration/secret, read 2026-11), so that a change restarts no replica. A variable would need another cluster."""
HEALTH = "/-/healthz"
"""The only path without a token: KubeRay and the kubelet ask it. It says whether the proxy takes requests."""
CONNECTION_S = 30
"""Seconds after which a connection closes with its next response. An upgrade moves new connections only, so a client
that keeps one open would stay on the old cluster until that is deleted, and lose the request of that moment."""
FORGOTTEN_S = 600
"""Seconds after which a connection is closed for certain: uvicorn closes an idle one after 90 s (Ray 2.60)."""


class Authorized:
    """ASGI application that passes requests with the token in a file on to `app`, without the token."""

    def __init__(self, app: App, file: Path) -> None:
        self._app, self._file = app, file
        self._began: dict[tuple[Any, ...], float] = {}
        self._next_sweep = 0.0

    async def __call__(self, scope: Message, receive: Any, send: Send) -> None:
        if scope["type"] == "lifespan" or (scope["type"] == "http" and scope["path"] == HEALTH):
            await self._app(scope, receive, send)
            return
        headers = list(scope["headers"])
        given = [value for name, value in headers if name == b"authorization"]
        if len(given) == 1 and (token := read(self._file)) and hmac.compare_digest(given[0], b"Bearer " + token):
            others = [header for header in headers if header[0] != b"authorization"]
            await self._app({**scope, "headers": others}, receive, self._closing(scope, send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            text = b"Unauthorized: send the service's token as `Authorization: Bearer TOKEN`\n"
            answer = [(b"content-type", b"text/plain"), (b"www-authenticate", b"Bearer"), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": 401, "headers": answer})
            await send({"type": "http.response.body", "body": text})

    def _closing(self, scope: Message, send: Send) -> Send:
        """Return `send`, or one that closes a connection that is older than CONNECTION_S."""
        now, client = time.monotonic(), tuple(scope.get("client") or ())
        if now > self._next_sweep:
            self._began = {each: began for each, began in self._began.items() if now - began < FORGOTTEN_S}
            self._next_sweep = now + CONNECTION_S
        if now - self._began.setdefault(client, now) < CONNECTION_S:
            return send
        del self._began[client]

        async def last(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        return last


def read(file: Path) -> bytes:
    """Return the token in a file; empty if there is none."""
    try:
        return file.read_bytes().strip()
    except OSError:
        return b""


def middlewares() -> list[Any]:
    """Return the middleware in Starlette's form. RuntimeError without a token."""
    from starlette.middleware import Middleware

    if not read(TOKEN):
        raise RuntimeError(f"there is no token in {TOKEN}: the proxy does not start, since it would refuse everyone")
    return [Middleware(Authorized, file=TOKEN)]
