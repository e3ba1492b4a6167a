"""A working directory that its user has not read, or that changes meanwhile: nothing from outside of it is uploaded.

Every outside file has MARKER, and every archive is searched for it.
"""

from __future__ import annotations

import io
import itertools
import os
import shutil
import subprocess
import sys
import threading
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from ray._private.runtime_env.packaging import unzip_package

from tests.hostile import bounded_memory, bounded_time
from workloads.exits import WorkloadError
from workloads.run import folder as folders
from workloads.run.folder import DEEP, HIDDEN, HOME, KEYS, LOOPS, NAMES, OUTSIDE, SKIPPED, STATE
from workloads.run.working_dir import pack, read
from workloads.unlinked import CHANGED, SPECIAL

MARKER = "marker-of-what-is-outside"
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files that a working directory may lead to, in a home folder."""
    home = tmp_path / "home"
    credentials = (".aws/sso/cache/1.json", ".docker/config.json", "project/.kube/config", "id_rsa")
    for name in ("notes", "data/deep/x", *credentials):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(MARKER)
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def code(outside: Path) -> Path:
    """A working directory beside them."""
    folder = outside / "code"
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "a.py").write_text("1")
    (folder / "sub" / "b.py").write_text("2")
    (folder / "sub" / "deep" / "c.py").write_text("3")
    return folder


OWN = {"a.py": b"1", "sub/b.py": b"2", "sub/deep/c.py": b"3"}


def unpacked(archive: bytes) -> dict[str, bytes]:
    """Return the contents of an archive, all of whose names are below its folder, and none of which is twice."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        names = opened.namelist()
        found = {name: opened.read(name) for name in names}
    assert len(found) == len(names)
    assert not [name for name in names if name.startswith("/") or ".." in name.split("/")]
    assert not [name for name, data in found.items() if MARKER.encode() in data]
    return found


def link(folder: Path, **targets: object) -> None:
    for name, target in targets.items():
        (folder / name.replace("__", "/")).symlink_to(str(target))


LINKS: dict[str, Callable[[Path, Path], None]] = {
    "absolute": lambda code, outside: link(code, x=outside / "notes"),
    "relative": lambda code, _: link(code, x="../notes"),
    "credentials of docker": lambda code, outside: link(code, x=outside / ".docker/config.json"),
    "nested credentials": lambda code, outside: link(code, x=outside / "project/.kube/config"),
    "cache of a login": lambda code, outside: link(code, x=outside / ".aws/sso/cache"),
    "parent": lambda code, _: link(code, x=".."),
    "root": lambda code, _: link(code, x="/"),
    "folder": lambda code, outside: link(code, x=outside / "data"),
    "through a parent": lambda code, _: link(code, x="sub/../../data/deep/x"),
    "through a folder and back out": lambda code, _: link(code, sub__up="..", x="sub/up/../notes"),
    # As a path, `in/../..` is the folder itself; by the kernel, it is the parent of sub/deep's parent.
    "through a linked folder": lambda code, _: link(code, **{"in": "sub/deep"}, x="in/../../../notes"),
    "chain": lambda code, outside: link(code, x="sub/y", sub__y="deep/z", sub__deep__z=outside / "notes"),
    "below a linked folder": lambda code, outside: link(code, y=outside / "data", x="y/deep/x"),
    "to nothing": lambda code, outside: link(code, x=outside / "nothing" / "there"),
    "to a folder whose name begins as its own": lambda code, outside: link(code, x=outside / "code-2" / "deep"),
}


@pytest.mark.parametrize("case", LINKS)
def test_a_link_out_of_the_folder_is_left_out_and_named(case: str, code: Path, outside: Path) -> None:
    shutil.copytree(outside / "data", outside / "code-2")
    LINKS[case](code, outside)
    found = read(code)
    assert "x" in found.left_out[OUTSIDE]
    archive = unpacked(pack(found))
    assert {name: data for name, data in archive.items() if not name.startswith("in/")} == OWN
    assert next(note for note in found.notes() if "a link out of the folder" in note).count("--follow-links") == 1


