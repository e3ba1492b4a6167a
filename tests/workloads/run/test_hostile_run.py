"""`rdma-ray run` in a folder of 200 hostile entries that change meanwhile: what is sent, what is said, and when."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from infra.terminal import UNPRINTABLE
from tests.hostile import SECONDS
from tests.workloads.stack_outputs import LOCAL

ROOT = Path(__file__).resolve().parents[3]
MARKER = "marker-of-what-is-outside"
RUN = """
import json, sys, time
from pathlib import Path
from tests.workloads.run.test_run import Head
from workloads.cli import main
from workloads.client.api import UnknownError
from workloads.client.connection import Connection
import workloads.run.commands

class Empty(Head):
    def call(self, path, method="GET", *arguments, **options):
        if method == "GET" and "/packages/" in path:
            raise UnknownError("no such package")
        return super().call(path, method, *arguments, **options)

Connection.api = head = Empty()
began = time.monotonic()
code = main(["run", *sys.argv[2:], "--", "python", "train.py"])
took = time.monotonic() - began
for number, (name, data) in enumerate(head.packages):
    (Path(sys.argv[1]) / f"{number}-{name}").write_bytes(data)
sent = [job["runtime_env"]["working_dir"].rpartition("/")[2] for job in head.known.values()]
(Path(sys.argv[1]) / "run.json").write_text(json.dumps({"code": code, "took": took, "sent": sent}))
"""
"""The command against a head that records, in a process of its own: /proc shows with which environment it began."""
CHANGE = """
import itertools, os, sys, time
outside = sys.argv[1]
print("ready", flush=True)
for turn in itertools.count():
    time.sleep(0.0005)
    number = turn % 8
    if turn % 3 == 0:  # grows, shrinks
        with open(f"changing{number}", "wb") as file:
            file.write(b"own" * (turn % 50000))
    for name, target in ((f"flips{number}", "notes"), (f"folder{number}", "data")):
        os.rename(name, f"../aside-{name}")
        os.symlink(f"{outside}/{target}", name)
        os.unlink(name)
        os.rename(f"../aside-{name}", name)
    os.close(os.open(f"new{turn % 100}", os.O_CREAT | os.O_WRONLY))
    if turn % 2:
        os.unlink(f"new{turn % 100}")
