"""A machine made of namespaces: its own mounts, network, processes, host name and cgroups on this kernel.

Its programs end with it, and it ends with its owner, however the owner ends (`node_guard`).
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from tools.process import ProgramEnded, release, start_guard, tail

PREFIX = "rdma-ray"
"""Prefix of all names that are visible outside the namespaces."""

_GUARD = Path(__file__).with_name("node_guard.py")
_READY_S = 30.0
_GONE_S = 60.0


def identity_of(folder: Path) -> str:
    """Return what distinguishes the names of the cluster in this folder; short, as it is part of a link's name."""
    return hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:6]


class Machine:
    """One machine with the host name `name`.

    Args:
        logs: Folder of its logs, NAME-machine.log and NAME-PROGRAM.log.
        identity: Part of its names outside the namespaces.
        mounts: As `node_guard` takes them.
        remove: Folders to delete at its end.
        cgroups: Give it cgroups of its own.
    """

    def __init__(
        self,
        name: str,
        logs: Path,
        *,
        identity: str,
        mounts: Sequence[Sequence[str]] = (),
        remove: Sequence[Path] = (),
        cgroups: bool = False,
    ) -> None:
        self.name = name
        self._logs = logs
        self._ended: dict[str, int] = {}
        self._stopped: set[str] = set()
        self._ready: queue.Queue[bool] = queue.Queue()
        spec = {
            "name": f"{PREFIX}-{identity}-{name}",
            "hostname": name,
            "cgroups": cgroups,
            "mounts": [list(mount) for mount in mounts],
            "remove": [str(path) for path in remove],
        }
        logs.mkdir(parents=True, exist_ok=True)
        with (logs / f"{name}-machine.log").open("ab") as log:
            self._guard = start_guard(_GUARD, json.dumps(spec), errors=log)
        try:
            threading.Thread(target=self._listen, name=f"machine {name}", daemon=True).start()
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def start(self, program: str, argv: Sequence[str | Path], environment: Mapping[str, str]) -> None:
        """Start a program inside."""
        self._ended.pop(program, None)
        self._stopped.discard(program)
        log = self._logs / f"{self.name}-{program}.log"
        self._order(start=program, argv=[str(each) for each in argv], env=dict(environment), log=str(log))

    def end(self, program: str, *, kill: bool = False) -> None:
        """Send SIGTERM, or SIGKILL, to a program inside."""
        self._stopped.add(program)
        self._order(stop=program, kill=kill)

    def check(self) -> None:
        """Raise ProgramEnded if the machine has ended, or a program in it that was not stopped."""
        for program, status in dict(self._ended).items():
            if program not in self._stopped:
                last = f"the last lines of its log:\n{self.tail(program)}"
                raise ProgramEnded(f"{program} on {self.name} ended with status {status}; {last}")
        if (status_ := self._guard.poll()) is not None:
            raise ProgramEnded(f"the machine {self.name} ended with status {status_}:\n{self.tail('machine')}")

    def run(self, argv: Sequence[str | Path], *, spaces: Sequence[str] = ("net",)) -> str:
        """Run a command from outside in namespaces of the machine. Returns its output; raises RuntimeError with it."""
        done = subprocess.run([*self.entering(*spaces), *map(str, argv)], capture_output=True, text=True, timeout=120)
        if done.returncode:
            output = (done.stderr or done.stdout).strip()[-2000:]
            raise RuntimeError(f"on {self.name}: {' '.join(map(str, argv))}: {output}")
        return done.stdout

    def entering(self, *spaces: str) -> list[str]:
        """Return the beginning of a command that runs in these namespaces ("net", "mount", "uts")."""
        return ["nsenter", f"--target={self.pid}", *(f"--{space}" for space in spaces), "--"]

    def tail(self, program: str) -> str:
        """Return the last lines of a program's log."""
        return tail(self._logs / f"{self.name}-{program}.log")

    def release(self) -> None:
        """Let everything in the machine end, without waiting for it. May be called twice."""
        release(self._guard)

    def stop(self) -> None:
        """End the machine and wait until nothing is left of it. May be called twice."""
        self.release()
        try:
            self._guard.wait(_GONE_S)
        except subprocess.TimeoutExpired:
            self._guard.send_signal(signal.SIGTERM)
            self._guard.wait()

    def _wait_until_ready(self) -> None:
        try:
            ready = self._ready.get(timeout=_READY_S)
        except queue.Empty:
            ready = False
        if not ready:
            raise ProgramEnded(f"the machine {self.name} could not be created:\n{self.tail('machine')}")
        # The guard's child is `unshare`, whose child is the machine's first process.
        [unshare] = psutil.Process(self._guard.pid).children()
        [first] = unshare.children()
        self.pid = first.pid

    def _listen(self) -> None:
        assert self._guard.stdout is not None
        for line in self._guard.stdout:
            message: dict[str, Any] = json.loads(line)
            if "ready" in message:
                self._ready.put(True)
            else:
                self._ended[message["ended"]] = message["status"]
        self._ready.put(False)

    def _order(self, **order: object) -> None:
        assert self._guard.stdin is not None
        try:
            self._guard.stdin.write(json.dumps(order) + "\n")
            self._guard.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise ProgramEnded(f"the machine {self.name} has ended:\n{self.tail('machine')}") from None


def bare_environment() -> dict[str, str]:
    """Return the environment of a program inside: no proxy, no kubeconfig, no credential of the user."""
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": os.environ.get("PATH", path), "HOME": "/root", "LANG": "C.UTF-8"}