@pytest.mark.parametrize("follow_links", [False, True])
@pytest.mark.parametrize("target", ["/proc/self/environ", "/proc/self", "/proc/thread-self/environ"])
def test_the_environment_of_the_client_stays(target: str, follow_links: bool, code: Path) -> None:
    """In a process of its own, because /proc shows the environment with which a process began."""
    link(code, **{"notes.txt": target})
    program = (
        "import sys; from pathlib import Path; from workloads.run.working_dir import pack, read;"
        f"sys.stdout.buffer.write(pack(read(Path(sys.argv[1]){', follow_links=True' if follow_links else ''})))"
    )
    command = [sys.executable, "-c", program, str(code)]
    environment = {**os.environ, "PLANTED": MARKER}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True, timeout=60)
    assert unpacked(done.stdout) == OWN


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("/proc/self/environ", STATE),
        ("/dev/zero", STATE),
        ("/run", STATE),
        ("/sys/kernel", STATE),
        ("/", HOME),
        ("..", HOME),
        ("../data", None),
        ("../data/deep/x", None),
        ("../id_rsa", KEYS),
        ("../.docker/config.json", KEYS),
        ("../.aws", KEYS),
        ("../project/.kube/config", KEYS),
        ("../repository/.git/config", HIDDEN),
    ],
)
def test_links_that_are_allowed_lead_to_no_state_and_no_credentials(
    target: str, reason: str | None, code: Path, outside: Path
) -> None:
    (outside / "repository" / ".git").mkdir(parents=True)
    (outside / "repository" / ".git" / "config").write_text(MARKER)
    link(code, x=target)
    with bounded_time():
        found = read(code, follow_links=True)
        with zipfile.ZipFile(io.BytesIO(pack(found))) as opened:
            has_marker = any(MARKER.encode() in opened.read(name) for name in opened.namelist())
    assert has_marker == (reason is None)
    assert found.left_out == ({} if reason is None else {reason: ["x"]})


def test_a_link_to_a_folder_above_the_working_directory_is_a_loop(code: Path) -> None:
    link(code / "sub", up="..")
    assert read(code / "sub", follow_links=True).left_out == {LOOPS: ["up"]}


def test_links_within_the_folder_are_followed_by_their_real_path(code: Path) -> None:
    hidden = (".git/config", ".env", "keys/.ssh/known", ".aws/sso/cache", "tls.key", "node_modules/x", ".venv/x")
    for name in hidden:
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text(MARKER)
    for number, name in enumerate(hidden):
        link(code, **{f"innocent{number}": name, f"sub__innocent{number}": f"../{name}"})
    link(code, history=".git", config="keys/.ssh", one="sub/b.py", two="one", three="sub/deep", absolute=code / "a.py")
    found = read(code)
    assert unpacked(pack(found)) == OWN | {
        "one": b"2",
        "two": b"2",
        "absolute": b"1",
        "three/c.py": b"3",
    }
    both = {f"{place}innocent{number}" for place in ("", "sub/") for number in range(len(hidden))}
    assert {name for names in found.left_out.values() for name in names} >= {*both, "history", "config", ".env"}
    assert set(found.left_out) == {HIDDEN, KEYS}


@contextmanager
def at_open(number: int, attack: Callable[[], None]) -> Iterator[list[str]]:
    """Attack right before the file or folder is opened that is the number-th. Yield what was opened."""
    opened: list[str] = []
    original = os.open

    def hooked(path: Any, *arguments: Any, **more: Any) -> int:
        opened.append(str(path))
        if len(opened) == number + 1:
            attack()
        return original(path, *arguments, **more)

    os.open = hooked
    try:
        yield opened
    finally:
        os.open = original


