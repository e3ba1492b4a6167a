"""The guard of a node's processes, with real processes: their lines, exit codes and end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.gang import guard
from workloads.gang.guard import LONGEST, PROGRESS_S, LineSplitter
from workloads.gang.plan import NodeShare, guard_plan

IGNORES = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
SAVES = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("saved"), sys.exit(0)))
print("up", flush=True)
time.sleep(600)
"""


def lines(*pieces: bytes, now: float = 0.0) -> list[str]:
    splitter = LineSplitter()
    return [line for piece in pieces for line in splitter.feed(piece, now)] + list(splitter.end())


@given(st.binary(max_size=60).map(lambda data: data.replace(b"\r", b"")), st.lists(st.integers(0, 60), max_size=5))
def test_no_byte_of_a_line_is_lost_however_it_is_read(data: bytes, cuts: list[int]) -> None:
    ends = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    expected = data.decode(errors="replace").split("\n")
    assert lines(*(data[begin:end] for begin, end in pairwise(ends))) == (
        expected[:-1] if expected[-1] == "" else expected
    )


def test_line_ends_of_windows_may_arrive_in_two_pieces() -> None:
    assert lines(b"one\r\ntwo\r", b"\nthree", now=PROGRESS_S) == ["one", "two", "three"]


def test_progress_bar_is_shown_every_few_seconds_and_at_its_end() -> None:
    splitter = LineSplitter()
    shown = [
        line
        for second in range(30)
        for line in splitter.feed(f"\r{second} of 30|{'#' * second}".encode(), 100.0 + second)
    ]
    assert [int(line.split()[0]) for line in shown] == [0, 5, 10, 15, 20, 25]
    assert len(splitter.rest) < 100
    assert list(splitter.feed(b"\r30 of 30\nnext\n", 130.0)) == ["30 of 30", "next"]


def test_long_line_continues_in_the_next_one_without_a_cut_character() -> None:
    text = "é" * LONGEST  # two bytes each
    found = lines(b"x" + text.encode() + b"\n")
    assert "".join(found) == "x" + text
    assert max(len(line.encode()) for line in found) <= LONGEST


class Running:
    """A guard as an agent runs it."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        data = json.dumps(plan).encode()
        self.stdin.write(len(data).to_bytes(8, "big") + data)
        self.stdin.flush()

    def stop(self, grace_s: float) -> None:
        self.stdin.write(f"{grace_s}\n".encode())
        self.stdin.flush()

    def events(self) -> Iterator[tuple[str, int | None, str | int]]:
        for line in self.stdout:
            kind, rank, _, value = json.loads(line)
            yield kind, rank, value

    def wait_for(self, *texts: str) -> None:
        """Read until all of these lines have come."""
        missing = list(texts)
        for _, _, value in self.events():
            if value in missing:
                missing.remove(str(value))
            if not missing:
                return


@pytest.fixture
def started() -> Iterator[list[Running]]:
    found: list[Running] = []
    yield found
    for each in found:
        each.stdin.close()
        each.process.wait(20)
        each.stdout.close()


def run(started: list[Running], *commands: Sequence[str], **more: Any) -> Running:
    processes = [
        {"rank": rank, "arguments": command, "environment": dict(os.environ)} for rank, command in enumerate(commands)
    ]
    started.append(Running({"processes": processes, "folder": "/", "grace_s": 5, **more}))
    return started[-1]


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_lines_come_in_order_before_the_exit_code(started: list[Running]) -> None:
    found = run(
        started,
        ["sh", "-c", "echo one; echo two >&2; printf 'caf\\303\\251 \\377'; exit 7"],
        ["no-such-program"],
        ["sh", "-c", "kill -9 $$"],
        ["/"],
    )
    by_rank: dict[int | None, list[Any]] = {}
    for _, rank, value in found.events():
        by_rank.setdefault(rank, []).append(value)
    assert by_rank == {
        0: ["one", "two", "café �", 7],
        1: ["cannot run 'no-such-program': No such file or directory", 127],
        2: [128 + 9],
        3: ["cannot run '/': Permission denied", 126],
    }


def test_stop_is_a_term_signal_and_a_kill_after_the_grace(started: list[Running]) -> None:
    found = run(started, python(SAVES), python(IGNORES))
    found.wait_for("up", "up")
    began = time.monotonic()
    found.stop(1.0)
    events = list(found.events())
    assert events == [("line", 0, "saved"), ("exit", 0, 0), ("exit", 1, 128 + 9)]
    assert 1.0 <= time.monotonic() - began < 10
    assert found.process.wait(10) == 0


def test_term_signal_to_the_guard_is_a_stop(started: list[Running]) -> None:
    found = run(started, python(SAVES))
    found.wait_for("up")
    found.process.terminate()
    assert list(found.events()) == [("line", 0, "saved"), ("exit", 0, 0)]


def ended(pids: Sequence[int]) -> bool:
    """Return whether these processes end soon; their parent may not have waited for them yet."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        states = [psutil.Process(pid).status() for pid in pids if psutil.pid_exists(pid)]
        if all(state == psutil.STATUS_ZOMBIE for state in states):
            return True
        time.sleep(0.05)
    return False


