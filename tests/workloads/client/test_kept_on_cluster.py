"""Jobs of a real Ray whose cluster is gone: the same log, byte for byte, exit code and result from the storage."""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.clone import wait_until
from tests.workloads.conftest import Cluster, write_outputs
from workloads.client.api import JobsApi
from workloads.exits import Exit
from workloads.history.record import END, JOB
from workloads.untrusted import file_name

NOISY = r"""
import os, sys
sys.stdout.buffer.write(b"bytes \xff\xfe that are not text, a bar\r50%\r100%\r\n")
sys.stdout.flush()
print("to stderr", file=sys.stderr)
for number in range(2000):
    print("line", number, "x" * 500)
print("ended without a line end", end="")
sys.stdout.flush()
sys.exit(int(os.environ.get("RANK", 3)))
"""
LEAKS = r"""
import base64, os
for name, value in os.environ.items():
    if name.startswith("PLANTED"):
        print(name, value, value[::-1][::-1], base64.b64encode(value.encode()).decode(), repr(value), flush=True)
"""
SLEEPS = "import signal, time; signal.signal(15, lambda *_: exit(7)); print('began', flush=True); time.sleep(600)"


@pytest.fixture
def gone(cluster: Cluster, tmp_path: Path) -> Path:
    """File with the outputs of the cluster, at whose addresses nothing listens any more."""
    dead = "http://127.0.0.1:1"
    ray = cluster.outputs.ray.model_copy(update={"jobs": dead, "dashboard": dead})
    return write_outputs(cluster.outputs.model_copy(update={"ray": ray}), tmp_path / "gone.json")


def folder_of(cluster: Cluster, job_id: str) -> Path:
    assert cluster.outputs.storage is not None
    return Path(cluster.outputs.storage.history) / "rdma-ray" / "jobs" / file_name(job_id)


def kept_log(cluster: Cluster, job_id: str) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder_of(cluster, job_id).glob("log.*")))


def log_of_ray(cluster: Cluster, job_id: str) -> bytes:
    [log] = {path.resolve() for path in cluster.logs.glob(f"**/job-driver-{job_id}.log")}
    return log.read_bytes()


def detached(cluster: Cluster, *arguments: str, **variables: str) -> str:
    """Start a job, wait for its end, and return its ID."""
    with cluster.start("run", "--detach", *arguments, **variables) as client:
        said, errors = client.communicate(timeout=120)
    assert client.returncode == 0, errors
    job_id = said.strip()
    wait_until(lambda: JobsApi.of(cluster.outputs).job(job_id).terminal, timeout_s=120)
    return job_id


