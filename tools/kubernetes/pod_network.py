"""Proxy for the API server's connections to Pods and Services without a pod network.

In a cluster, the API server reaches a webhook at the cluster IP of its Service. Here the webhook listens on a
loopback port, and the API server connects through this proxy, with HTTP CONNECT over a Unix socket (k8s.io/apiserver
v0.36.1, pkg/server/egressselector, read 2026-11-21). TLS is end to end, as in a cluster.
https://kubernetes.io/docs/tasks/extend-kubernetes/setup-konnectivity/

Run as `python -I pod_network.py SOCKET ROUTES [--direct]`. ROUTES is a JSON file, "IP:PORT" -> "HOST:PORT", read for
each connection. An address without a route is rejected, or dialed with --direct, if there is a pod network.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path

_HEAD_BYTES = 16_384
_DIAL_S = 5.0


async def serve(socket: str, routes: Path, *, direct: bool) -> None:
    """Serve until the process ends."""

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _tunnel(reader, writer, routes, direct)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError) as problem:
            print(f"a connection ended: {problem!r}", flush=True)
        finally:
            writer.close()

    server = await asyncio.start_unix_server(connect, socket, limit=_HEAD_BYTES)
    async with server:
        await server.serve_forever()


async def _tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, routes: Path, direct: bool) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    method, address, *_ = head.split(" ", 2)
    target = json.loads(routes.read_text()).get(address) or (address if direct else None)
    if method != "CONNECT" or target is None:
        print(f"{method} {address}: refused, there is no route", flush=True)
        writer.write(b"HTTP/1.1 502 There is no pod network, and no route to this address\r\n\r\n")
        return await writer.drain()
    host, _, port = target.rpartition(":")
    try:
        far_reader, far_writer = await asyncio.wait_for(asyncio.open_connection(host.strip("[]"), int(port)), _DIAL_S)
    except (OSError, TimeoutError) as problem:
        print(f"{address} at {target}: {problem!r}", flush=True)
        writer.write(b"HTTP/1.1 502 Nothing answers there\r\n\r\n")
        return await writer.drain()
    try:
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        await writer.drain()
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
    finally:
        far_writer.close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65_536):
            sink.write(data)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(sys.argv[1], Path(sys.argv[2]), direct="--direct" in sys.argv[3:]))
