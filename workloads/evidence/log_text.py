"""Text of a log, regardless of its carrier: encodings, JSON lines, CSV, CRI, colors; and the heads of messages. Pure.

Carriers: docker's json-file and Fluent Bit (`log`), CloudWatch (`message`, `@message`), Cloud Logging (`textPayload`),
journald (`MESSAGE`); the CRI's `TIME stdout F line`, where P marks a part of a line
(k8s.io/cri-client v0.36.1: pkg/logs/logs.go, read 2026-11-26). PowerShell redirects as UTF-16.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

LONGEST = 2**16  # characters of a line
FIELDS = ("log", "message", "@message", "textPayload", "MESSAGE", "msg", "line", "body", "_raw")
_NAMES = "|".join(FIELDS)

ANSI = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]")
# One member of a JSON document that is written on several lines.
_MEMBER = re.compile(rf'^\s*"(?:{_NAMES})"\s*:\s*("(?:[^"\\]|\\.)*")\s*[,}}\]]*\s*$')
_CRI = re.compile(r"^(?:.{0,200}? )?\d{4}-\d\d-\d\dT\S{8,30} (?:stdout|stderr) (?P<tag>[PF])(?::\S*)? (?P<text>.*)")
# Ray's de-duplication, and that of rsyslog and journald: lines are missing here.
REPEATED = re.compile(r"\s*\[?\b(?:repeated \d{1,9} ?(?:x\b|times\b)[^\]\n]{0,40}\]?(?:\s*\(Ray deduplicates.*)?)")

# What NCCL_DEBUG_TIMESTAMP_FORMAT may write directly before the host: a date, a time, a zone, or seconds since 1970.
_STAMP = (
    r"(?:\d{4}-\d\d-\d\d[T_ ]?)?\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?|\d{4}-\d\d-\d\d"
    r"|1\d{9}(?:\.\d{1,9})?(?=[A-Za-z])"
)
HEAD = re.compile(
    rf"(?:(?<!\d)(?:{_STAMP})|(?<![\w.-]))(?P<host>-?\w[\w.-]{{0,254}}):(?P<pid>\d{{1,9}}):(?P<tid>\d{{1,9}})"
    r"(?: \[-?\d{1,6}\])? (?:[^\s:]{1,120}:\d{1,6} (?:\(\w{1,120}\) )?)?NCCL (?P<level>INFO|WARN)(?: |$)",
    re.ASCII,
)
# The common case, of which nothing is glued to the host: for speed only.
PLAIN = re.compile(
    r"(?P<host>[A-Za-z][\w.-]{0,254}):(?P<pid>\d{1,9}):(?P<tid>\d{1,9}) \[-?\d{1,6}\] NCCL (?P<level>INFO) ", re.ASCII
)
MARK = re.compile(r"NCCL (?P<level>INFO|WARN)(?: |$)")
# A line that ends within its head, or begins within it.
TORN_HEAD = re.compile(
    r":\d{1,9}:\d{1,9} (?:\[-?\d{0,6}|\[-?\d{1,6}\](?: (?:N|NC|NCC|NCCL|NCCL [IW]\w{0,3})?)?)?$", re.ASCII
)
# Beginnings of the messages that decide: a text that ends within one of them was torn there.
STARTS = (
    "Channel ", "CollNet ", "NET/", "Using network ", "Assigned NET plugin ", "Initialized NET plugin ", "comm 0x",
    "ncclCommInitRank",
)  # fmt: skip
NET_STARTS = ("Selected provider is ", ": GPU Direct RDMA ", ": Using ")
_TORN_CHANNEL = re.compile(
    r"\d{1,4}(?:/\d{1,4})? : (\d{1,9}\[\w{1,16}\] -> \d{1,9}\[\w{1,16}\])(?: (\[\w+\]))?", re.ASCII
)


def decoded(data: bytes) -> str:
    """Decode UTF-8, UTF-16 and UTF-32. Accepts any bytes."""
    if data.startswith((b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")):
        text = data.decode("utf-32", "replace")
    elif data.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = data.decode("utf-16", "replace")
    else:
        text = data.decode("utf-8-sig", "replace")  # and UTF-16 without a mark: ASCII with zeros between
    return text.replace("\0", "")


def lines(given: Iterable[str]) -> Iterator[str]:
    """Yield the lines that a program wrote, each with its line end if it has one, without their carrier."""
    part = ""
    for line in _entries(given):
        if (" F" in line or " P" in line) and (cri := _CRI.match(line)):
            line = part + cri["text"] + "\n"
            part = line.rstrip("\n") if cri["tag"] == "P" else ""
            if part:
                continue
        yield line
    if part:
        yield part


def _entries(given: Iterable[str]) -> Iterator[str]:
    """Yield the lines, or the messages of entries in JSON and CSV, which may be records of the CRI."""
    column = None
    pieces = Pieces()
    for line in given:
        line = line[:LONGEST]
        if "\x1b" in line:
            line = ANSI.sub("", line)
        if "\r" in line:
            line = line.rstrip("\r\n").replace("\r", " ") + ("\n" if line.endswith("\n") else "")
        if '"' in line:
            if (texts := _json(line)) is None:
                line, column = _csv(line, column)
                texts = _json(line) if line.startswith("{") else None
            if texts is not None:
                for text in texts:
                    yield from pieces.take(text)
                continue
        elif column is None and "," in line and any(name in line.split(",")[:8] for name in FIELDS):
            line, column = _csv(line, column)
        yield line
    yield from pieces.rest()


class Pieces:
    """Texts of JSON entries as lines.

    Docker ends each line's text, so one without an end is a part of a line (moby: daemon/logger/jsonfilelog). Fluent
    Bit ends none, which is known only when all were read.
    """

    def __init__(self) -> None:
        self._held: list[str] = []

    def take(self, text: str) -> Iterator[str]:
        self._held.append(text)
        if text.endswith("\n"):
            text, self._held = "".join(self._held), []
            yield from _ended(text)

    def rest(self) -> Iterator[str]:
        for text in self._held:
            yield from _ended(text)


def _ended(text: str) -> Iterator[str]:
    for line in text.splitlines() or [""]:
        yield (ANSI.sub("", line) if "\x1b" in line else line) + "\n"


def _json(line: str) -> list[str] | None:
    """Return the texts in a line of JSON; None if it carries none."""
    if member := _MEMBER.match(line):
        start = member[1]
    else:
        at = line.find("{")
        if at < 0 or not line.rstrip().endswith(("}", "},", "}]")):
            return None
        start = line[at:].rstrip().rstrip(",]")
    try:
        document = json.loads(start)
    except (ValueError, RecursionError):
        return None
    return [document] if isinstance(document, str) else list(_texts(document)) or None


def _texts(found: Any, depth: int = 4) -> Iterator[str]:
    if isinstance(found, list):
        for item in found:
            yield from _texts(item, depth)
    elif isinstance(found, dict) and depth:
        for name, value in found.items():
            if isinstance(value, str) and name in FIELDS:
                yield value
            else:
                yield from _texts(value, depth - 1)


def _csv(line: str, column: int | None) -> tuple[str, int | None]:
    """Return the message of a line of CSV, and its column if a header named it."""
    text = line.strip()
    if column is None and not (text.endswith('"') and (text.startswith('"') or ',"' in text)) and '"' in text:
        return line, None
    try:
        fields = next(csv.reader([text]), [])
    except csv.Error:
        return line, column
    if column is None and (names := [name for name in FIELDS if name in fields]):
        return "\n", fields.index(names[0])
    if column is not None and column < len(fields):
        return fields[column] + "\n", column
    message = next((field for field in fields if "NCCL " in field), max(fields, key=len, default=""))
    return message + "\n", column


def torn_connection(text: str) -> tuple[str, str, str | None] | None:
    """Return sender, receiver and end of a connection whose line is torn behind them; None for any other text."""
    if (match := _TORN_CHANNEL.match(text.removeprefix("Channel "))) is None:
        return None
    sender, _, receiver = match[1].partition(" -> ")
    return sender.partition("[")[0], receiver.partition("[")[0], match[2].strip("[]") if match[2] else None
