"""NCCL's raw logs: redacted, cut and compressed on the ranks, sent in the job's log, written by the client.

A rank sends at most KEPT bytes of its log (the beginning and the end) in at most PACKED bytes, all
ranks together ALL_PACKED.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from workloads.evidence.facts import counted
from workloads.exits import WorkloadError
from workloads.results.files import write_file
from workloads.secrecy import Masker, redacted
from workloads.untrusted import file_name

KIND = "nccl-log"  # event that carries a log
KEPT = 2**20  # bytes of text; 2^20 of NCCL's compress to about 60,000
PACKED = 128 * 2**10
ALL_PACKED = 8 * 2**20
LONGEST_DATA = -(-PACKED // 3) * 4  # characters of base64
UNPACKED = 256 * 2**20  # bytes of all ranks' text: 8 MiB of NCCL's unpack to about 140 MiB
RANKS = 2**16
BEGINNING = 0.75  # share kept from the beginning, where NCCL logs its setup


@dataclass(frozen=True, kw_only=True)
class PackedLog:
    """A rank's log, compressed: `size` bytes originally, of which `left_out` were cut from the middle."""

    data: bytes
    size: int
    left_out: int

    def to_event(self, rank: int, host: str) -> dict[str, Any]:
        """Return the fields of the event that carries the log."""
        data = base64.b64encode(self.data).decode()
        return {"rank": rank, "host": host, "size": self.size, "left_out": self.left_out, "data": data}


def pack_file(file: Path, known: Masker) -> PackedLog:
    """Pack a log file without secrets, cut to the size that a rank may send. Raises OSError if it cannot be read."""
    size = file.stat().st_size
    with file.open("rb") as opened:
        text, left_out = read_ends(opened, size)
    return pack(redacted(text, known), size, left_out)


def read_ends(file: BinaryIO, size: int, keep: int = KEPT) -> tuple[str, int]:
    """Return whole lines from both ends of a file, a note on what is between them, and how many bytes that is."""
    if size <= keep:
        return file.read(keep).decode("utf-8", "replace"), 0
    head = file.read(int(keep * BEGINNING))
    file.seek(size - (keep - len(head)))
    tail = file.read(keep - len(head))
    head, tail = head[: head.rfind(b"\n") + 1], tail[tail.find(b"\n") + 1 :]
    left_out = size - len(head) - len(tail)
    note = f"[rdma-ray: {left_out} bytes were left out here]\n"
    return head.decode("utf-8", "replace") + note + tail.decode("utf-8", "replace"), left_out


def pack(text: str, size: int, left_out: int) -> PackedLog:
    """Compress redacted text. Text that does not fit into PACKED bytes is cut further."""
    while len(data := zlib.compress(raw := text.encode("utf-8", "replace"), 9)) > PACKED:
        text, cut = read_ends(BytesIO(raw), len(raw), len(raw) // 2)
        left_out += cut
    return PackedLog(data=data, size=size, left_out=left_out)


def ranges(numbers: Iterable[int]) -> str:
    """Return different numbers in ascending order, consecutive ones as a range: `0-7, 12`."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    return ", ".join(f"{span[0]}-{span[-1]}" if span[1:] else str(span[0]) for span in spans)


def named(ranks: Sequence[int]) -> str:
    """Return `rank 3`, or `ranks 0-7, 12`."""
    return f"rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)}"


def rank_of(event: Mapping[str, Any]) -> int | None:
    """Return the rank whose log an event carries; None if it is not a rank: anything may write to a job's log."""
    rank = event.get("rank")
    return rank if type(rank) is int and 0 <= rank < RANKS else None


def unpacked(event: Mapping[str, Any]) -> str:
    """Return the log that an event carries, of which a rank sends KEPT bytes. ValueError if it is broken."""
    data = event.get("data")
    if not isinstance(data, str) or len(data) > LONGEST_DATA:
        raise ValueError(f"its data is not a string of at most {LONGEST_DATA} characters")
    try:
        # Bytes that are no UTF-8 are sent as three.
        text = zlib.decompressobj().decompress(base64.b64decode(data, validate=True), 3 * KEPT + 2**10)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    return text.decode("utf-8", "replace")


@dataclass
class LogFolder:
    """Folder of `--logs DIR` with one file per rank, `rank-003.HOST.log`, of at most UNPACKED bytes in all.

    The constructor creates the folder, so a bad path fails before the run. WorkloadError if it cannot be written.
    """

    folder: Path
    written: set[int] = field(default_factory=set)
    cut: list[int] = field(default_factory=list)
    refused: int = 0
    left: int = UNPACKED

    def __post_init__(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WorkloadError(f"--logs {self.folder}: cannot make this folder: {error.strerror}") from error

    def take(self, event: Mapping[str, Any]) -> None:
        """Write the log that an event carries, the first one of its rank; ignore other events."""
        if event.get("kind") != KIND:
            return
        rank = rank_of(event)
        if rank is None or rank in self.written:
            self.refused += 1
            return
        try:
            text = unpacked(event).encode()
        except ValueError as error:
            raise WorkloadError(f"the log of rank {rank} is corrupt ({error}): run again with --logs") from error
        if len(text) > self.left:
            self.refused += 1
            return
        self.left -= len(text)
        self.written.add(rank)
        write_file(self.folder / f"rank-{rank:03d}.{file_name(event.get('host'))}.log", text)
        if event.get("left_out"):
            self.cut.append(rank)

    def summary(self) -> str:
        """Return one line: how many logs, where, and what was cut."""
        refused = (
            f"; {self.refused} were refused: without a rank, a second log of a rank, or too large"
            if self.refused
            else ""
        )
        if not self.written:
            return f"no NCCL log arrived for {self.folder}{refused}"
        cut = f"; the middle of {len(self.cut)} was left out ({named(self.cut)})" if self.cut else ""
        return f"NCCL's logs of {counted(len(self.written), 'rank')}: {self.folder}{cut}{refused}"
