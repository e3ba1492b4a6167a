"""The program that `rdma-ray shell` sends to a node, on processes of this machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clone import wait_until
from tests.other_user import NOBODY, needs_root
from workloads.shell.reach import Reach

PROGRAM = [sys.executable, *Reach.program()[1:]]
SLEEP = ["sleep", "600"]
PUBLISHED = """
import os, time
from workloads.rendezvous import publish_rank
publish_rank(5, 9, "10.0.0.1", 1)
os.environ["LATER"] = "1"
publish_rank(2, 8, "10.0.0.2", 7)
if os.fork() == 0:
    time.sleep(600)
time.sleep(600)
"""
linux = pytest.mark.skipif(sys.platform != "linux", reason="not run: needs Linux's /proc")


@pytest.fixture
def job(tmp_path: Path) -> str:
    """Return an ID that only processes of this test have."""
    return f"run {tmp_path}"


@contextmanager
def process(command: list[str], variables: Mapping[str, str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, env=os.environ | variables, start_new_session=True, **options) as started:
        try:
            yield started
        finally:
            os.killpg(started.pid, 9)


def variables_of(job: str, rank: int, token: str = "") -> dict[str, str]:
    return {"RDMA_RAY_JOB_ID": job, "RANK": str(rank), "WORLD_SIZE": "4", "RAY_AUTH_TOKEN_PATH": token}


def shown(job: str, token: str = "", port: int = 0) -> dict[str, Any]:
    said = subprocess.run([*PROGRAM, "show", token, str(port)], capture_output=True, text=True, check=True).stdout
    found: dict[str, Any] = json.loads(said)
    found["ranks"] = [(each["rank"], each["world"], each["pid"]) for each in found["ranks"] if each["job"] == job]
    return found


def until_shown(job: str, count: int, token: str = "") -> list[tuple[int, str, int]]:
    wait_until(lambda: len(shown(job, token)["ranks"]) == count, timeout_s=30)
    return sorted(shown(job, token)["ranks"])


@linux
def test_a_rank_is_its_program_and_not_the_shell_around_it(job: str, tmp_path: Path) -> None:
    """A shell of a rank is none itself, and its folder and variables are those of the program."""
    inner = f"cd {tmp_path}; export INNER=1; {sys.executable} -c 'import time; time.sleep(600)'; true"
    with process(["sh", "-c", inner], variables_of(job, 1)) as around, process(SLEEP, variables_of(job, 0)) as plain:
        wait_until(lambda: bool(children(around.pid)), timeout_s=30)
        [program] = children(around.pid)
        assert until_shown(job, 2) == [(0, "4", plain.pid), (1, "4", program)]
        command = [*PROGRAM, "rank", "", job, "1", "sh", "-c", 'echo "$RANK_PID $INNER $PWD"; sleep 0.1; exit 3']
        done = subprocess.run(command, env={"PATH": os.defpath}, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (3, f"{program} 1 {tmp_path}\n")
        with process([*PROGRAM, "rank", "", job, "1", "sleep", "600"], {}) as opened:
            wait_until(lambda: Path(f"/proc/{opened.pid}/comm").read_text() == "sleep\n", timeout_s=30)
            assert until_shown(job, 2) == [(0, "4", plain.pid), (1, "4", program)]
    done = subprocess.run([*PROGRAM, "rank", "", job, "1"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, f"rank 1 of job {job} has ended\n")


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@linux
def test_clusters_of_one_machine_are_told_apart_by_their_token(job: str) -> None:
    with process(SLEEP, variables_of(job, 0, "/a")) as one, process(SLEEP, variables_of(job, 0, "/b")) as two:
        assert until_shown(job, 1, "/a") == [(0, "4", one.pid)]
        assert until_shown(job, 1, "/b") == [(0, "4", two.pid)]


@linux
def test_ranks_that_ray_started_publish_themselves_last_and_alone(job: str) -> None:
    """A fork, such as that of a loader, has its parent's file."""
    with process([sys.executable, "-c", PUBLISHED], variables_of(job, 0) | {"RANK": "none"}) as rank:
        assert until_shown(job, 1) == [(2, "8", rank.pid)]
        command = [*PROGRAM, "rank", "", job, "2", "sh", "-c", 'echo "$MASTER_ADDR $MASTER_PORT $LATER"']
        assert subprocess.run(command, capture_output=True, text=True).stdout == "10.0.0.2 7 1\n"


@linux
@needs_root
def test_what_another_user_pretends_is_left_out(job: str) -> None:
    with (
        process(SLEEP, variables_of(job, 0), user=NOBODY) as other,
        process(SLEEP, variables_of(job, 1)) as own,
    ):
        wait_until(lambda: b"RANK=0" in Path(f"/proc/{other.pid}/environ").read_bytes(), timeout_s=30)
        assert until_shown(job, 1) == [(1, "4", own.pid)]


@linux
@pytest.mark.parametrize("rank", ["", "-1", "x", "1" * 7, "٣", "1 "])
def test_a_rank_that_is_not_a_number_is_left_out(job: str, rank: str) -> None:
    with process(SLEEP, variables_of(job, 0) | {"RANK": rank}), process(SLEEP, variables_of(job, 3)) as other:
        assert until_shown(job, 1) == [(3, "4", other.pid)]


@linux
@pytest.mark.parametrize(
    ("address", "family"), [("127.0.0.1", socket.AF_INET), ("0.0.0.0", socket.AF_INET), ("::1", socket.AF_INET6)]
)
def test_addresses_that_listen_are_shown(job: str, address: str, family: socket.AddressFamily) -> None:
    try:
        server = socket.create_server((address, 0), family=family)
    except OSError as error:
        pytest.skip(f"not run: no {address} here: {error}")
    with server:
        assert shown(job, port=server.getsockname()[1])["listening"] == [address]
    assert shown(job, port=1)["listening"] == []


def test_pipe_passes_bytes_until_the_end() -> None:
    data = bytes(range(256)) * 4096
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [*PROGRAM, "pipe", str(server.getsockname()[1])]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as pipe:
            connection, _ = server.accept()
            with connection:
                assert pipe.stdin is not None
                pipe.stdin.write(data)
                pipe.stdin.close()
                with connection.makefile("rb") as received:
                    assert received.read() == data
                connection.sendall(data)
            assert pipe.stdout is not None
            assert pipe.stdout.read() == data


@linux
def test_a_program_that_is_not_there_has_the_exit_code_of_shells(job: str) -> None:
    with process(SLEEP, variables_of(job, 0)):
        until_shown(job, 1)
        for word, code in (("no-such-program", 127), ("/", 126)):
            done = subprocess.run([*PROGRAM, "rank", "", job, "0", word], capture_output=True, text=True)
            assert (done.returncode, done.stderr.startswith(f"cannot run '{word}': ")) == (code, True)
    done = subprocess.run([*PROGRAM, "node", "/no/token", "10.0.0.1"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "no Ray runs at 10.0.0.1\n")
