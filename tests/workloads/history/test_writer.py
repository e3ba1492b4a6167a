"""The writer of records: slow, full and lost storage, planted links, killed jobs, and which records are removed."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.clone import wait_until
from tests.planted import ATTACKER, as_user, shared_folder
from workloads.client.kept_jobs import FolderStore, kept_job, kept_jobs
from workloads.history.record import END, JOB, LARGEST_LOG, JobRecord, line
from workloads.history.recording import recording
from workloads.history.writer import DAY_S, FULL_PART, LogCopy, remove_old

ROOT = Path(__file__).resolve().parents[3]


def record(storage: Path, job_id: str = "run-1", **changes: Any) -> JobRecord:
    about: dict[str, Any] = {
        "folder": str(storage),
        "days": 30,
        "cluster": "ours",
        "machine": None,
        "metadata": {"workload": "run"},
    }
    return JobRecord(**(about | {"id": job_id} | changes))


def kept(storage: Path, job_id: str = "run-1") -> Path:
    return storage / "rdma-ray" / "jobs" / job_id


def keep(storage: Path, output: bytes, code: int = 0, job_id: str = "run-1", **changes: Any) -> None:
    with recording(record(storage, job_id, **changes)) as keeper:
        keeper.write(output)
        keeper.end(code, stopped=False)


def run(storage: Path, *command: str, **how: Any) -> subprocess.Popen[bytes]:
    """Start a command as Ray starts a job: its output is a file."""
    log = (storage.parent / "ray.log").open("wb")
    words = [sys.executable, "-m", "workloads.gang.kept", record(storage).as_json(), *command]
    with log:
        return subprocess.Popen(words, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, **how)


def writer_in(storage: Path) -> int:
    """Return the writer that has a folder of this storage open."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if b"history.writer" in command.read_bytes():
                opened = [str(file.readlink()) for file in (command.parent / "fd").iterdir()]
                found += [int(command.parent.name)] if any(name.startswith(str(storage)) for name in opened) else []
    [pid] = found
    return pid


def test_record_has_no_variable_and_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "pl4nted-secret")
    keep(tmp_path, b"hello\n", 3)
    about, end = (json.loads((kept(tmp_path) / name).read_text()) for name in (JOB, END))
    assert set(about) == {"schema", "id", "cluster", "machine", "metadata", "started", "days"}
    assert (end["status"], end["exit_code"], end["bytes"], end["cut"]) == ("FAILED", 3, 6, False)
    assert not any(b"pl4nted" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_writer_gets_no_variable_of_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "pl4nted-secret")
    with recording(record(tmp_path)) as keeper:
        wait_until(lambda: (kept(tmp_path) / JOB).exists(), timeout_s=20)
        assert b"pl4nted" not in Path(f"/proc/{writer_in(tmp_path)}/environ").read_bytes()
        keeper.end(0, stopped=False)


@pytest.mark.parametrize("code", [0, 3, -signal.SIGKILL, -signal.SIGTERM])
def test_command_ends_as_it_does_alone(code: int, tmp_path: Path) -> None:
    script = f"echo said; exit {code}" if code >= 0 else f"echo said; kill {code} $$"
    (tmp_path / "storage").mkdir()
    assert run(tmp_path / "storage", "sh", "-c", script).wait(60) == code
    job = kept_job(FolderStore(str(tmp_path / "storage")), "run-1")
    assert (job.job.exit_code, job.log, job.whole) == (code, "said\n", True)
    assert (tmp_path / "ray.log").read_text() == "said\n"


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT]])
def test_signal_of_ray_reaches_the_command_once(signals: list[int], tmp_path: Path) -> None:
    """Ray signals each process of the job; the watching one passes on nothing then."""
    (tmp_path / "storage").mkdir()
    handler = "import signal, time; n = []; [signal.signal(s, lambda *_: n.append(1)) for s in (2, 15)]"
    wait = "print('ready', flush=True)\nfor _ in range(40): time.sleep(.1)\nprint(len(n))"
    process = run(tmp_path / "storage", sys.executable, "-c", f"{handler}\n{wait}")
    wait_until(lambda: (tmp_path / "ray.log").read_text() == "ready\n", timeout_s=20)
    time.sleep(0.3)  # LATE_S
    for number in signals:
        os.killpg(process.pid, number)
    assert process.wait(30) == 0
    assert (tmp_path / "ray.log").read_text() == "ready\n1\n"
    assert kept_job(FolderStore(str(tmp_path / "storage")), "run-1").job.status == "STOPPED"


