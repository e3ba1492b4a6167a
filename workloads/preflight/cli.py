"""The clouds' command lines as pre-flight asks them: reads only, as JSON, each within `ANSWER_S` seconds.

Whatever goes wrong ends in `NoAnswerError` with its reason: no command, no credentials, no right, too many requests, an
old version, no answer in time, or an answer that is not JSON.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any

from infra.terminal import printable
from workloads.secrecy import redacted
from workloads.temporary import temporary_file

ANSWER_S = 20.0
LONGEST = 300
"""Characters of a command's error that an answer repeats."""


class NoAnswerError(Exception):
    """A question has no answer: why, what helps, and how it was asked. `kind` is a key of `Cli.fixes`."""

    def __init__(self, kind: str, reason: str, fix: str, asked: str) -> None:
        super().__init__(reason)
        self.kind, self.reason, self.fix, self.asked = kind, reason, fix, asked


@dataclass(frozen=True, kw_only=True)
class Cli:
    """A cloud's command line.

    Args:
        program: Its name on PATH.
        fixes: What helps, by kind: `missing`, `signed-out`, `denied`, `throttled`, `old`, `slow`, `broken`.
        errors: Pattern of the error text of each kind that the command reports itself.
        reasons: What an answer says instead of the command's own text, by kind.
        incomplete: Pattern of what it says on stderr when it exits with 0 although a part is missing.
        environment: Variables that make its output the same for everybody.
    """

    program: str
    fixes: Mapping[str, str]
    errors: Mapping[str, re.Pattern[str]]
    reasons: Mapping[str, str] = field(default_factory=dict)
    incomplete: re.Pattern[str] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def ask(self, *arguments: str, answer_s: float | None = None) -> Any:
        """Return the parsed JSON that a command prints. Raises NoAnswerError.

        Args:
            answer_s: Seconds to wait for the answer; None for `ANSWER_S`.
        """
        out = self.read(*arguments, answer_s=ANSWER_S if answer_s is None else answer_s)
        return self.parsed(out, shlex.join([self.program, *arguments]))

    def read(self, *arguments: str, answer_s: float, largest: int | None = None) -> bytes:
        """Return what a command prints. Raises NoAnswerError.

        Args:
            largest: Bytes of the largest file that it may write, of which its output is one; None for no limit.
        """
        asked = shlex.join([self.program, *arguments])
        program = shutil.which(self.program)
        if program is None:
            raise self._no_answer("missing", f"there is no {self.program} on PATH", asked)
        file = None if largest is None else temporary_file()
        limits = (largest or 0, largest or 0)
        try:
            process = subprocess.Popen(
                [program, *arguments],
                env={**os.environ, "LC_ALL": "C.UTF-8", **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=file or subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=None if largest is None else partial(resource.setrlimit, resource.RLIMIT_FSIZE, limits),
            )
        except OSError as error:
            raise self._no_answer("broken", f"{self.program} does not run: {error.strerror}", asked) from None
        _running.add(process)
        try:
            out, err = process.communicate(timeout=answer_s)
        except subprocess.TimeoutExpired:
            raise self._no_answer("slow", f"no answer within {answer_s:g} s", asked) from None
        finally:
            _kill(process)
            process.wait()
            _running.discard(process)
        said = err.decode(errors="replace")
        if process.returncode:
            raise self._refusal(said, process.returncode, asked)
        if self.incomplete is not None and self.incomplete.search(said):
            raise self._no_answer("incomplete", _line(said), asked)
        if file is None:
            return out
        with file:
            file.seek(0)
            return file.read()

    def parsed(self, out: bytes, asked: str) -> Any:
        """Return the JSON of an answer. Raises NoAnswerError."""
        try:
            return json.loads(out)
        except (ValueError, RecursionError):
            raise self._no_answer("broken", "the answer is not JSON", asked) from None

    def _refusal(self, said: str, status: int, asked: str) -> NoAnswerError:
        kind = next((kind for kind, pattern in self.errors.items() if pattern.search(said)), "broken")
        return self._no_answer(
            kind, self.reasons.get(kind) or _line(said) or f"{self.program} failed with exit status {status}", asked
        )

    def _no_answer(self, kind: str, reason: str, asked: str) -> NoAnswerError:
        return NoAnswerError(kind, reason, self.fixes[kind], asked)


class Once:
    """A command line that runs each command once. Questions in several threads share its answer, or its refusal."""

    def __init__(self, cli: Cli) -> None:
        self._cli = cli
        self._answers: dict[tuple[str, ...], Future[Any]] = {}
        self._lock = Lock()

    def ask(self, *arguments: str) -> Any:
        """Return the parsed JSON that a command prints. Raises NoAnswerError."""
        with self._lock:
            first = arguments not in self._answers
            answer = self._answers.setdefault(arguments, Future())
        if first:
            try:
                answer.set_result(self._cli.ask(*arguments))
            except BaseException as error:
                answer.set_exception(error)
        return answer.result()


_running: set[subprocess.Popen[bytes]] = set()


def stop_commands() -> None:
    """Kill every command that has not answered."""
    for process in _running.copy():
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    # With its children: gcloud is a shell script that starts Python.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _line(said: str) -> str:
    """Return what a command says, on one line that is safe to print."""
    return printable(" ".join(redacted(said).split()))[:LONGEST]
