"""Broken and hostile stack files end in one clear error, in time and in little memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings

from tests.hostile import bounded_memory, bounded_time, mutated, run, special_files
from tools.recovery import Place
from workloads.cli import app

ROOT = Path(__file__).resolve().parents[3]
STACKS = [file.read_bytes() for file in sorted(ROOT.glob("Pulumi.*.yaml"))]
BOMB = b"config:\n  a0: &a0 [x]\n" + b"".join(
    b"  a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 30)
)
LOCAL = "config:\n  rdma-ray:target: local\n"
# Kind of fault -> file, and what the error says. With the three special files below, the known faults.
KNOWN = {
    "binary": (bytes(range(256)), "not UTF-8: byte 0x80 on line 2"),
    "NUL": (b"config:\n  a: \0\n", "character 0x0 on line 2"),
    "Latin-1": ("config:\n  # Zürich\n".encode("latin-1"), "not UTF-8: byte 0xfc on line 2"),
    "UTF-16": (LOCAL.encode("utf-16"), "not UTF-8"),
    "deep lists": (b"config: " + b"[" * 5000, "more than 16 levels"),
    "deep maps": (b"config: " + b"{a: " * 5000, "more than 16 levels"),
    "refers to itself": (b"config: &a {rdma-ray:nodes: *a}", "alias (*) of another value at line 1, column 29"),
    "alias bomb": (BOMB + b"  rdma-ray:location: *a29\n", "alias"),
    "date": (
        f"{LOCAL}  rdma-ray:nodes: {{blockEnds: 2024-13-45}}".encode(),
        "as timestamp, but it is not valid at line 3, column 31",
    ),
    "5,000 digits": (
        f"{LOCAL}  rdma-ray:nodes: {{min: {'9' * 5000}}}".encode(),
        "as int, but it is not valid at line 3",
    ),
    "5,000 hexadecimal digits": (
        f"{LOCAL}  rdma-ray:nodes: {{min: 0x{'f' * 5000}}}".encode(),
        "as int, but it is not valid at line 3",
    ),
    "no boolean": (f"{LOCAL}  rdma-ray:protect: !!bool 7".encode(), "as bool, but it is not valid at line 3"),
    "no character": (b'config: "\\U00110000"', "an escape sequence does not stand for a character"),
    "lone surrogate": (f'{LOCAL}  rdma-ray:location: "\\ud800"'.encode(), "the character '\\ud800' at line 3"),
    "escape sequence": (f'{LOCAL}  rdma-ray:location: "\\e[31m"'.encode(), "the character '\\x1b' at line 3"),
    "key given twice": (
        f"{LOCAL}  rdma-ray:target: gke".encode(),
        "rdma-ray:target appears twice in the same map at line 3",
    ),
    "30 MB": (b"config: " + b"x" * 30_000_000, "larger than 128 KiB"),
    "many values": (b"config: [" + b"1, " * 40_000 + b"]", "more than 2000 values"),
}


@pytest.fixture(scope="module", autouse=True)
def _memory() -> Iterator[None]:
    app["plan"]  # Loads what the command imports.
    with bounded_memory(256):
        yield


def rejected(file: Path) -> str:
    """The error about a file: one problem, whose first line names the file."""
    code, said, message = run("plan", file)
    assert (code, said) == (1, "")
    assert message.startswith(f"{file.name} has 1 problem; nothing was created.")
    assert "\n   Fix: " in message
    return " ".join(message.split())


@pytest.mark.parametrize("fault", KNOWN)
def test_known_faults_are_named(fault: str, tmp_path: Path) -> None:
    data, says = KNOWN[fault]
    file = tmp_path / "Pulumi.dev.yaml"
    file.write_bytes(data)
    assert says in rejected(file)


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    says = {
        "pipe": "not a regular file",
        "directory": "Is a directory",
        "loop": "Too many levels of symbolic links",
        "endless": "not a regular file",
        "sparse": "larger than 128 KiB",
        "none": "No such file or directory",
    }
    for name, file in special_files(tmp_path).items():
        assert says[name] in rejected(file)
        with bounded_time(), pytest.raises(ValueError, match=re.escape(says[name])):
            Place.of(name, file)


@settings(max_examples=300)
@given(mutated(STACKS))
@example(f"{LOCAL}  rdma-ray:nodes: {'{' + ', '.join(f'count{n}: 1' for n in range(900)) + '}'}".encode())
@example(f"{LOCAL}  rdma-ray:location: {'a-' * 60_000}".encode())
def test_any_file_is_accepted_or_rejected_clearly(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "Pulumi.dev.yaml"
    file.write_bytes(data)
    code, said, message = run("plan", file)
    if code:
        assert (code, said) == (1, "")
        assert message.startswith("Pulumi.dev.yaml has ")
        assert "\n   Fix: " in message
    else:
        assert not message or message.startswith("warning: ")