def test_killed_in_the_middle(tmp_path: Path) -> None:
    """Everything is killed, also the writer, as with a node: what was written so far is there, and no end."""
    (tmp_path / "storage").mkdir()
    process = run(tmp_path / "storage", "sh", "-c", "echo begun; sleep 600")
    wait_until(lambda: (kept(tmp_path / "storage") / "log.000000").exists(), timeout_s=30)
    os.kill(writer_in(tmp_path), signal.SIGKILL)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(20)
    job = kept_job(FolderStore(str(tmp_path / "storage")), "run-1")
    assert (job.job.status, job.job.exit_code, job.log, job.whole) == ("UNKNOWN", None, "begun\n", False)


def test_missing_storage_is_one_line_and_no_failure(tmp_path: Path) -> None:
    assert run(tmp_path / "absent", "sh", "-c", "echo said; exit 3").wait(60) == 3
    assert (tmp_path / "ray.log").read_text() == (
        "said\nrdma-ray: the storage keeps this job only in part: No such file or directory\n"
    )


class Source:
    """A growing log and the folder of its record."""

    def __init__(self, folder: Path) -> None:
        self.file = (folder / "log").open("wb+")
        self.folder = folder / "record"
        self.folder.mkdir()
        self.copy = LogCopy(self.file.fileno(), os.open(self.folder, os.O_RDONLY))

    def grow(self, data: bytes) -> None:
        self.file.write(data)
        self.file.flush()

    def parts(self) -> list[bytes]:
        return [path.read_bytes() for path in sorted(self.folder.iterdir())]


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


def test_parts_grow_and_are_joined(source: Source) -> None:
    for piece in (b"a" * 10, b"b" * FULL_PART, b"c"):
        source.grow(piece)
        assert source.copy.step()
    assert source.parts() == [b"a" * 10 + b"b" * FULL_PART, b"c"]
    assert not source.copy.step()
    assert source.copy.done == FULL_PART + 11


def failing(monkeypatch: pytest.MonkeyPatch, name: str, fails: Callable[..., bool], number: int) -> None:
    real = getattr(os, name)

    def call(*arguments: Any, **keywords: Any) -> Any:
        if fails(*arguments):
            raise OSError(number, os.strerror(number))
        return real(*arguments, **keywords)

    monkeypatch.setattr(os, name, call)


def test_storage_that_cannot_append_gets_a_part_for_each_piece(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Mountpoint for S3."""
    failing(monkeypatch, "open", lambda _name, flags, *_: bool(flags & os.O_APPEND), errno.EPERM)
    for piece in (b"one\n", b"two\n", b"three\n"):
        source.grow(piece)
        assert source.copy.step()
    assert source.parts() == [b"one\n", b"two\n", b"three\n"]


def test_full_storage_loses_and_repeats_nothing(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    real, room = os.write, [4]

    def write(file: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(file, data[: room[0]])
        room[0] -= written
        return written

    monkeypatch.setattr(os, "write", write)
    source.grow(b"one\ntwo\n")
    assert source.copy.step()
    assert not source.copy.step()
    assert source.copy.error is not None
    room[0] = 100
    assert source.copy.step()
    assert source.parts() == [b"one\ntwo\n"]
    assert source.copy.error is None


def test_log_has_a_limit(source: Source) -> None:
    os.ftruncate(source.file.fileno(), LARGEST_LOG + 5)
    source.copy.start = LARGEST_LOG - 3
    assert source.copy.step()
    assert not source.copy.step()
    assert source.parts() == [bytes(3)]


def test_slow_storage_delays_the_end_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer is stopped, as by storage that does not answer."""
    monkeypatch.setattr("workloads.history.recording.END_S", 0.5)
    with recording(record(tmp_path)) as keeper:
        wait_until(lambda: (kept(tmp_path) / JOB).exists(), timeout_s=20)
        pid = writer_in(tmp_path)
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        for _ in range(1000):
            keeper.write(b"x" * 1000 + b"\n")
        keeper.end(0, stopped=False)
        assert time.monotonic() - began < 5
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: (kept(tmp_path) / END).exists(), timeout_s=20)
    assert len(kept_job(FolderStore(str(tmp_path)), "run-1").log) == 1000 * 1001


