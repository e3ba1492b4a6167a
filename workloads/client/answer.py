"""Content of an answer of Ray: the whole of it, or only its end, in bounded memory."""

from __future__ import annotations

import codecs
import http.client
import io
from collections.abc import Callable

from workloads.exits import WorkloadError

LARGEST = 2**29  # bytes of an answer; Ray answers with the whole log of a job
END_LINES, END_BYTES, END_READ, END_S = 50_000, 2**24, 2**26, 10.0
"""Last lines of a log that `end_of_log` requests, the bytes that it keeps of them, and the bytes and seconds that it
reads for that. A line has no limit, and Ray sends a log's end by lines only."""


def whole(answer: http.client.HTTPResponse) -> bytes:
    """Return the content of an answer. WorkloadError above LARGEST."""
    content = answer.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise WorkloadError(f"Ray's answer is larger than {LARGEST // 2**20} MiB")
    if answer.length:
        raise http.client.IncompleteRead(content, answer.length)
    return content


class Ending:
    """Takes the end of an answer, within the limits of `Api.end_of_log`; `whole` is whether it is the end."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock, self.whole = clock, True

    def __call__(self, answer: http.client.HTTPResponse) -> bytes:
        kept, size, until = bytearray(), 0, self.clock() + END_S
        self.whole = True
        while chunk := answer.read(2**20):
            kept += chunk
            size += len(chunk)
            del kept[: max(len(kept) - END_BYTES, 0)]
            if size > END_READ or self.clock() > until:
                self.whole = False
                break
        else:
            if answer.length:
                raise http.client.IncompleteRead(bytes(kept), answer.length)
        return bytes(kept) if size <= END_BYTES else bytes(kept.partition(b"\n")[2] or kept)


def text_of(log: bytes) -> str:
    """Return the text of a log without an incomplete character at its end. Line ends are `\\n`."""
    utf8 = codecs.getincrementaldecoder("utf-8")("replace")
    return io.IncrementalNewlineDecoder(utf8, translate=True).decode(log)
