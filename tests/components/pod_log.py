"""A container's log: containerd writes its file, and `kubectl logs` prints it.

containerd reads stdout and stderr apart, by lines, and writes `TIME STREAM TAG TEXT` when a line ends: the tag is F, or
P for a part of a line that is too long or that never ends (containerd: internal/cri/io/logger.go; 16 KiB: its
configuration max_container_log_line_size). kubectl prints a line end after F only (kubernetes:
pkg/kubelet/kuberuntime/logs/logs.go). Read 2026-11-26.
"""

from __future__ import annotations

import os
import re
import selectors
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

LONGEST = 16 * 1024
_RECORD = re.compile(r"^\S+ (?:stdout|stderr) (?P<tag>[FP]) (?P<text>.*)$", re.MULTILINE)


def write(file: Path, stdout: IO[bytes], stderr: IO[bytes] | None = None) -> None:
    """Write what comes from the streams into the file, until both end."""
    with selectors.DefaultSelector() as streams, file.open("ab", buffering=0) as log:
        streams.register(stdout, selectors.EVENT_READ, (b"stdout", bytearray()))
        if stderr is not None:
            streams.register(stderr, selectors.EVENT_READ, (b"stderr", bytearray()))
        while streams.get_map():
            for key, _ in streams.select():
                name, held = key.data
                found = os.read(key.fd, 4096)
                held += found
                for tag, text in _records(held, ended=not found):
                    now = datetime.now(UTC).isoformat().replace("+00:00", "000Z").encode()
                    log.write(b" ".join((now, name, tag, text)) + b"\n")
                if not found:
                    streams.unregister(key.fileobj)


def _records(held: bytearray, *, ended: bool) -> Iterator[tuple[bytes, bytes]]:
    """Yield tag and text of each record that the held bytes complete, and take these out of them."""
    while held:
        end = held.find(b"\n")
        if (end if end >= 0 else len(held)) > LONGEST:
            tag, size, skipped = b"P", LONGEST, 0
        elif end >= 0:
            tag, size, skipped = b"F", end, 1
        elif ended:
            tag, size, skipped = b"P", len(held), 0
        else:
            return
        text = bytes(held[:size])
        del held[: size + skipped]
        yield tag, text.removesuffix(b"\r") if skipped else text


def printed(records: str) -> str:
    """Return what `kubectl logs` prints of the file's text."""
    return "".join(record["text"] + ("\n" if record["tag"] == "F" else "") for record in _RECORD.finditer(records))
