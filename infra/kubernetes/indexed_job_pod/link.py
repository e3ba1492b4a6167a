"""The connection between a worker and its head."""

from __future__ import annotations

import asyncio
import json
from typing import Any

BEAT_S = 5.0
SILENCE_S = 60.0
"""A node that is lost closes no connection; it only stops sending."""
ANSWER_S = 15.0

Message = dict[str, Any]


class Link:
    """A connection between a worker and its head: one JSON object per line, with heartbeats."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, kind: str, **fields: object) -> None:
        """Send a message; `receive` detects a broken connection."""
        self._writer.write(json.dumps({"kind": kind, **fields}).encode() + b"\n")

    async def receive(self, timeout_s: float = SILENCE_S) -> Message:
        """Return the next message that is no heartbeat. Raises `ConnectionError`, `TimeoutError` or `ValueError`."""
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
        """Send heartbeats forever."""
        while True:
            await asyncio.sleep(BEAT_S)
            self.send("beat")

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()
