"""Files of a working directory: what is uploaded, what is left out and why, and its limits."""

from __future__ import annotations

import io
import json
import os
import socket
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.hostile import bounded_time
from tests.workloads.stack_outputs import LOCAL
from workloads.exits import WorkloadError
from workloads.run import folder as folders
from workloads.run.folder import KEYS, LOOPS, NAMES, OUTSIDE, UNREADABLE
from workloads.run.working_dir import pack, read
from workloads.unlinked import SPECIAL

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n"


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def names(folder: Path) -> list[str]:
    return [entry.name for entry in read(folder).files]


def test_ignore_files_apply_as_in_git(tmp_path: Path) -> None:
    """The last pattern decides; a file below another one overrides it; what a folder excludes cannot come back."""
    files = {
        ".gitignore": "*.log\n!keep.log\n/data/\nbuild/\n# *.py\n",
        ".rayignore": "big.bin\n",
        **dict.fromkeys(("a.py", "b.log", "keep.log", "big.bin", "data/keep.log", "src/data/x", "src/build/y"), ""),
        "src/.gitignore": "!b.log\n*.tmp\n",
        **dict.fromkeys(("src/b.log", "src/c.log", "src/deep/d.tmp", "d.tmp"), ""),
    }
    folder = write(tmp_path, files)
    kept = ["a.py", "d.tmp", "keep.log", "src/.gitignore", "src/b.log", "src/data/x", "src/deep/"]
    assert names(folder) == [".gitignore", ".rayignore", *kept]
    # From a folder in a repository, its parents' patterns apply as well.
    assert "b.log" in names(folder / "src")
    (folder / ".git").mkdir()
    (folder / "src" / "e.log").touch()
    assert names(folder / "src") == [".gitignore", "b.log", "data/x", "deep/"]


def test_credentials_repositories_and_environments_stay(tmp_path: Path) -> None:
    secret = (".env", ".env.local", "prod.env", "id_rsa", "tls.key", ".netrc", ".aws/config", "sub/kubeconfig")
    files = {
        **dict.fromkeys((*secret, ".env.example", "id_rsa.pub", "environment.py", "credentials.py"), "A=1"),
        "key.txt": KEY,
        "account.json": '{"type": "service_account",\n "private_key": "' + KEY.replace("\n", "\\n") + '"}',
        "outputs.json": json.dumps(LOCAL),
        "shown.json": json.dumps(LOCAL | {"ray": LOCAL["ray"] | {"token": "[secret]"}}),
        "code.py": f"KEY = '{KEY[:20]}'",
        ".git/HEAD": "",
        "env311/pyvenv.cfg": "",
        "env311/lib/x.py": "",
        "sub/node_modules/x": "",
        "pkg/__pycache__/x.pyc": "",
        "pkg/x.py": "",
    }
    folder = write(tmp_path, files)
    (folder / "innocent").symlink_to("id_rsa")
    kept = [".env.example", "code.py", "credentials.py", "environment.py", "id_rsa.pub", "pkg/x.py", "shown.json"]
    assert names(folder) == sorted(kept)
    left_out = read(folder).left_out
    left = {name.replace(".aws", ".aws/config") for name in left_out[KEYS]}
    assert (left, set(left_out)) == ({*secret, "key.txt", "account.json", "outputs.json", "innocent"}, {KEYS})
    assert next(read(folder).notes()).endswith("and 7 more")


