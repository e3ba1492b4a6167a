"""The connection between a worker and its head."""

from __future__ import annotations

import asyncio
import json
from typing import Any

BEAT_S = 5.0
SILENCE_S = 60.0
"""A node that vanishes closes no connection; it only falls silent."""
ANSWER_S = 15.0

Message = dict[str, Any]


class Link:
    """A connection between a worker and its head: one JSON object per line, and a sign of life every few seconds."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, kind: str, **fields: object) -> None:
        """Send a message; a broken connection is noticed by `receive`."""
        self._writer.write(json.dumps({"kind": kind, **fields}).encode() + b"\n")

    async def receive(self, timeout_s: float = SILENCE_S) -> Message:
        """The next message that is not a sign of life. Raises `ConnectionError`, `TimeoutError` or `ValueError`."""
        while True:
            line = await asyncio.wait_for(self._reader.readline(), timeout_s)
            if not line.endswith(b"\n"):
                raise ConnectionError("the connection was closed")
            message = json.loads(line)
            if not isinstance(message, dict) or "kind" not in message:
                raise ValueError("not a message")
            if message["kind"] != "beat":
                return message

    async def beat(self) -> None:
        """Show that this side lives, for ever."""
        while True:
            await asyncio.sleep(BEAT_S)
            self.send("beat")

    def close(self) -> None:
        """Close this side."""
        self._writer.close()
