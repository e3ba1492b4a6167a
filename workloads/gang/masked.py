"""Run a child that gets the signals of this process, and a command whose output may contain secrets."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from workloads.gang.guard import LONGEST, PIECE, die_with_parent
from workloads.history.record import JobRecord
from workloads.history.recording import recording
from workloads.secrecy import Masker

JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Variable from which `ray.init` reads a submitted job's runtime environment (Ray 2.60: _private/worker.py)."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
STOPPING = (signal.SIGTERM, signal.SIGINT)
END_POLL_S = 0.1


def job_config(variables: Mapping[str, str], working_dir: str | None = None) -> str:
    """Return the value of JOB_CONFIG with more variables, and another working directory if given."""
    config = json.loads(os.environ.get(JOB_CONFIG) or "{}")
    runtime = config.get("runtime_env") or {}
    own: dict[str, object] = {"env_vars": (runtime.get("env_vars") or {}) | dict(variables)}
    if working_dir is not None:
        own["working_dir"] = working_dir
    config["runtime_env"] = runtime | own
    return json.dumps(config)


@contextmanager
def child(
    command: Sequence[str], signals: Sequence[int], send: Callable[[subprocess.Popen[Any], int], None], **options: Any
) -> Iterator[subprocess.Popen[Any]]:
    """Start a child (`options` of Popen) that gets these signals of this process, the later ones by `send`."""
    early: list[int] = []
    handlers: list[Callable[[int], None]] = [early.append]
    before = {number: signal.signal(number, lambda number, _: handlers[-1](number)) for number in signals}
    try:
        process = subprocess.Popen(command, **options)
        handlers.append(partial(send, process))
        for number in early:
            process.send_signal(number)
        yield process
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_masked(
    command: Sequence[str],
    environment: Mapping[str, str],
    masker: Masker,
    record: JobRecord | None = None,
    *,
    folder: str | None = None,
    of_ray: bool | None = None,
) -> int:
    """Run a command to its end, pass on its output without secrets, and return its exit code, 128 + N after a signal.

    With a record, the storage keeps the same output.

    Each signal reaches it once: Ray sends one to every process of a job (dashboard/modules/job/job_supervisor.py,
    2.60), others to this process or its process group, which the command then does not share.

    Args:
        folder: Where it runs; None for the current folder.
        of_ray: Whether Ray signals it; None for whether the environment is that of a job of Ray.

    Raises OSError if it cannot run.
    """
    of_ray, stopped = JOB_CONFIG in os.environ if of_ray is None else of_ray, False

    def send(process: subprocess.Popen[bytes], number: int) -> None:
        nonlocal stopped
        stopped = stopped or number in STOPPING
        if not of_ray:
            os.killpg(process.pid, number)

    with recording(record) as keeper:
        with child(
            command, SIGNALS, send, env=environment, bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=not of_ray, preexec_fn=die_with_parent, cwd=folder,
        ) as process:  # fmt: skip
            for lines in _lines(process):
                text = masker.text(lines)
                keeper.write(text.encode(errors="replace"))
                sys.stdout.write(text)
                sys.stdout.flush()
            code = process.wait()
        code = code if code >= 0 else 128 - code
        keeper.end(code, stopped=stopped)
    return code


def _lines(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """Yield the lines of a process until its end, several at once; a line of more than LONGEST bytes in parts.

    A carriage return, as of a progress bar, ends a line too. What a descendant writes after the end is lost.
    """
    assert process.stdout is not None
    descriptor, rest = process.stdout.fileno(), b""
    while True:
        ended = process.poll() is not None
        if select.select([descriptor], [], [], 0 if ended else END_POLL_S)[0]:
            data = os.read(descriptor, PIECE)
        elif ended:
            data = b""
        else:
            continue
        rest += data
        end = len(rest) if not data or len(rest) > LONGEST else max(rest.rfind(b"\n"), rest.rfind(b"\r")) + 1
        whole, rest = rest[:end], rest[end:]
        if whole:
            yield whole.decode(errors="replace")
        if not data:
            return