def test_what_is_no_file_is_left_out_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "it", {"a.py": "1", "sub/b.py": "2"})
    os.mkfifo(folder / "pipe")
    monkeypatch.chdir(folder)
    socket.socket(socket.AF_UNIX).bind("socket")
    (folder / "sub" / "up").symlink_to("..")
    (folder / "itself").symlink_to("itself")
    (folder / "nothing").symlink_to("nowhere")
    (folder / "other").symlink_to("sub/b.py")
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "empty").mkdir()
    Path(os.fsdecode(b"latin-\xe9")).touch()
    (folder / "naïve\n").touch()
    locked = folder / "locked"
    locked.touch(mode=0)
    opened = os.open

    def refuse(path: str, *arguments: Any, **more: Any) -> int:
        if path == "locked":  # for root, no file is unreadable
            raise PermissionError(13, "Permission denied")
        return opened(path, *arguments, **more)

    monkeypatch.setattr(os, "open", refuse)
    with bounded_time():
        found = read(folder)
    assert [entry.name for entry in found.files] == ["a.py", "empty/", "naïve\n", "other", "sub/b.py"]
    assert found.left_out == {
        UNREADABLE: ["itself", "locked", "nothing"],
        NAMES: ["latin-\udce9"],
        SPECIAL: ["pipe", "socket"],
        OUTSIDE: ["zero"],
        LOOPS: ["sub/up"],
    }
    assert not [note for note in found.notes() if "\udce9" in note]
    monkeypatch.undo()
    with zipfile.ZipFile(io.BytesIO(pack(found))) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {
            "a.py": b"1",
            "empty/": b"",
            "naïve\n": b"",
            "other": b"2",
            "sub/b.py": b"2",
        }


def test_the_archive_depends_on_names_contents_and_modes(tmp_path: Path) -> None:
    folder = write(tmp_path, {"run.sh": "#!/bin/sh"})
    (folder / "run.sh").chmod(0o755)
    first = pack(read(folder))
    os.utime(folder / "run.sh", (1, 1))
    assert pack(read(folder)) == first
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        assert stat.S_IMODE(archive.getinfo("run.sh").external_attr >> 16) == 0o755
    (folder / "run.sh").chmod(0o644)
    assert pack(read(folder)) != first


def test_a_large_folder_is_refused_with_its_largest_parts(tmp_path: Path) -> None:
    sizes = {"data/deep/train.bin": 70, "data/deep/test.bin": 20, "data/x.bin": 1, "logs/1": 7, "logs/2": 7, "a.py": 1}
    for name, mebibytes in sizes.items():
        file = write(tmp_path, {name: ""}) / name
        os.truncate(file, mebibytes * 2**20)
    with pytest.raises(WorkloadError, match=r"106\.0 MiB.*accepts 100\.0 MiB") as caught:
        read(tmp_path)
    listed = [line.split()[-1] for line in str(caught.value).splitlines() if line.startswith("  ")]
    assert listed == ["data/deep/train.bin", "data/deep/test.bin", "logs/", "a.py", "data/x.bin"]
    assert "a line for each in .gitignore or .rayignore" in str(caught.value)
    write(tmp_path, {".rayignore": "data\n"})
    assert read(tmp_path).size == 15 * 2**20 + 5


def test_too_many_files_are_refused_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MOST_FILES", 100)
    write(tmp_path, {f"{folder}/{number}": "" for folder in "ab" for number in range(75)})
    with pytest.raises(WorkloadError, match="more than 100 files") as caught:
        read(tmp_path)
    assert "files  a/" in str(caught.value)
    write(tmp_path, {".gitignore": "a"})
    assert len(read(tmp_path).files) == 76


def test_a_folder_that_is_none_or_holds_everything_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "me"))
    write(tmp_path, {"home/me/project/x": "", "file": ""})
    for folder, says in {"none": "no such", "file": "not a folder", "home/me": "home", "home": "home"}.items():
        with pytest.raises(WorkloadError, match=says):
            read(tmp_path / folder)
    assert names(tmp_path / "home/me/project") == ["x"]


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\0", b"[" * 5000, b"\0\n***\n!\n/\n", b"[z-a]\n", b"\\\n", b"a**b/**/**c"]
)
def test_any_ignore_file_is_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".gitignore").write_bytes(content)
    (tmp_path / "a").touch()
    with bounded_time():
        read(tmp_path)
