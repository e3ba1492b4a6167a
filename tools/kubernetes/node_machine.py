"""A machine made of namespaces: its own mounts, network, processes, host name and cgroups on this kernel.

Its programs end with it, and it ends with its owner, even if the owner is killed (`node_guard`).
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

from tools.process import Programs

PREFIX = "rdma-ray"
"""Prefix of all names that are visible outside the namespaces."""

_GUARD = Path(__file__).with_name("node_guard.py")
_READY_S = 30.0


def bind(source: Path, place: Path | str) -> list[str]:
    """Return the mount of a file or folder at another place."""
    return ["--bind", str(source), str(place)]


def overlay(place: Path | str, scratch: Path) -> list[str]:
    """Return the mount that keeps changes of a folder in `scratch`/upper."""
    for name in ("upper", "work"):
        (scratch / name).mkdir(parents=True, exist_ok=True)
    options = f"lowerdir={place},upperdir={scratch / 'upper'},workdir={scratch / 'work'}"
    return ["-t", "overlay", "overlay", "-o", options, str(place)]


def identity_of(folder: Path) -> str:
    """Return a short id of the cluster in this folder, for the names of links."""
    return hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:6]


class Machine(Programs):
    """One machine with the host name `name`; its programs have the logs NAME-PROGRAM.log.

    Args:
        logs: Folder of its logs.
        identity: Part of its names outside the namespaces.
        mounts: Arguments of `mount` for each mount after an empty /run; see `bind` and `overlay`.
        remove: Folders to delete at its end.
        cgroups: Whether it has its own cgroups.
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
        spec = {
            "name": f"{PREFIX}-{identity}-{name}",
            "hostname": name,
            "cgroups": cgroups,
            "mounts": [["-t", "tmpfs", "tmpfs", "/run"], *map(list, mounts)],
            "remove": [str(path) for path in remove],
        }
        super().__init__(logs, prefix=name, command=[sys.executable, "-I", str(_GUARD), json.dumps(spec)])
        try:
            guard = self.open(_READY_S)
            # The guard's child is `unshare`, whose child is the machine's first process.
            [unshare] = psutil.Process(guard).children()
            [first] = unshare.children()
            self.pid = first.pid
        except BaseException:
            self.stop()
            raise

    def inside(self, argv: Sequence[str], *, spaces: Sequence[str] = ("net",)) -> list[str]:
        """Return a command line in namespaces of the machine ("net", "mount")."""
        return ["nsenter", f"--target={self.pid}", *(f"--{space}" for space in spaces), "--", *argv]

    def run(self, argv: Sequence[str], *, spaces: Sequence[str] = ("net",)) -> str:
        """Run a command in namespaces of the machine and return its output; see `run`."""
        return run(self.inside(argv, spaces=spaces), called=f"on {self.name}: {' '.join(argv)}")


def run(argv: Sequence[str], called: str = "") -> str:
    """Run a command and return its output.

    Raises:
        RuntimeError: The command failed. The message contains `called`, by default the command, and the output.
    """
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    if done.returncode:
        output = (done.stderr or done.stdout).strip()[-2000:]
        raise RuntimeError(f"{called or ' '.join(argv)}: {output}")
    return done.stdout
