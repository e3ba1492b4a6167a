"""Ignore files: git's decisions, in linear time, from files that belong to the folder."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from random import Random

import pytest

from tests.hostile import bounded_memory, bounded_time
from workloads.exits import WorkloadError
from workloads.run.folder import OUTSIDE
from workloads.run.ignore import LARGEST_RULES, Rules
from workloads.run.working_dir import read
from workloads.unlinked import SPECIAL

NAMES = ("a", "b", "ab", "ba", "aa", "a.b", "b-", "^a", "!a", "a b", "b\n")
PIECES = (
    *("a", "b", "a", "b", "*", "**", "**/", "/", "/", "?", "!", ".", "-", " ", "ab", "\\", "\\a", "\\*", "[a", "]"),
    *("[ab]", "[!a]", "[^b]", "[a-b]", "[b-a]", "[]-a]", "[!]a]", "[ -~]", "[a-\\b]", "[\\a-b]", "[[:alpha:]]"),
    *("[^[:punct:]]", "[[:no:]]", "\r"),
)


def uploaded(folder: Path) -> list[str]:
    return sorted(entry.name for entry in read(folder).files if not entry.name.endswith("/"))


def decided_by_git(folder: Path) -> list[str]:
    command = ("git", "-C", str(folder), "ls-files", "--others", "-z", "--exclude-per-directory=.gitignore")
    return sorted(subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")[:-1])


@pytest.mark.parametrize("seed", range(4))
def test_any_patterns_decide_as_in_git(seed: int, tmp_path: Path) -> None:
    """Random patterns in two folders, on random files. Git is the judge."""
    random = Random(seed)
    subprocess.run(("git", "init", "--quiet", tmp_path), check=True)
    for _ in range(40):
        path = tmp_path.joinpath(*(random.choice(NAMES) for _ in range(random.randint(1, 4))))
        if not any(parent.is_file() for parent in (path, *path.parents)):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.is_dir():
                path.touch()
    ignored = 0
    for _ in range(75):
        for folder in (tmp_path, *(path for path in (tmp_path / "a", tmp_path / "b") if path.is_dir())):
            lines = ["".join(random.choices(PIECES, k=random.randint(1, 5))) for _ in range(random.randint(0, 4))]
            lines = [random.choice(("!", "", "")) + line for line in lines]
            # With a prefix without special characters, git 2.39 reads `a**/` as `a` and `**/`, against its manual.
            lines = [line for line in lines if "a**/" not in line and "b**/" not in line and " **/" not in line]
            (folder / ".gitignore").write_bytes("\n".join(lines).encode() + random.choice((b"", b"\n", b"\r\n")))
        expected = decided_by_git(tmp_path)
        rules = {path: path.read_bytes() for path in tmp_path.rglob(".gitignore")}
        assert uploaded(tmp_path) == expected, rules
        ignored += len(expected) < len(list(tmp_path.rglob("*")))
    assert ignored > 20


def test_only_what_is_listed_can_be_uploaded(tmp_path: Path) -> None:
    """The idiom of a list of what to keep: everything is excluded but folders and some files."""
    for name in ("a.py", "b.txt", "src/c.py", "src/d.txt", "src/deep/e.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("*\n!*/\n!*.py\n")
    assert uploaded(tmp_path) == ["a.py", "src/c.py", "src/deep/e.py"]
    (tmp_path / ".gitignore").write_text("*\n!src/\n")
    assert uploaded(tmp_path) == []


@pytest.mark.parametrize(
    "line", [b"*a" * 13 + b"b", b"a*" * 1000, b"**/" * 1000 + b"b", b"a/**/" * 13 + b"b", b"[!b]*" * 1000, b"?*" * 9999]
)
def test_a_pattern_takes_linear_time(line: bytes, tmp_path: Path) -> None:
    """Python's `re`, and pathspec by default, take hours for the first one."""
    (tmp_path / ".gitignore").write_bytes(line + b"\n")
    for number in range(50):
        (tmp_path / f"{'a' * 250}{number}").touch()
    with bounded_time():
        read(tmp_path)


def test_patterns_that_take_too_long_together_are_refused(tmp_path: Path) -> None:
    """Each is linear, but all of them visit new states at every letter of every name."""
    (tmp_path / ".gitignore").write_text("\n".join(["*a" + "?" * 200] * 300))
    random = Random(1)
    for _ in range(2000):
        (tmp_path / "".join(random.choices("ab", k=250))).touch()
    began = time.thread_time()
    with pytest.raises(WorkloadError, match=r"\.gitignore and \.rayignore take too long") as caught:
        read(tmp_path)
    assert time.thread_time() - began < 5
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"*.tmp\n" * LARGEST_RULES, b"\0" * (LARGEST_RULES + 1)])
def test_an_ignore_file_that_is_too_large_is_refused(content: bytes, tmp_path: Path) -> None:
    """Without its last patterns, files would be uploaded that they exclude."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / ".rayignore").write_bytes(content)
    with bounded_time(), pytest.raises(WorkloadError, match=r"sub/\.rayignore: more than 64 KiB of patterns"):
        read(tmp_path)


@pytest.mark.parametrize("line", [b"[!a]\n", b"*a*\n!b\n", b"a", b"[[:alpha:]]", b"\\", b"[", b"**/a/", b" ", b"!\n"])
def test_any_patterns_of_the_largest_size_are_read_in_time(line: bytes) -> None:
    with bounded_time(), bounded_memory(200):
        Rules("x", line * (LARGEST_RULES // len(line)), "").decide("a" * 255)


@pytest.mark.parametrize("name", [".gitignore", ".rayignore"])
def test_an_ignore_file_is_not_read_from_outside(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "a.py").touch()
    (tmp_path / "outside").write_text("*.py\n")
    (folder / name).symlink_to("../outside")
    assert uploaded(folder) == ["a.py"]
    assert read(folder).left_out == {OUTSIDE: [name]}
    (folder / "patterns").write_text("*.py\n")
    (folder / name).unlink()
    (folder / name).symlink_to("patterns")  # as in `.rayignore -> .gitignore`
    assert uploaded(folder) == [name, "patterns"]
    (folder / name).unlink()
    os.mkfifo(folder / name)
    writer = os.open(folder / name, os.O_RDWR)  # a writer that never writes
    try:
        with bounded_time():
            assert read(folder).left_out == {SPECIAL: [name]}
    finally:
        os.close(writer)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "device"])
def test_an_ignore_file_above_is_a_file_of_the_repository(kind: str, tmp_path: Path) -> None:
    repository, folder = tmp_path / "repository", tmp_path / "repository" / "sub" / "code"
    folder.mkdir(parents=True)
    (repository / ".git").mkdir()
    (folder / "a.py").touch()
    (repository / ".gitignore").write_text("*.py\n")
    assert uploaded(folder) == []
    (tmp_path / "outside").write_text("*.py\n")
    own = repository / "sub" / ".gitignore"
    (repository / ".gitignore").unlink()
    if kind == "link":
        own.symlink_to(tmp_path / "outside")
    elif kind == "pipe":
        os.mkfifo(own)
    elif kind == "folder":
        own.mkdir()
    else:
        own.symlink_to("/dev/zero")
    with bounded_time():
        assert uploaded(folder) == ["a.py"]
