"""Broken and hostile input: mutations of valid files, and what every command has to do with them."""

from __future__ import annotations

import contextlib
import io
import os
import resource
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from hypothesis import strategies as st

from infra.terminal import UNPRINTABLE
from workloads.cli import main
from workloads.exits import Exit

SECONDS = 10  # for a command that takes one: a busy machine needs several
ESCAPES = "\x1b[31mred\x1b]0;title\x07\x9b2J\u202eabc"
PIECES = (
    *(b"\x00", b"\xff\xfe", "é".encode("latin-1"), b"\xed\xa0\x80", "\ufeff".encode(), ESCAPES.encode(), b"\r", b"\t"),
    *(b'"\\ud800"', b'"\\U00110000"', b'"\\e[31m\\x9b"', b'"\\u001b[31m"', "١٢٣".encode(), b"[/x]", b"[bold red]:bug:"),
    *(b"[" * 5000, b"{a: " * 5000, b'{"a":' * 5000, b"- " * 5000, b"# size count type " * 3000, b"a" * 100_000),
    *(b"9" * 5000, b"0x" + b"f" * 5000, b"-1", b"1e999", b"NaN", b"-Infinity", b".nan", b"2024-13-45", b"1:" * 5000),
    *(
        b"&a [*a, *a]",
        b"<<: {}",
        b"!!bool 7",
        b"!!timestamp x",
        b"!!python/name:os.system",
        b"!!binary =",
        b"? [a]\n: b",
    ),
    *(b": ", b"\n", b'"', b"'", b"}", b"---\n", b"%YAML 9.9\n", b"null", b"{}", b"[]", b"true", b"0", b"@rdma-ray {"),
)
"""What a mutation inserts."""


@st.composite
def mutated(draw: st.DrawFn, originals: Sequence[bytes]) -> bytes:
    """A valid file with up to three changes: bytes replaced, removed, repeated or inserted; another encoding."""
    data = draw(st.sampled_from(originals))
    for _ in range(draw(st.integers(1, 3))):
        start, end = sorted(draw(st.tuples(*2 * [st.integers(0, len(data))])))
        change = draw(st.integers(0, 6))
        if change == 0:
            data = data[:start] + draw(st.binary(min_size=1, max_size=4)) + data[start + 1 :]
        elif change == 1:
            data = data[:start] + data[min(end, start + 40) :]
        elif change == 2:
            data = data[:end] + data[start:end] * draw(st.sampled_from([1, 30])) + data[end:]
        elif change == 3 and draw(st.booleans()):
            data = data.decode(errors="replace").encode(
                draw(st.sampled_from(["utf-16", "utf-32", "utf-8-sig"])), "replace"
            )
        else:
            data = data[:start] + draw(st.sampled_from(PIECES)) + data[start if draw(st.booleans()) else end :]
    return data[: 2**22]


def special_files(folder: Path) -> dict[str, Path]:
    """Paths that are no file of text: each of them is written into `folder`."""
    paths = {
        name: folder / f"Pulumi.{name}.yaml" for name in ("pipe", "directory", "loop", "endless", "sparse", "none")
    }
    os.mkfifo(paths["pipe"])
    paths["directory"].mkdir()
    paths["loop"].symlink_to(paths["loop"])
    paths["endless"].symlink_to("/dev/zero")
    with paths["sparse"].open("wb") as file:
        file.truncate(2**31)
    return paths


@contextlib.contextmanager
def bounded_time() -> Iterator[None]:
    """Fail what takes longer than `SECONDS`, also if it waits."""

    def late(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"no end within {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def bounded_memory(mebibytes: int) -> Iterator[None]:
    """Fail if the peak of this process grows by more than this."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024 < mebibytes


def run(*arguments: str | Path) -> tuple[int, str, str]:
    """Run a command in time, and return its exit code, stdout and stderr. A traceback is an exception here.

    Streams are UTF-8 and strict, and nothing in them controls the terminal. An error has a message.
    """
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
    with bounded_time(), contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        code = main([str(argument) for argument in arguments])
    said, complained = (stream.buffer.getvalue().decode() for stream in streams)
    assert not UNPRINTABLE.search(said + complained)
    assert "Traceback" not in said + complained
    assert said or complained or code == Exit.OK
    return code, said, complained