# A rank with a daemon that has left its session and its parent.
DAEMON = f"""
import os, subprocess, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(1, b"daemon %d\\n" % os.getpid())  # at once: print writes in pieces where Python does not buffer
        os.execv(sys.executable, [sys.executable, "-c", {IGNORES!r}])
    os._exit(0)
os.write(1, b"rank %d\\n" % os.getpid())
{IGNORES}
"""


def pids_of(found: Running) -> dict[str, int]:
    pids: dict[str, int] = {}
    for _, _, value in found.events():
        name, _, number = str(value).partition(" ")
        if number.isdecimal():
            pids[name] = int(number)
        if len(pids) == 2:
            return pids
    raise AssertionError(pids)


def test_nothing_survives_the_agent(started: list[Running]) -> None:
    found = run(started, python(DAEMON))
    pids = pids_of(found)
    found.stdin.close()  # as the kernel does, however the agent ends
    assert ended(list(pids.values()))
    assert found.process.wait(20) == 0


def test_daemon_ends_with_its_rank(started: list[Running]) -> None:
    found = run(started, python(DAEMON))
    pids = pids_of(found)
    os.kill(pids["rank"], signal.SIGKILL)
    assert found.process.wait(20) == 0
    assert ended(list(pids.values()))


def test_rank_does_not_survive_the_guard(started: list[Running]) -> None:
    found = run(started, python(DAEMON))
    pids = pids_of(found)
    found.process.kill()
    assert ended([pids["rank"]])
    os.kill(pids["daemon"], signal.SIGKILL)


def test_output_that_is_not_read_stops_the_rank_and_fills_no_memory(started: list[Running]) -> None:
    size = 128 * 2**20
    found = run(started, ["sh", "-c", f"yes {'x' * 1023} | head -c {size}"])
    time.sleep(0.5)
    assert psutil.Process(found.process.pid).memory_info().rss < 48 * 2**20
    events = list(found.events())
    assert len(events) == size // 1024 + 1
    assert events[-1] == ("exit", 0, 0)


def test_ranks_of_torchrun_have_lines_and_exit_codes_of_their_own(started: list[Running], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys, time\n"
        "print('rank', os.environ['RANK'], os.environ.get('NCCL_DEBUG_FILE'))\n"
        "print('the end of', sys.argv[1], end='')\n"
        # torchrun ends rank 0 when rank 1 fails.
        "while os.environ['RANK'] == '1' and not os.path.exists(__file__ + '.done'): time.sleep(0.1)\n"
        "time.sleep(2 * int(os.environ['RANK']))\n"
        "open(__file__ + '.done', 'w').close()\n"
        "sys.exit(7 * int(os.environ['RANK']))\n"
    )
    share = NodeShare(
        mode="torchrun",
        command=("torchrun", str(script), "a b"),
        environment={},
        node=0,
        nodes=1,
        per_node=2,
        address="127.0.0.1",
        master="127.0.0.1",
        port=29_417,
        use_gpu=False,
        grace_s=5,
        restart=0,
    )
    started.append(Running(guard_plan(share, os.environ, [{"NCCL_DEBUG_FILE": "it's here"}, {}])))
    events = list(started[-1].events())
    ranks = {rank: [value for _, one, value in events if one == rank] for rank in (0, 1)}
    assert ranks[0] == ["rank 0 it's here", "the end of a b", 0]
    assert ranks[1] == ["rank 1 None", "the end of a b", 7]
    assert events[-1] == ("exit", None, 1)