def test_what_becomes_a_link_at_any_open_is_not_followed(code: Path, outside: Path) -> None:
    """Between each check and the open that follows it, every file, or every folder, becomes a link out."""
    link(code, linked="sub/b.py", linked_folder="sub/deep")
    for name in ("b.py", "c.py", "a.py", "deep/c.py"):
        (outside / "data" / name).parent.mkdir(exist_ok=True)
        (outside / "data" / name).write_text(MARKER)
    targets = {"a.py": "data/x", "sub/b.py": "data/x", "sub/deep/c.py": "data/x", "sub/deep": "data", "sub": "data"}
    (outside / "data" / "x").write_text(MARKER)

    def swap(name: str) -> None:
        (code / name).rename(outside / "kept")
        (code / name).symlink_to(outside / targets[name])

    for name in targets:
        refused: list[str] = []
        for number in itertools.count():
            with bounded_time(), at_open(number, lambda name=name: swap(name)) as opened:  # type: ignore[misc]
                try:
                    archive = pack(read(code))
                except WorkloadError as error:
                    refused.append(str(error))
                else:
                    assert set(unpacked(archive)) <= {*OWN, "linked", "linked_folder/c.py", "linked_folder/", "sub/"}
            if len(opened) <= number:
                break
            (code / name).unlink()
            (outside / "kept").rename(code / name)
        assert number > 20
        assert refused
        assert not [error for error in refused if "\n" in error or str(code) not in error]


def instead(make: Callable[[Path], object]) -> Callable[[Path], object]:
    def change(file: Path) -> None:
        file.rename(file.with_name("old"))  # so that its inode is not used again
        make(file)

    return change


