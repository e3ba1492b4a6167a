"""A real Slurm on this machine: slurmctld, munged, and slurmd on nodes made of namespaces, each with its own address.

    with Slurm(folder, nodes=3, users=("alice", "bob")) as slurm:
        slurm.run(["sinfo"])

Debian's `slurm-wlm` and `munge` (22.05), as root on Linux. Configuration, key, socket, state and ports are the
cluster's own; nothing of it is in /etc or /run of this machine. Everything ends with its owner, even after SIGKILL
(`tools.process`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from tools.kubernetes.containers import Missing
from tools.kubernetes.node_machine import Machine, bind, identity_of
from tools.kubernetes.node_network import Network
from tools.kubernetes.node_probe import NOT_READY
from tools.process import ProgramEnded, plain_environment
from tools.slurm import programs

_READY_S = 240.0
FIRST_UID = 100_000  # above what distributions and directories use; each cluster of this machine has 16 of its own


class Slurm:
    """See the module docstring. `login` is the machine of slurmctld, from which users submit.

    Args:
        folder: Folder of its files, which every node sees.
        users: Names of users that exist on its machines only, each with a home in `folder`.
        timeout_s: Seconds after which a node that does not answer is DOWN (SlurmdTimeout).
    """

    def __init__(self, folder: Path, *, nodes: int, cpus: int, users: Sequence[str], timeout_s: int = 60) -> None:
        self.folder = folder.resolve()
        self.nodes: dict[str, Machine] = {}
        self._names = [f"n{index}" for index in range(nodes)]
        self._cpus, self._timeout_s = cpus, timeout_s
        first = FIRST_UID + 16 * int(identity_of(self.folder), 16)
        self.uids = {name: first + index for index, name in enumerate(users)}
        self._cleanup = contextlib.ExitStack()
        self.environment = plain_environment() | {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": programs.PATH}

    def __enter__(self) -> Slurm:
        with self._cleanup:
            self._start()
            self._cleanup = self._cleanup.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def home(self, user: str) -> Path:
        return self.folder / user

    def as_user(self, user: str, argv: Sequence[str]) -> list[str]:
        """Return a command line on the login machine as a user, in the user's home folder."""
        uid = self.uids[user]
        switch = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        words = ["env", f"--chdir={self.home(user)}", f"HOME={self.home(user)}", f"USER={user}", *argv]
        return self.login.inside([*switch, *words], spaces=("net", "mount", "uts"))

    def run(
        self, argv: Sequence[str], *, user: str | None = None, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the login machine, as root or a user."""
        command = self.as_user(user, argv) if user else self.login.inside(argv, spaces=("net", "mount", "uts"))
        environment = self.environment | dict(variables or {})
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)

    def until(self, what: str, condition: Callable[[], object], within_s: float = _READY_S) -> None:
        """Wait for a condition. TimeoutError names it."""
        deadline = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not after {within_s:.0f} s: {what}")
            time.sleep(0.1)

    def _start(self) -> None:
        logs = self.folder / "logs"
        for name in ("state", "munge", *(f"spool-{node}" for node in self._names)):
            (self.folder / name).mkdir(parents=True)
        self._cleanup.callback(self._remove_files)
        identity = identity_of(self.folder)
        network = self.network = Network(self.folder, logs, identity)
        self._cleanup.callback(network.stop)
        mounts = self._mounts()
        machines = [*self._names, "login"]
        for index, name in enumerate(machines):
            machine = Machine(name, logs, identity=identity, mounts=mounts)
            self._cleanup.callback(machine.stop)
            network.join(machine, index)
            self.nodes[name] = machine
        self.login = self.nodes.pop("login")
        addresses = {name: network.address(index) for index, name in enumerate(machines)}
        (self.folder / "slurm.conf").write_text(
            programs.configuration(self.folder, addresses, self._cpus, self._timeout_s)
        )
        (self.folder / "gres.conf").write_text(programs.gpus(self.folder))
        self._start_munge(self.login)
        self.login.start("slurmctld", ["slurmctld", "-D"], self.environment)
        # A slurmd that does not find it repeats after 20 s.
        self.until("slurmctld", lambda: "UP" in self.run(["scontrol", "ping"]).stdout)
        for name in self._names:
            self.start_node(name)
        idle = ["sinfo", "--noheader", "--states=idle", "--format=%D"]
        self.until("all nodes idle", lambda: self.run(idle).stdout.strip() == str(len(self._names)))

    def start_node(self, name: str) -> None:
        """Start the slurmd of a node."""
        self.nodes[name].start("slurmd", ["slurmd", "-D", "-N", name], self.environment)

    def _start_munge(self, machine: Machine) -> None:
        key = self.folder / "munge" / "key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        own = {name: self.folder / "munge" / name for name in ("pid-file", "log-file", "seed-file")}
        files = {"key-file": key, "socket": self.folder / "munge.socket", **own}
        flags = [f"--{name}={path}" for name, path in files.items()]
        # It trusts no folder below one that others can write, such as /tmp.
        machine.start("munged", ["munged", "--foreground", "--force", *flags], self.environment)
        self.until("munged", (self.folder / "munge.socket").exists)

    def _mounts(self) -> list[list[str]]:
        """Return the machines' own users, no name server, and the interpreter where users may read it."""
        # This machine's is out of their reach: each lookup of gloo or Ray would wait for seconds.
        (self.folder / "resolv.conf").write_text("")
        mounts = [bind(self.folder / "resolv.conf", str(Path("/etc/resolv.conf").resolve()))]
        for file, line in (("passwd", "{name}:x:{uid}:{uid}::{home}:/bin/bash"), ("group", "{name}:x:{uid}:")):
            lines = [line.format(name=name, uid=uid, home=self.home(name)) for name, uid in self.uids.items()]
            (self.folder / file).write_text("\n".join([Path("/etc", file).read_text().strip(), *lines, ""]))
            mounts.append(bind(self.folder / file, f"/etc/{file}"))
        for name, uid in self.uids.items():
            self.home(name).mkdir(mode=0o700)
            os.chown(self.home(name), uid, uid)
        return [*mounts, *_readable(Path(sys.base_prefix))]

    def _remove_files(self) -> None:
        # Of jobs that ran until now.
        for place in in_tmp(self.uids.values(), "rdma-ray-slurm-*"):
            # rmtree waits for a FIFO (CPython 3.11).
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place, ignore_errors=True)
            else:
                place.unlink(missing_ok=True)
        for entry in self.folder.iterdir():
            if entry.name != "logs":
                shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink()


