"""NCCL's own text on its way home: cut and compressed on the rank, sent in the job's log, written by the client.

The job's log is the one road from a cluster to its user that needs nothing else. A rank sends at most KEPT bytes of its
log (the beginning and the end) in at most PACKED bytes, all ranks together at most ALL_PACKED.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from workloads.exits import WorkloadError

KIND = "nccl-log"  # of the event that carries a log
KEPT = 2**20  # bytes of text; 2^20 of NCCL's compress to about 60,000
PACKED = 128 * 2**10
ALL_PACKED = 8 * 2**20
BEGINNING = 0.75  # the share that is kept from the beginning, where NCCL tells what it set up


@dataclass(frozen=True)
class Packed:
    """A rank's log, compressed; `size` bytes it had, `left_out` of them were cut from its middle."""

    data: bytes
    size: int
    left_out: int


def read_ends(file: BinaryIO, size: int, keep: int = KEPT) -> tuple[str, int]:
    """The beginning and the end of an open file of `size` bytes, whole lines, and how many bytes are left out."""
    if size <= keep:
        return file.read(keep).decode("utf-8", "replace"), 0
    head = file.read(int(keep * BEGINNING))
    file.seek(size - (keep - len(head)))
    return _joined(head, file.read(keep - len(head)), size)


def pack(text: str, size: int, left_out: int) -> Packed:
    """Compress text that has no secrets any more. What does not fit into PACKED bytes is cut further."""
    while True:
        data = zlib.compress(text.encode("utf-8", "replace"), 9)
        if len(data) <= PACKED:
            return Packed(data, size, left_out)
        raw = text.encode("utf-8", "replace")
        keep = len(raw) // 2
        head = raw[: int(keep * BEGINNING)]
        text, cut = _joined(head, raw[len(raw) - (keep - len(head)) :], len(raw))
        left_out += cut


def _joined(head: bytes, tail: bytes, size: int) -> tuple[str, int]:
    """Two ends, without the lines that were cut through, and a line that says what lay between."""
    head, tail = head[: head.rfind(b"\n") + 1], tail[tail.find(b"\n") + 1 :]
    left_out = size - len(head) - len(tail)
    note = f"[rdma-ray: {left_out} bytes were left out here]\n"
    return head.decode("utf-8", "replace") + note + tail.decode("utf-8", "replace"), left_out


def to_event(rank: int, host: str, packed: Packed) -> dict[str, Any]:
    """The fields of the event."""
    return {
        "rank": rank,
        "host": host,
        "size": packed.size,
        "left_out": packed.left_out,
        "data": base64.b64encode(packed.data).decode(),
    }


def named(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0-7, 12`."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    text = ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in spans)
    return f"rank{'s' if len(ranks) > 1 else ''} {text}"


class LogFolder:
    """Where `--logs DIR` puts the logs: `rank-003.HOST.log`. The folder is made at once: a bad one is told early.

    Raises WorkloadError where the folder cannot be made or written to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written: list[Path] = []
        self.cut: list[int] = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WorkloadError(f"--logs {folder}: cannot make this folder: {error.strerror}") from error

    def take(self, event: Mapping[str, Any]) -> None:
        """Write the log that an event carries; other events are none of its business."""
        if event.get("kind") != KIND:
            return
        rank = int(event["rank"])
        host = re.sub(r"[^\w.-]", "-", str(event["host"]))[:100]
        path = self.folder / f"rank-{rank:03d}.{host}.log"
        try:
            unpacker = zlib.decompressobj()
            # Not more than a rank may send: the log of a job is no place that one trusts blindly.
            text = unpacker.decompress(base64.b64decode(event["data"], validate=True), 4 * KEPT)
            path.write_bytes(text)
        except (binascii.Error, zlib.error) as error:
            raise WorkloadError(f"the log of rank {rank} arrived broken ({error}): run again with --logs") from error
        except OSError as error:
            raise WorkloadError(f"--logs: cannot write {path}: {error.strerror}") from error
        self.written.append(path)
        if event["left_out"]:
            self.cut.append(rank)

    def summary(self) -> str:
        """One line for people: how many, where, and what was cut."""
        if not self.written:
            return f"no NCCL log arrived for {self.folder}"
        cut = f"; the middle of {len(self.cut)} was left out ({named(self.cut)})" if self.cut else ""
        return f"NCCL's logs of {len(self.written)} {'rank' if len(self.written) == 1 else 'ranks'}: {self.folder}{cut}"