def move_folder(file: Path) -> None:
    file.parent.rename(file.parents[1] / "moved")
    file.parent.symlink_to("../data")


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "shrinks": (lambda file: os.truncate(file, 0), CHANGED),
    "is replaced": (instead(lambda file: file.write_text("2" * 27)), CHANGED),
    "is removed": (lambda file: file.unlink(), "No such file"),
    "becomes a link": (instead(lambda file: file.symlink_to("../../notes")), SPECIAL),
    "becomes a folder": (instead(lambda file: file.mkdir()), SPECIAL),
    "becomes a pipe": (instead(lambda file: os.mkfifo(file)), SPECIAL),
    "has a key now": (lambda file: file.write_text("-----BEGIN PRIVATE KEY-----"), KEYS),
    "is in a linked folder": (move_folder, "Not a directory"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_file_that_changes_after_it_was_seen_is_named(case: str, code: Path) -> None:
    change, says = CHANGES[case]
    (code / "sub" / "b.py").write_text("2" * 27)
    found = read(code)
    change(code / "sub" / "b.py")
    with bounded_time(), pytest.raises(WorkloadError, match=says) as caught:
        pack(found)
    assert str(caught.value).startswith(f"cannot read {code}/sub/b.py: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_grows_is_uploaded_as_it_was_seen(code: Path) -> None:
    """Such as the log of this command in its own working directory."""
    found = read(code)
    (code / "sub" / "b.py").write_text(f"2{MARKER}")
    assert unpacked(pack(found)) == OWN
    assert "(sub/b.py changed meanwhile: " in str(found)


def test_a_file_that_never_ends_is_read_to_the_size_that_was_seen(code: Path) -> None:
    """A writer that is faster than the reader."""
    found = read(code)
    stop = threading.Event()

    def write() -> None:
        with (code / "a.py").open("ab") as file:
            while not stop.is_set() and file.tell() < 2**30:
                file.write(b"\0" * 2**20)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while (code / "a.py").stat().st_size < 2**24:
            time.sleep(0.01)
        with bounded_time(), bounded_memory(64):
            assert unpacked(pack(found)) == OWN
    finally:
        stop.set()
        writer.join()


def test_a_sparse_file_counts_with_its_size_and_is_not_read(code: Path) -> None:
    for number in range(20):
        (code / f"sparse{number}").touch()
        os.truncate(code / f"sparse{number}", 2**42)
    with bounded_time(), bounded_memory(64), pytest.raises(WorkloadError, match="sparse1"):
        read(code)


def test_what_holds_nothing_but_multiplies_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """2^30 paths to a folder without a file: it is empty, all of it is left out, or a virtual environment."""
    monkeypatch.setattr(folders, "MOST_FILES", 1000)
    for last in ("", "pyvenv.cfg", "x.key"):
        wide = tmp_path / f"wide{last}"
        for level in range(30):
            (wide / str(level)).mkdir(parents=True)
            for name in "ab":
                (wide / str(level) / name).symlink_to(f"../{level + 1}")
        (wide / "30").mkdir()
        (wide / "30" / last).touch()  # without a name, the folder itself
        with bounded_time(), pytest.raises(WorkloadError, match="more than 1000 files, links or folders"):
            read(wide)


def test_a_search_for_keys_takes_no_longer_than_its_file(code: Path) -> None:
    """A pattern that begins with \\s* takes time quadratic in the number of empty lines."""
    for number in range(5):
        (code / f"lines{number}").write_bytes(b"\n" * 2**16 + b"PRIVATE KEY")
        (code / f"spaces{number}").write_bytes(b'"private_key" "token" "ray" ' + b" \r" * 2**15)
    with bounded_time():
        assert len(read(code).files) == 13


def test_any_name_is_uploaded_as_ray_unpacks_it_or_named(code: Path, tmp_path: Path) -> None:
    names = {
        os.fsdecode(b"latin-\xe9"): NAMES,
        os.fsdecode(b"folder-\xff"): NAMES,
        "back\\slash": SKIPPED,
        "..\\..\\up": SKIPPED,
        "c:drive": SKIPPED,
        "\\root": SKIPPED,
        **dict.fromkeys(("new\nline", "\x1b[31mred", "\u202eabc", "\t", " ", "...", "-rf", "x" * 255, "é" * 127), ""),
        **dict.fromkeys(("*", "~", "$HOME", "%2e%2e", "\u2028", "a;b", "nul", "\U0001f4a9", "{}"), ""),
    }
    for name, reason in names.items():
        if "folder" in name:
            (code / name).mkdir()
            (code / name / "x").write_text(MARKER)
        else:
            (code / name).write_text(MARKER if reason else "own")
    with bounded_time():
        found = read(code)
    notes = [*found.notes(), str(found)]
    assert not [note for note in notes if "\n" in note or "\x1b" in note or "\u202e" in note or "\udce9" in note]
    left_out = {name: reason for reason, left in found.left_out.items() for name in left}
    assert left_out == {name: reason for name, reason in names.items() if reason}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a name that is twice
        archive = pack(found)
    assert unpacked(archive) == OWN | {name: b"own" for name, reason in names.items() if not reason}
    (tmp_path / "it.zip").write_bytes(archive)
    unzip_package(str(tmp_path / "it.zip"), str(tmp_path / "node"), False, False)
    on_node = {str(path.relative_to(tmp_path / "node")) for path in (tmp_path / "node").rglob("*") if path.is_file()}
    assert on_node == unpacked(archive).keys()


def test_a_thousand_levels_end_with_a_note(code: Path) -> None:
    here = os.open(code, os.O_RDONLY)
    for _ in range(1000):  # a path to the last one would be too long
        os.mkdir("deep" * 20, dir_fd=here)
        inner = os.open("deep" * 20, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("x", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    try:
        with bounded_time():
            found = read(code)
            archive = unpacked(pack(found))
        assert archive == OWN
        [(reason, [name])] = found.left_out.items()
        assert (reason, len(name) > 3000) == (DEEP, True)
    finally:
        subprocess.run(["rm", "-rf", str(code)], check=True)  # shutil.rmtree recurses


def test_a_folder_that_lists_a_name_twice_is_packed_once(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """readdir(3) may, while files are renamed."""
    scan = os.scandir

    def twice(folder: Any) -> nullcontext[list[Any]]:
        with scan(folder) as entries:
            return nullcontext(2 * list(entries))

    monkeypatch.setattr(os, "scandir", twice)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert unpacked(pack(read(code))) == OWN
