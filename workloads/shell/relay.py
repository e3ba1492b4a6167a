"""Relay of a port of 127.0.0.1 to another address, or to a program that is started for each connection."""

from __future__ import annotations

import asyncio
import socket
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Sequence
from contextlib import suppress

from infra import listener
from infra.terminal import printable

PIECE = 2**16  # bytes of one read
CONNECT_S = 10.0


class Relay:
    """Relays the connections of a listening socket until it is canceled.

    Args:
        words: Program whose standard streams are the other end of a connection; empty for `host` and `port`.
    """

    def __init__(self, host: str, port: int, words: Sequence[str] = ()) -> None:
        self.host, self.port, self.words = host, port, words
        self.problem = ""

    async def run(self, server: socket.socket) -> None:
        """Relay until the task is canceled."""
        async with await asyncio.start_server(self._connected, sock=server) as relay:
            await relay.serve_forever()

    async def _connected(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            await (self._program if self.words else self._address)(reader, writer)
        except OSError as error:
            if (problem := str(error)) != self.problem:
                self.problem = problem
                print(printable(f"no connection to {self.host}:{self.port}: {problem}"), file=sys.stderr)
        finally:
            writer.close()

    async def _address(self, reader: StreamReader, writer: StreamWriter) -> None:
        # Another user may have taken the port since.
        connection = await asyncio.to_thread(listener.connect, self.host, self.port, CONNECT_S)
        connection.setblocking(False)
        far_reader, far_writer = await asyncio.open_connection(sock=connection)
        try:
            await asyncio.gather(_pass(reader, far_writer), _pass(far_reader, writer))
        finally:
            far_writer.close()

    async def _program(self, reader: StreamReader, writer: StreamWriter) -> None:
        pipes = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*self.words, stdin=pipes, stdout=pipes)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            sent = asyncio.ensure_future(_pass(reader, process.stdin))
            await _pass(process.stdout, writer)
            sent.cancel()
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


async def _pass(source: StreamReader, target: StreamWriter) -> None:
    """Pass bytes on to the end of the source, and its end as well."""
    with suppress(ConnectionError):
        while data := await source.read(PIECE):
            target.write(data)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()
