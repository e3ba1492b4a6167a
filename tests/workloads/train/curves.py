"""Reads curves that a run wrote for TensorBoard."""

from __future__ import annotations

import struct
from collections import defaultdict
from pathlib import Path
from typing import Any


def scalars(folder: Path) -> dict[str, list[tuple[int, Any]]]:
    """Return the curves in TensorBoard's files: records of length, its CRC, an Event, its CRC."""
    from tensorboardX.proto.event_pb2 import Event  # type: ignore[import-untyped]  # tensorboardX ships no types

    found: dict[str, list[tuple[int, Any]]] = defaultdict(list)
    for file in sorted(folder.iterdir()):
        data = file.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            event = Event.FromString(data[12 : 12 + length])
            for value in event.summary.value:
                found[value.tag].append((event.step, value.simple_value))
            data = data[16 + length :]
    return found