@pytest.mark.parametrize("link", ["rdma-ray", "rdma-ray/jobs", "rdma-ray/jobs/run-1"])
def test_planted_link_redirects_nothing(link: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (storage := tmp_path / "storage").mkdir()
    (outside := tmp_path / "outside").mkdir()
    (storage / link).parent.mkdir(parents=True, exist_ok=True)
    (storage / link).symlink_to(outside)
    keep(storage, b"hello\n")
    assert "only in part" in capsys.readouterr().err
    assert [*outside.iterdir()] == []


def test_folder_of_another_user_is_not_used(capsys: pytest.CaptureFixture[str]) -> None:
    with shared_folder() as storage:
        as_user(ATTACKER, lambda: (storage / "rdma-ray").mkdir())
        keep(storage, b"hello\n")
        assert "belongs to another user" in capsys.readouterr().err
        assert [*(storage / "rdma-ray").iterdir()] == []


def test_a_record_is_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path, b"first\n")
    keep(tmp_path, b"second\n")
    assert "File exists" in capsys.readouterr().err
    assert kept_job(FolderStore(str(tmp_path)), "run-1").log == "first\n"


def test_only_old_records_are_removed(tmp_path: Path) -> None:
    """Those of this cluster by its setting, others by their own. What is not a record stays."""
    now = time.time()

    def old(name: str, age: float, **changes: Any) -> Path:
        keep(tmp_path, b"x\n", job_id=name, **changes)
        for path in kept(tmp_path, name).iterdir():
            os.utime(path, (now - age * DAY_S,) * 2)
        return kept(tmp_path, name)

    gone = [old("gone", 4), old("gone-other", 11, cluster="other", days=10)]
    stays = [old("new", 2), old("other", 9, cluster="other", days=10), old("more", 4)]
    (stays[2] / "model.pt").write_text("the user's")
    for name, content in (("no-record", {"schema": "mine"}), ("no-json", None)):
        (folder := kept(tmp_path, name)).mkdir()
        (folder / JOB).write_bytes(b"{" if content is None else line(content))
        os.utime(folder / JOB, (0, 0))
        stays.append(folder)
    (outside := tmp_path / "outside").mkdir()
    (outside / JOB).write_bytes((gone[0] / JOB).read_bytes())
    os.utime(outside / JOB, (0, 0))
    kept(tmp_path, "link").symlink_to(outside)
    (kept(tmp_path, "linked")).mkdir()
    (kept(tmp_path, "linked") / JOB).symlink_to(outside / JOB)
    jobs = os.open(kept(tmp_path, "").resolve(), os.O_RDONLY)
    remove_old(jobs, record(tmp_path, days=3))
    os.close(jobs)
    assert not any(folder.exists() for folder in gone)
    assert all(folder.exists() for folder in stays)
    assert (stays[2] / "model.pt").exists()
    assert (outside / JOB).exists()
    assert {job.job.id for job in kept_jobs(FolderStore(str(tmp_path)))} == {"new", "other"}


def test_a_start_removes_old_records(tmp_path: Path) -> None:
    keep(tmp_path, b"x\n", job_id="old")
    for path in kept(tmp_path, "old").iterdir():
        os.utime(path, (0, 0))
    with recording(record(tmp_path, "new")) as keeper:
        wait_until(lambda: not kept(tmp_path, "old").exists(), timeout_s=20)
        keeper.end(0, stopped=False)
