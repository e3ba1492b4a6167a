"""What another user of a node, of its /tmp and of the storage does to a job: nothing waits, and nothing is lost."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hostile import bounded_memory, bounded_time
from tests.other_user import needs_root
from tests.planted import ATTACKER, VICTIM, as_user, plant, shared_folder
from tests.workloads.slurm.test_script import Place, place
from workloads import temporary
from workloads.slurm import commands, node
from workloads.slurm.node import PLACE

__all__ = ["place"]
pytestmark = needs_root
MANY = 5000


def test_nothing_of_another_user_in_tmp_stops_or_misleads_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of the user's killed jobs go as before, and nothing that a link in them leads to."""

    def killed() -> Path:
        left = tmp / f"{PLACE}killed"
        (left / "ray" / "session").mkdir(parents=True)
        left.chmod(0o700)
        (left / "lock").touch()
        os.mkfifo(left / "pipe")
        (left / "ray" / "link").symlink_to(precious)
        precious.mkdir()
        (precious / "results").write_text("right")
        return left

    def starts() -> tuple[bool, float]:
        began = time.monotonic()
        with node.own_place() as own:
            assert own.stat().st_mode & 0o777 == 0o700
            took = time.monotonic() - began
        return own.exists(), took

    with shared_folder() as tmp:
        monkeypatch.setattr(node, "TEMPORARY", tmp)
        precious = tmp / "precious"
        left = as_user(VICTIM, killed)
        as_user(ATTACKER, lambda: plant(tmp, PLACE, precious, MANY))
        before = {path.name for path in tmp.iterdir()}
        remains, took = as_user(VICTIM, starts)
        assert not remains
        assert took < 5, f"{took:.1f} s with {MANY} foreign folders"
        assert {path.name for path in tmp.iterdir()} == before - {left.name}
        assert (precious / "results").read_text() == "right"


@pytest.mark.parametrize("with_what", ["link", "fifo", "folder"])
def test_folder_that_is_replaced_while_it_is_removed_leads_nowhere(
    with_what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a /tmp without the sticky bit another user can do so, at the worst moment: after the folder was examined."""
    with shared_folder(0o777) as tmp:
        monkeypatch.setattr(node, "TEMPORARY", tmp)
        left, precious = tmp / f"{PLACE}killed", tmp / "precious"

        def replace() -> None:
            left.rename(tmp / "aside")
            if with_what == "link":
                left.symlink_to(precious)
            elif with_what == "fifo":
                os.mkfifo(left)
            else:
                precious.rename(left)

        def starts() -> None:
            for folder in (left, precious):
                folder.mkdir(mode=0o700)
                (folder / "lock").touch()
            lock = fcntl.flock

            def late(file: int, how: int) -> None:
                monkeypatch.setattr(fcntl, "flock", lock)
                lock(file, how)
                replace()

            monkeypatch.setattr(fcntl, "flock", late)
            with node.own_place():
                pass

        as_user(VICTIM, starts)
        where = left if with_what == "folder" else precious
        assert [path.name for path in where.iterdir()] == ["lock"]


def refused(process: subprocess.Popen[str], *words: str) -> str:
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 1
    assert output.count("\n") == 1, output
    assert all(word in output for word in ("rdma-ray: ", " refused", *words)), output
    return output


@pytest.mark.parametrize("owner", [0, ATTACKER])
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o755])
def test_storage_that_others_can_change_is_refused(place: Place, tmp_path: Path, owner: int, mode: int) -> None:
    """Its name is known before the job starts: another user can be there first, and `token` may be a FIFO."""
    storage = tmp_path / "sto rage"
    (storage / "job-7").mkdir(parents=True)
    os.mkfifo(storage / "job-7" / "token")
    os.mkfifo(storage / "job-7" / "nodes")
    storage.chmod(mode)
    for path in (storage, storage / "job-7"):
        os.chown(path, owner, owner)
    if owner:
        refused(place(), str(storage), f"belongs to user {owner}")
        assert (storage / "job-7" / "token").exists()
    elif mode & 0o002:
        refused(place(), str(storage), "can be changed by all users (drwxrwxrw")
    else:
        assert place().wait(20) == 0  # of an earlier job


@pytest.mark.parametrize(("mode", "right"), [(0o1777, True), (0o777, False)])
def test_parent_of_the_storage_needs_the_sticky_bit(place: Place, tmp_path: Path, mode: int, right: bool) -> None:
    tmp_path.chmod(mode)
    if right:
        assert place().wait(20) == 0
    else:
        refused(place(), f"{tmp_path} can be changed by all users (drwxrwxrwx)")


def of_the_attacker(folder: Path, _: Path) -> None:
    folder.mkdir()
    os.mkfifo(folder / "token")
    os.mkfifo(folder / "outputs.json")
    os.chown(folder, ATTACKER, ATTACKER)


def with_results(folder: Path, _: Path) -> None:
    folder.mkdir()
    (folder / "results").touch()


@pytest.mark.parametrize(
    ("plants", "word"),
    [
        (lambda folder, precious: folder.symlink_to(precious), "symbolic link of user root"),
        (lambda folder, _: folder.symlink_to("/nowhere"), "symbolic link of user root"),
        (lambda folder, _: os.mkfifo(folder), "fifo of user root"),
        (of_the_attacker, "directory of user nobody"),
        (with_results, "directory of user root"),
    ],
)
def test_job_uses_and_removes_no_folder_that_it_did_not_create(
    place: Place, tmp_path: Path, plants: Callable[[Path, Path], None], word: str
) -> None:
    """Members of a group may write the storage. What is at the place of the job's folder stays as it is."""
    storage, precious = tmp_path / "sto rage", tmp_path / "precious"
    precious.mkdir()
    storage.mkdir(mode=0o770)
    (precious / "token").write_text("right")
    plants(storage / "job-7", precious)
    before = sorted(str(path) for path in tmp_path.rglob("*") if "programs" not in str(path))
    refused(place(), "job-7", word)
    assert sorted(str(path) for path in tmp_path.rglob("*") if "programs" not in str(path)) == before
    assert (precious / "token").read_text() == "right"


def test_outputs_that_the_users_job_did_not_write_end_no_wait(tmp_path: Path) -> None:
    """A client that follows them would send its program and its secrets to another user's cluster."""
    planted = tmp_path / "job-7"
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "real" / "outputs.json").touch()
    assert commands.is_own(tmp_path / "real" / "outputs.json")
    planted.symlink_to(tmp_path / "real")
    assert not commands.is_own(planted / "outputs.json")
    planted.unlink()
    planted.mkdir(mode=0o700)
    assert not commands.is_own(planted / "outputs.json")
    (planted / "outputs.json").symlink_to(tmp_path / "real" / "outputs.json")
    assert not commands.is_own(planted / "outputs.json")
    (planted / "outputs.json").unlink()
    (planted / "outputs.json").touch()
    planted.chmod(0o777)
    assert not commands.is_own(planted / "outputs.json")
    planted.chmod(0o700)
    for path in (planted / "outputs.json", planted):
        assert commands.is_own(planted / "outputs.json")
        os.chown(path, ATTACKER, ATTACKER)
        assert not commands.is_own(planted / "outputs.json")
        os.chown(path, 0, 0)