def in_tmp(uids: Collection[int], pattern: str = "*") -> list[Path]:
    """Return the files of users in /tmp, which the machines share with this one and its other programs."""
    folders = []
    for path in Path("/tmp").glob(pattern):
        with contextlib.suppress(FileNotFoundError):  # of another program, which has removed it meanwhile
            if path.stat(follow_symlinks=False).st_uid in uids:
                folders.append(path)
    return folders


def _readable(place: Path) -> list[list[str]]:
    """Return mounts that let other users reach a folder whose parent only root can enter, such as /root."""
    closed = next((each for each in reversed(place.parents) if not each.stat().st_mode & 0o001), None)
    if closed is None:
        return []
    return [
        bind(place, "/mnt"),
        ["-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(closed)],
        ["-o", "X-mount.mkdir", "--bind", "/mnt", str(place)],
    ]


def ready_to_run() -> None:
    """Raise Missing, with the requirements, if no Slurm can run here: it creates and removes a small machine."""
    programs.found()
    with tempfile.TemporaryDirectory(prefix="rdma-ray-slurm-probe-") as name:
        try:
            Machine("probe", Path(name), identity=identity_of(Path(name)), mounts=[bind(Path(name), "/mnt")]).stop()
        except ProgramEnded as problem:
            raise Missing(f"{programs.NEEDS}: root cannot create a machine of namespaces here: {problem}") from None


if __name__ == "__main__":
    try:
        ready_to_run()
    except Missing as missing:
        print(missing, flush=True)
        sys.exit(NOT_READY)