"""
"""A process that changes files for as long as it lives: they grow, shrink, appear, vanish, and become links out."""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    for name in (
        ".aws/sso/cache/1",
        ".docker/config.json",
        ".kube/config",
        ".ssh/id_rsa",
        "notes",
        "data/x",
        "data/in/x",
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(MARKER)
    return home


@pytest.fixture
def hostile(outside: Path) -> Path:
    """A folder with three files that belong to the job, and with 200 other entries."""
    folder = outside / "code"
    (folder / "src").mkdir(parents=True)
    for name in ("train.py", "src/model.py", "src/own.txt"):
        (folder / name).write_text("own")
    targets = (
        *("/proc/self/environ", "/proc/self/maps", "/proc/self/root", "/proc/self/fd/0", "/proc/kcore", "/sys", "/run"),
        *("/dev/zero", "/dev/random", "/dev/stdin", "/dev/tty", "/", "..", "../..", "../../..", "/etc/passwd", "/tmp"),
        *(f"../{name}" for name in (".aws", ".aws/sso/cache", ".docker/config.json", ".kube/config", ".ssh/id_rsa")),
        *("../notes", "../data", "../data/in", "src/../../notes", "src/../../data/in/x", "/nowhere", "../nowhere/x"),
        *(
            str(outside / name)
            for name in ("notes", "data", "data/in", ".docker", "code/../notes", "code/src/../../data")
        ),
    )
    for number, target in enumerate(targets):
        (folder / f"out{number}").symlink_to(target)
        (folder / "src" / f"out{number}").symlink_to(f"../out{number}")  # a link to a link
    (folder / "chain0").symlink_to("../notes")
    for number in range(1, 50):
        (folder / f"chain{number}").symlink_to(f"chain{number - 1}")
    for number in range(10):
        (folder / f"loop{number}").symlink_to(f"loop{(number + 1) % 10}")
        (folder / f"pipe{number}").symlink_to("/nowhere") if number == 9 else os.mkfifo(folder / f"pipe{number}")
        (folder / f"sparse{number}").touch()
        os.truncate(folder / f"sparse{number}", 2**21)
    for number in range(8):
        (folder / f"changing{number}").touch()
        (folder / f"flips{number}").write_text("own")
        (folder / f"folder{number}" / "in").mkdir(parents=True)
        (folder / f"folder{number}" / "in" / "x").write_text("own")
    for number, up in enumerate((".", "src", "src/..")):
        (folder / "src" / f"up{number}").symlink_to(f"../{up}")
    names = ("\x1b[31mred", "new\nline", "\u202eabc", "back\\slash", "c:x", os.fsdecode(b"\xff"), "x" * 255, "-rf", "…")
    for name in names:
        (folder / name).write_text("own")
    deep = folder.joinpath(*["d" for _ in range(300)])
    deep.mkdir(parents=True)
    (deep / "x").write_text(MARKER)  # it stays, too
    (folder / "src" / ".gitignore").symlink_to("../../notes")
    (folder / ".gitignore").write_text("*a" * 13 + "b\n" + "a*" * 500 + "\n" + "**/" * 500 + "z\n")
    (folder / ".rayignore").symlink_to("/dev/zero")
    return folder


def run(folder: Path, results: Path, *options: str) -> tuple[dict[str, object], subprocess.CompletedProcess[str]]:
    """Run the command in a folder with MARKER in its environment, and search all that it sent."""
    results.mkdir()
    (results / "outputs.json").write_text(json.dumps(LOCAL))
    environment = {
        **os.environ,
        "PLANTED": MARKER,
        "HOME": str(folder.parent),
        "PYTHONPATH": str(ROOT),
        "RDMA_RAY_OUTPUTS": str(results / "outputs.json"),
    }
    command = [sys.executable, "-P", "-c", RUN, str(results), *options]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert not UNPRINTABLE.search(done.stdout + done.stderr)
    ended: dict[str, object] = json.loads((results / "run.json").read_text())
    packages = [*results.glob("*.zip")]
    assert len(packages) == (2 if ended["sent"] else 0)  # the folder, and this project
    for package in packages:
        with zipfile.ZipFile(package) as archive:
            assert not [name for name in archive.namelist() if MARKER.encode() in archive.read(name)]
            assert not [name for name in archive.namelist() if name.startswith("/") or ".." in name.split("/")]
    assert MARKER not in done.stdout + done.stderr
    assert isinstance(ended["took"], float)
    assert ended["took"] < SECONDS
    return ended, done


def test_a_run_in_a_hostile_folder_sends_nothing_from_outside(
    hostile: Path, outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(hostile)
    sockets = [socket.socket(socket.AF_UNIX) for _ in range(5)]
    for number, one in enumerate(sockets):
        one.bind(f"socket{number}")
    assert sum("/d/" not in str(path) for path in hostile.rglob("*")) > 200
    changing = subprocess.Popen([sys.executable, "-c", CHANGE, outside], cwd=hostile, stdout=subprocess.PIPE, text=True)
    assert changing.stdout is not None
    assert changing.stdout.readline() == "ready\n"
    try:
        for number in range(3):
            time.sleep(0.1 * number)
            ended, done = run(hostile, tmp_path / f"changing{number}")
            assert changing.poll() is None
            last = done.stderr.splitlines()[-1]
            if ended["code"]:  # a file was replaced or became shorter between its two reads
                assert last.startswith(f"cannot read {hostile}/"), last
                assert ended["sent"] == []
    finally:
        changing.kill()
        changing.wait()
    for aside in outside.glob("aside-*"):  # where the process was killed
        (hostile / aside.name.removeprefix("aside-")).unlink(missing_ok=True)
        aside.rename(hostile / aside.name.removeprefix("aside-"))
    ended, done = run(hostile, tmp_path / "still")
    assert ended["code"] == 0
    [package] = (tmp_path / "still").glob(f"*-{ended['sent'][0]}")  # type: ignore[index]
    with zipfile.ZipFile(io.BytesIO(package.read_bytes())) as archive:
        sent = set(archive.namelist())
    assert sent >= {"train.py", "src/model.py", "src/own.txt", "flips0", "folder7/in/x", "sparse9", "new\nline", "-rf"}
    assert not [name for name in sent if name.rpartition("/")[2].startswith(("out", "loop", "pipe", "socket", "chain"))]
    notes = [line for line in done.stderr.splitlines() if line.startswith("not uploaded, ")]
    for reason in (
        "out of the folder",
        "no regular file",
        "not readable",
        "above it",
        "in more than",
        "UTF-8",
        "unpack",
    ):
        assert len([note for note in notes if reason in note]) == 1, reason
    links = [path for path in hostile.rglob("*") if path.is_symlink()]
    out = [path for path in links if not Path(os.path.realpath(path)).is_relative_to(hostile)]
    assert next(note for note in notes if "out of the folder" in note).endswith(f" and {len(out) - 5} more")
    assert len(done.stderr.splitlines()) < 12


def test_what_was_left_out_is_in_the_document_by_name(hostile: Path, tmp_path: Path) -> None:
    _, done = run(hostile, tmp_path / "dry", "--dry-run", "--json", "-")
    left_out = json.loads(done.stdout)["left_out"]
    outside = next(names for reason, names in left_out.items() if "out of the folder" in reason)
    assert {"out0", "src/out0", "chain49", ".rayignore", "src/.gitignore", "pipe9"} <= set(outside)
