"""A machine made of namespaces: mounts, network, processes, host name and cgroups of its own on this kernel.

What runs in it ends with it, and with whoever made it, SIGKILL included (`node_guard`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from tools.kubernetes.programs import ProgramEnded

PREFIX = "rdma-ray"
"""How everything of ours on the machine is called that has a name outside its namespaces."""


def identity_of(folder: Path) -> str:
    """What tells the cluster in this folder from others in names: short, as it is part of a link's name."""
    return hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:6]


_GUARD = Path(__file__).with_name("node_guard.py")
_READY_S = 30.0
_GONE_S = 60.0
_TOLD_LINES = 15


class Machine:
    """One machine, called `name` inside; `mounts` as `node_guard` takes them; `remove` are folders that go with it."""

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
        self._meant: set[str] = set()
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
            self._guard = subprocess.Popen(
                [sys.executable, "-I", str(_GUARD), json.dumps(spec)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                text=True,
            )
        try:
            threading.Thread(target=self._listen, name=f"machine {name}", daemon=True).start()
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def start(self, program: str, argv: Sequence[str | Path], environment: Mapping[str, str]) -> None:
        """Start a program inside; its log is NAME-PROGRAM.log."""
        self._ended.pop(program, None)
        self._meant.discard(program)
        log = self._logs / f"{self.name}-{program}.log"
        self._order(start=program, argv=[str(each) for each in argv], env=dict(environment), log=str(log))

    def end(self, program: str, *, kill: bool = False) -> None:
        """Ask a program inside to end."""
        self._meant.add(program)
        self._order(stop=program, kill=kill)

    def check(self) -> None:
        """Raise ProgramEnded if the machine, or a program in it that was not told to, has ended."""
        for program, status in dict(self._ended).items():
            if program not in self._meant:
                raise ProgramEnded(
                    f"{program} on {self.name} ended with status {status}; the last lines of its log:\n"
                    f"{self.tail(program)}"
                )
        if (own := self._guard.poll()) is not None:
            raise ProgramEnded(f"the machine {self.name} ended with status {own}:\n{self.tail('machine')}")

    def run(self, argv: Sequence[str | Path], *, spaces: Sequence[str] = ("net",)) -> str:
        """Run a command from outside in some of the machine's namespaces; returns what it printed.

        Raises RuntimeError with what it said when it fails.
        """
        command = [*self.entering(*spaces), *map(str, argv)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode:
            words = " ".join(map(str, argv))
            raise RuntimeError(f"on {self.name}: {words}: {(done.stderr or done.stdout).strip()[-2000:]}")
        return done.stdout

    def entering(self, *spaces: str) -> list[str]:
        """The beginning of a command that runs in these namespaces of the machine ("net", "mount", "uts")."""
        return ["nsenter", f"--target={self.pid}", *(f"--{space}" for space in spaces), "--"]

    def tail(self, program: str) -> str:
        """The last lines of a program's log."""
        try:
            lines = (self._logs / f"{self.name}-{program}.log").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return "(no log)"
        return "\n".join(lines[-_TOLD_LINES:])

    def release(self) -> None:
        """Let everything in the machine end, without waiting for it. May be called twice."""
        if self._guard.stdin and not self._guard.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._guard.stdin.close()

    def stop(self) -> None:
        """End everything in the machine and wait until nothing is left of it. May be called twice."""
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
            raise ProgramEnded(f"the machine {self.name} could not be made:\n{self.tail('machine')}")
        # The guard's child is `unshare`, whose child is the machine's first process.
        [unshare] = psutil.Process(self._guard.pid).children()
        [first] = unshare.children()
        self.pid = first.pid

    def _listen(self) -> None:
        assert self._guard.stdout is not None
        for line in self._guard.stdout:
            word: dict[str, Any] = json.loads(line)
            if "ready" in word:
                self._ready.put(True)
            else:
                self._ended[word["ended"]] = word["status"]
        self._ready.put(False)

    def _order(self, **order: object) -> None:
        assert self._guard.stdin is not None
        try:
            self._guard.stdin.write(json.dumps(order) + "\n")
            self._guard.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise ProgramEnded(f"the machine {self.name} has ended:\n{self.tail('machine')}") from None


def bare_environment() -> dict[str, str]:
    """What a program inside inherits: no proxy, no kubeconfig, no credential of the user."""
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": os.environ.get("PATH", path), "HOME": "/root", "LANG": "C.UTF-8"}
