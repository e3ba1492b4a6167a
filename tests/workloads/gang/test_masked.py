"""The output of a command with secrets: they are removed, and nothing else changes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

from tests.clone import wait_until
from workloads.gang.masked import JOB_CONFIG
from workloads.gang.options import RunOptions
from workloads.gang.ranks import RankGang
from workloads.run.driver import NOT_FOUND
from workloads.secrecy import REDACTED, Masker

SECRET = "pl4nted/s3cret+v\u00e4lue"
DRIVER = [sys.executable, "-m", "workloads.run.driver"]


@contextmanager
def driver(*command: str, of_ray: bool = True) -> Iterator[subprocess.Popen[str]]:
    """The driver of a command with a secret, whose job is Ray's or an entry point."""
    options = RunOptions(command=command, secrets=("TOKEN",), secrets_here=True)
    own = {name: value for name, value in os.environ.items() if name != JOB_CONFIG} | {"TOKEN": SECRET}
    process = subprocess.Popen(
        [*DRIVER, options.model_dump_json()],
        env=own | ({JOB_CONFIG: "{}"} if of_ray else {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def output_of(*command: str) -> tuple[str, int]:
    with driver(*command) as process:
        said, _ = process.communicate(timeout=60)
        return said, process.returncode


FORMS = """
import base64, json, os, shlex, sys, traceback, urllib.parse
token = os.environ["TOKEN"]
print("plain", token)
print("json", json.dumps({"a": token}), json.dumps(token, ensure_ascii=False))
print("repr", repr(token), ascii(token), shlex.quote(token))
print("url", urllib.parse.quote(token, safe=""), urllib.parse.quote_plus(token))
print("hex", token.encode().hex(), token.encode().hex().upper())
for user in ("", "a:", "ab:"):
    print("basic", base64.b64encode((user + token).encode()).decode())
sys.stderr.write("stderr " + token + "\\n")
try:
    {}[token]
except KeyError:
    traceback.print_exc()
print("end")
sys.exit(7)
"""


def test_a_command_shows_no_secret() -> None:
    said, code = output_of(sys.executable, "-u", "-c", FORMS)
    assert code == 7
    assert said.splitlines()[-1] == "end"
    assert said.count("KeyError") == 1
    assert said.count(REDACTED) >= 13
    inside = [SECRET, SECRET.split("/")[1], "s3cret", SECRET.encode().hex()[8:20], "czNjcmV0", "MzY3JldC", "zM2NyZX"]
    assert not [part for part in inside if part.lower() in said.lower()]


def test_a_rank_s_lines_and_its_failure_show_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    class Reserved:
        spots = ("vm (127.0.0.2)",)

    gang = RankGang.__new__(RankGang)
    gang.reserved, gang.codes, gang.failures, gang.ending = Reserved(), {}, [], False  # type: ignore[assignment]
    gang.masker, gang.rests = Masker([SECRET]), [b""]
    gang.tails = {(0, 3): deque()}  # type: ignore[assignment]
    events: list[list[Any]] = [
        ["line", 3, 1.0, "Traceback (most recent call last):"],
        ["line", 3, 1.0, f"KeyError: {SECRET!r}"],
        ["exit", 3, 2.0, 1],
    ]
    gang._take(0, "".join(json.dumps(event) + "\n" for event in events).encode())
    [failure] = gang.failures
    assert failure.text.splitlines()[-1].replace("'", "") == f"KeyError: {REDACTED}"
    assert "s3cret" not in capsys.readouterr().out


COUNT = "import signal, sys, time\nfor n in (15, 2, 10): signal.signal(n, lambda n, _: print('got', n, flush=True))\n"
COUNT += "print('ready', flush=True)\nend = time.time() + 3\nwhile time.time() < end: time.sleep(0.05)\nprint('over')"


@pytest.mark.parametrize("of_ray", [True, False])
def test_a_signal_reaches_the_command_once(of_ray: bool) -> None:
    """Ray signals every process of a job; a shell, a pod and Slurm signal a process group, or one process."""
    with driver(sys.executable, "-c", COUNT, of_ray=of_ray) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if of_ray:
            children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True)
            for pid in (process.pid, *map(int, children.stdout.split())):
                os.kill(pid, signal.SIGTERM)
        else:
            os.killpg(process.pid, signal.SIGTERM)
            time.sleep(0.5)
            os.kill(process.pid, signal.SIGUSR1)
        assert process.stdout.read().splitlines() == ["got 15", *([] if of_ray else ["got 10"]), "over"]
        assert process.wait() == 0


def test_a_command_that_a_signal_ends_has_its_code() -> None:
    assert output_of("sh", "-c", "kill -TERM $$")[1] == 128 + 15


def test_what_a_descendant_keeps_open_does_not_keep_the_job() -> None:
    began = time.monotonic()
    said, code = output_of("sh", "-c", "sleep 30 & echo done")
    assert (said, code) == ("done\n", 0)
    assert time.monotonic() - began < 15


def test_a_progress_bar_and_a_long_line_are_shown_as_they_grow() -> None:
    script = "import sys, time\nsys.stdout.write('50%\\r'); sys.stdout.flush(); time.sleep(20)"
    with driver(sys.executable, "-u", "-c", script) as process:
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 10).strip() == b"50%"
    said, _ = output_of(sys.executable, "-c", "print('x' * 10**6)")
    assert said == "x" * 10**6 + "\n"


def test_a_program_that_is_missing_is_named() -> None:
    said, code = output_of("no-such-program")
    assert (said, code) == ("cannot run 'no-such-program' on the head: No such file or directory\n", NOT_FOUND)


def test_a_killed_driver_takes_the_command_along() -> None:
    with driver("sh", "-c", "echo $$; exec sleep 100", of_ray=False) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
        process.wait()
        wait_until(lambda: not psutil.pid_exists(pid), "the command ends", 10)