@pytest.mark.parametrize("what", ["fifo", "link", "socket", "folder", "other user's", "sparse"])
def test_log_is_read_only_if_it_is_the_jobs(tmp_path: Path, what: str) -> None:
    log, secret = tmp_path / "rdma-ray-7.log", tmp_path / "secret"
    secret.write_text("s3cret\n")
    match what:
        case "fifo":
            os.mkfifo(log)
        case "link":
            log.symlink_to(secret)
        case "socket":
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(str(log))
        case "folder":
            log.mkdir()
        case "other user's":
            log.write_text("x\n")
            os.chown(log, ATTACKER, ATTACKER)
        case "sparse":
            with log.open("wb") as file:
                file.truncate(2**40)
    lines = commands.GrowingLog(log, os.getuid())
    with bounded_time(), bounded_memory(64):
        longest = max((len(line) for line in lines.new()), default=0)
    assert bool(lines.problem) is (what != "sparse")
    assert (longest, lines.read) == ((2**16, commands.TURN) if what == "sparse" else (0, 0))


def test_own_folders_are_opened_and_locked_only_as_such(tmp_path: Path) -> None:
    """A member of the group could exchange the files of a folder that he can write."""
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o700)
    (folder / "lock").touch()
    (folder / "link").symlink_to("lock")
    os.mkfifo(folder / "fifo")
    with bounded_time(), temporary.opened(folder) as own, temporary.locked(own, "lock"):
        for name, kind in {"lock": BlockingIOError, "fifo": PermissionError, "none": FileNotFoundError}.items():
            with pytest.raises(kind), temporary.locked(own, name):
                pass
        with pytest.raises(OSError, match="symbolic links"), temporary.locked(own, "link"):
            pass
    folder.chmod(0o770)
    with pytest.raises(PermissionError, match="not a folder that only this user can write"), temporary.opened(folder):
        pass