def listed(cluster: Cluster, *arguments: str) -> dict[str, dict[str, Any]]:
    done = cluster.rdma_ray("list", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return {job["id"]: job for job in json.loads(done.stdout)["jobs"]}


def test_log_and_exit_code_of_a_command_are_those_of_ray(cluster: Cluster, gone: Path, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "noisy.py").write_text(NOISY)
    folder = ("--working-dir", str(tmp_path / "code"))
    job_id = detached(cluster, *folder, "--name", "noisy", "--", "python", "noisy.py")
    assert kept_log(cluster, job_id) == log_of_ray(cluster, job_id)
    of_ray = cluster.rdma_ray("logs", job_id)
    for arguments in (["--outputs", str(gone)], ["--from", str(folder_of(cluster, job_id).parents[2])]):
        kept = cluster.rdma_ray("logs", job_id, *arguments)
        assert (kept.returncode, kept.stdout) == (of_ray.returncode, of_ray.stdout) == (3, of_ray.stdout)
        assert kept.stdout.endswith("ended without a line end\n")
    assert "Ray does not answer" in cluster.rdma_ray("logs", job_id, "--outputs", str(gone)).stderr
    tail = ("logs", job_id, "--tail", "2")
    assert cluster.rdma_ray(*tail, "--outputs", str(gone)).stdout == cluster.rdma_ray(*tail).stdout
    attached = cluster.rdma_ray("attach", job_id, "--outputs", str(gone), "--json", "-")
    assert (attached.returncode, json.loads(attached.stdout)["exit_code"]) == (3, 3)
    row, kept_row = listed(cluster)[job_id], listed(cluster, "--ended", "--outputs", str(gone))[job_id]
    assert {**kept_row, "started": 0, "seconds": 0} == {**row, "started": 0, "seconds": 0}
    assert abs(kept_row["started"] - row["started"]) < 10
    assert sorted(path.name for path in folder_of(cluster, job_id).iterdir()) == [END, JOB, "log.000000"]
    assert [oct(path.stat().st_mode & 0o777) for path in folder_of(cluster, job_id).iterdir()] == ["0o600"] * 3
    assert oct(folder_of(cluster, job_id).stat().st_mode & 0o777) == "0o700"


def test_result_of_a_gang_and_its_secrets(cluster: Cluster, gone: Path, tmp_path: Path) -> None:
    """15 secrets, printed by every rank in several forms, are nowhere below the folder; the result is the same."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "leaks.py").write_text(LEAKS)
    planted = {f"PLANTED_{number}": f"pl4nted{secrets.token_urlsafe(18)}" for number in range(15)}
    options = [word for name in planted for word in ("--secret", name)]
    command = ("--nodes", "2", "--working-dir", str(tmp_path / "code"), "--", "python", "leaks.py")
    job_id = detached(cluster, *options, *command, **planted)
    log = kept_log(cluster, job_id)
    assert log == log_of_ray(cluster, job_id)
    assert log.count(b"PLANTED_3 ***") == 2, log
    token = cluster.token
    for path in folder_of(cluster, job_id).parents[1].rglob("*"):
        for secret in (*planted.values(), token) if path.is_file() else ():
            for form in (secret.encode(), base64.b64encode(secret.encode()).rstrip(b"=")):
                assert form not in path.read_bytes(), path
    documents = []
    for number, arguments in enumerate(([], ["--outputs", str(gone)])):
        done = cluster.rdma_ray("logs", job_id, "--all", "--json", str(tmp_path / f"{number}.json"), *arguments)
        assert done.returncode == 0, done.stderr
        documents.append(json.loads((tmp_path / f"{number}.json").read_text()) | {"command": None})
        documents.append(done.stdout)
    assert documents[:2] == documents[2:]
    assert documents[0]["schema"] == "rdma-ray/run/1"


def test_a_stopped_job_gets_its_grace_once(cluster: Cluster) -> None:
    with cluster.start("run", "--detach", "--", "python", "-c", SLEEPS) as client:
        job_id = client.communicate(timeout=120)[0].strip()
    wait_until(lambda: b"began" in log_of_ray(cluster, job_id), timeout_s=60)
    assert cluster.rdma_ray("stop", job_id).returncode == 0
    wait_until(lambda: (folder_of(cluster, job_id) / END).exists(), timeout_s=30)
    end = json.loads((folder_of(cluster, job_id) / END).read_text())
    assert (end["status"], end["exit_code"]) == ("STOPPED", 7), "its handler ran to its end"
    assert kept_log(cluster, job_id) == log_of_ray(cluster, job_id)
    assert listed(cluster, "--ended")[job_id]["status"] == "STOPPED"


def test_a_killed_driver_leaves_what_it_wrote(cluster: Cluster, gone: Path) -> None:
    """The program that watches it is killed, too, as by the kernel for memory: the end is unknown."""
    with cluster.start("run", "--detach", "--", "python", "-c", SLEEPS) as client:
        job_id = client.communicate(timeout=120)[0].strip()
    wait_until(lambda: b"began" in kept_log(cluster, job_id), timeout_s=60)
    assert listed(cluster, "--ended")[job_id]["status"] == "UNKNOWN"
    [watching] = pids(job_id)
    os.kill(watching, signal.SIGKILL)
    wait_until(lambda: JobsApi.of(cluster.outputs).job(job_id).terminal, timeout_s=60)
    wait_until(lambda: (folder_of(cluster, job_id) / END).exists(), timeout_s=30)
    assert kept_log(cluster, job_id) == log_of_ray(cluster, job_id)
    kept = cluster.rdma_ray("logs", job_id, "--outputs", str(gone))
    assert (kept.returncode, "began" in kept.stdout) == (Exit.ERROR, True)
    assert "UNKNOWN" in kept.stderr
    assert "its end is not known" in kept.stderr


def pids(job_id: str) -> list[int]:
    """Return the processes that keep a job, of which one waits for its driver."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"workloads.gang.kept" in words and job_id.encode() in b" ".join(words):
            found.append(int(path.parent.name))
    return found


def test_jobs_of_commands_are_not_kept(cluster: Cluster) -> None:
    before = set(listed(cluster, "--ended"))
    done = cluster.rdma_ray("top", "--once", "--json", "-")
    assert done.returncode == 0, done.stderr
    assert set(listed(cluster, "--ended")) == before


def test_each_job_pays_little(cluster: Cluster) -> None:
    """The kept job of a command that does nothing ends as soon as the same without storage, but for a second."""

    def seconds(outputs: Path) -> float:
        began = time.monotonic()
        done = subprocess.run(
            [cluster.command, "run", "--outputs", outputs, "--", "true"],
            env=cluster.environment(),
            cwd=cluster.folder,
            check=True,
            capture_output=True,
        )
        assert done.returncode == 0
        return time.monotonic() - began

    without = write_outputs(cluster.outputs.model_copy(update={"storage": None}), cluster.folder / "no-storage.json")
    assert min(seconds(cluster.file) for _ in range(3)) < min(seconds(without) for _ in range(3)) + 1
