"""One node of the cluster on an allocation of Slurm: starts Ray there, watches it, and leaves nothing of it behind.

    python -m workloads.slurm.node FOLDER WAIT_S MACHINE FABRIC [COMMAND …]

`job.sh` runs it on each node. FOLDER is the job's, which all nodes see: `token`, `nodes` (a name and an address in each
line), and what the first node adds: `head.json`, and `outputs.json` once all nodes have joined. The first node
(SLURM_PROCID 0) is Ray's head, a worker as well, and runs COMMAND.

It does not use `ray symmetric-run` (docs/slurm.md), which accepts no other Ray on its nodes, ends every Ray of the
user, counts dead nodes, and exits with 0 when Ray does not start (ray: scripts/symmetric_run.py, 2.60, read 2026-11).
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from workloads import temporary
from workloads.gang.guard import PRCTL, SUBREAPER, die_with_parent, kill_descendants
from workloads.rendezvous import select_interface
from workloads.slurm import facts, head
from workloads.slurm.members import ImpostorError, Link, Members

TEMPORARY = facts.TEMPORARY
PLACE = "rdma-ray-slurm-"  # without user and job: the paths of sockets are below it
LOCK = "lock"
POLL_S = 0.2
START_POLL_S = 1.0  # of Ray's state, and of the shared file system
SIGNAL_S = 1.0
GRACE_S = 10.0
"""Seconds between SIGTERM and SIGKILL for the command. Slurm gives a job 30 by default (KillWait)."""
ATTEMPTS = 3
TOO_SLOW = "The current node timed out during startup"
"""Message of Ray when a node took more than 30 s to register, as on a busy machine. It has no setting for it (ray:
_private/node.py, 2.60, read 2026-11); this node tries again until its own time limit."""
LINES = 12  # of Ray's log to show
_COLOR = re.compile(r"\x1b\[[0-9;]*m")


class Stop(Exception):  # noqa: N818
    """The end of this node: its exit code, and the reason for the job's log."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(reason)
        self.code = code


class SlurmNode:
    """This node. `run` returns its exit code.

    Args:
        folder: The job's folder.
        place: Folder of this node, for Ray's sockets and logs.
        machine: Machine type of the nodes; "" if it is not known.
        fabric: Network between machines of this type, as in `infra/outputs.py`; empty if it is not known.
    """

    def __init__(self, folder: Path, place: Path, wait_s: float, machine: str, fabric: Mapping[str, Any]) -> None:
        self.folder, self.place, self.deadline = folder, place, time.monotonic() + wait_s
        self.wait_s, self.machine, self.fabric = wait_s, machine, fabric
        self.name = os.environ["SLURMD_NODENAME"]
        with temporary.opened(folder):
            pass  # the job's script created it, and no other user can have changed it
        self.nodes = dict(line.split() for line in (folder / "nodes").read_text().splitlines())
        self.address = facts.resolve(self.nodes[self.name])
        self.token = (folder / "token").read_text()
        self.environment = facts.environment(os.environ, folder, place)
        select_interface(self.address, self.environment)
        self.signal = 0
        self.contained = "RDMA_RAY_CONTAINED" in os.environ
        """Whether standard input is a pipe that ends with the job (`contained` in job.sh)."""
        self.ray: subprocess.Popen[bytes] | None = None
        self.process: subprocess.Popen[bytes] | None = None
        """The command, on the first node."""

    def run(self, command: Sequence[str]) -> int:
        """Act as the head or a worker until the end of the cluster."""
        for warning in facts.warnings(os.environ):
            say(f"{self.name}: {warning}")
        try:
            if os.environ.get("SLURM_PROCID") == "0":
                self._head(command)
            else:
                self._worker()
        except Stop as stop:
            if str(stop):
                say(str(stop))
            return stop.code
        return 0

    def _head(self, command: Sequence[str]) -> None:
        with Members(self.address, self.token, self.nodes, say) as members:
            cluster = self._start_head()
            write(self.folder / "head.json", {"gcs": cluster.gcs, "members": members.port, "address": self.address})
            joined = members.seen
            while missing := sorted(set(self.nodes) - (alive := cluster.alive()).keys()):
                why = [f"{name} ({'its Ray does not join' if name in joined else 'not started'})" for name in missing]
                self._wait(members, f"missing {', '.join(why)}: not all nodes joined")
            described = cluster.outputs(self.folder, alive, self.machine, self.fabric)
            write(self.folder / "outputs.json", described)
            say(f"Ray runs on {len(self.nodes)} nodes: {', '.join(self.nodes)}; outputs {self.folder / 'outputs.json'}")
            if command:
                environment = self.environment | head.entry_environment(described, cluster.gcs, self.place)
                with _own_words(command[0]):
                    self.process = subprocess.Popen(command, env=environment, start_new_session=True)
            try:
                while self.process is None or self.process.poll() is None:
                    self._check(members)
                    time.sleep(POLL_S)
            finally:
                if self.process is not None:
                    end(self.process)
            code = int(self.process.returncode)
            raise Stop(code if code >= 0 else 128 - code)

    def _worker(self) -> None:
        found = self.folder / "head.json"
        while not found.exists():
            self._wait(None, f"{self.name}: the head did not start")
        cluster = json.loads(found.read_text())
        with self._link(cluster["address"], cluster["members"]) as link:
            for attempt in itertools.count(1):
                ray = self._start_ray([f"--address={cluster['gcs']}"])
                while not link.closed(POLL_S):
                    if ray.poll() is not None and not (self.folder / "outputs.json").exists() and self._again(attempt):
                        break
                    self._check(None)
                else:
                    return
                kill_descendants(reap)

    def _link(self, address: str, port: int) -> Link:
        while True:
            try:
                return Link(address, port, self.name, self.token)
            except ImpostorError as error:
                raise Stop(1, f"{self.name}: refused {address}:{port} as the first node: {error}") from None
            except OSError as error:
                self._wait(None, f"{self.name}: the first node does not answer at {address}:{port} ({error})")

    def _start_head(self) -> head.Cluster:
        """Start Ray's head. Another job may take a port between the moment it is found free and Ray's start."""
        for attempt in itertools.count(1):
            cluster = head.Cluster(self.address, self.token, self.nodes, self.place / "ray")
            self.environment |= cluster.variables
            ray = self._start_ray(cluster.arguments)
            while self.name not in cluster.alive():
                try:
                    self._wait(None, f"Ray's head on {self.name} does not answer")
                except Stop:
                    if ray.poll() is None or self.signal or not self._again(attempt):
                        raise
                    break
            else:
                return cluster
            kill_descendants(reap)
        raise AssertionError

    def _start_ray(self, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", head.START, "start", "--block", f"--node-name={self.name}"]
        command += [f"--temp-dir={self.place / 'ray'}", f"--node-ip-address={self.address}", "--disable-usage-stats"]
        # By default the workers' ports are a fixed range, which another Ray on this node would share.
        command += ["--min-worker-port=0", "--max-worker-port=0", f"--dashboard-agent-listen-port={facts.free_port()}"]
        command += [*facts.resources(os.environ), *arguments]
        with (self.place / "ray.log").open("wb") as log:
            self.ray = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.place,
                preexec_fn=die_with_parent,
            )  # fmt: skip
        return self.ray

    def _check(self, members: Members | None) -> None:
        """Raise Stop at a signal, when this node's Ray has ended, and when another node is lost or did not start."""
        reap({process.pid for process in (self.ray, self.process) if process is not None})
        if self.signal:
            raise Stop(128 + self.signal)
        if self.contained and select.select([0], [], [], 0)[0] and not os.read(0, 1):
            raise Stop(1, f"node {self.name}: Slurm has killed the client of its container")
        if self.ray is not None and self.ray.poll() is not None:
            raise Stop(1, f"node {self.name}: its Ray ended with status {self.ray.returncode}:\n{self._tail()}")
        if members is not None and (lost := members.lost()):
            # A signal of Slurm reaches the nodes one after the other.
            time.sleep(SIGNAL_S)
            if self.signal:
                raise Stop(128 + self.signal)
            raise Stop(1, f"node {lost} is lost: its process ended, or it does not answer")

    def _wait(self, members: Members | None, late: str) -> None:
        """Pause in the start of the cluster. Raise Stop with `late` at the time limit, and when any node failed."""
        self._check(members)
        for failed in {path.name.removeprefix("failed-") for path in self.folder.glob("failed-*")} & self.nodes.keys():
            raise Stop(1, f"node {failed} did not start: its message is above")
        if not self.folder.exists():
            raise Stop(1)  # the head has ended, and has said why
        if time.monotonic() > self.deadline:
            raise Stop(1, f"{late} within {self.wait_s:g} s (--wait)")
        time.sleep(START_POLL_S)

    def _again(self, attempt: int) -> bool:
        """Return whether a Ray that has ended while it started gets another attempt."""
        slow = TOO_SLOW in self._tail()
        if time.monotonic() > self.deadline or not (attempt < ATTEMPTS or slow):
            return False
        say(f"{self.name}: Ray {'was too slow' if slow else 'ended'} at its start, and starts again")
        return True

    def _tail(self) -> str:
        """Return the end of Ray's log, without what it prints about its state."""
        lines = _COLOR.sub("", (self.place / "ray.log").read_text(errors="replace")).splitlines()
        return "\n".join([line for line in lines if line.strip() and "[state-dump]" not in line][-LINES:])


@contextlib.contextmanager
def own_place() -> Iterator[Path]:
    """Create this node's folder, and remove it at the end.

    Also remove folders of the user's earlier jobs whose process was killed: nothing holds their lock.
    """
    for left in temporary.own_folders(TEMPORARY, PLACE):
        with contextlib.suppress(OSError), temporary.opened(left) as folder, temporary.locked(folder, LOCK):
            temporary.remove(left, folder)
    kept = False
    while not kept:
        place = Path(tempfile.mkdtemp(prefix=PLACE, dir=TEMPORARY))
        with temporary.opened(place) as folder, (place / LOCK).open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Before the lock, another job that starts may have removed the folder as that of a killed process.
            if kept := os.fstat(lock.fileno()).st_nlink > 0:
                try:
                    (place / "tmp").mkdir()
                    yield place
                finally:
                    temporary.remove(place, folder)


def reap(children: Collection[int] = ()) -> None:
    """Wait for orphans that have ended: as a subreaper, this process inherits them. `children` have their own wait."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid not in children:
            os.waitpid(ended.si_pid, 0)


def end(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to a command's process group, and SIGKILL after the grace."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
            return


@contextlib.contextmanager
def _own_words(program: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise Stop(127, f"COMMAND: there is no program {program!r} on the first node") from None
    except PermissionError:
        raise Stop(126, f"COMMAND: {program!r} cannot be executed on the first node") from None


def write(path: Path, document: object) -> None:
    """Write a file that another node sees complete or not at all; only the user can read it.

    Unlike `results.write_file`, it does not create the folder again that the end of the job removed.
    """
    draft = path.with_name(f".{path.name}")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(document))
    draft.rename(path)


def say(text: str) -> None:
    print(f"rdma-ray: {text}", flush=True)


def main(folder: str, wait_s: str, machine: str, fabric: str, *command: str) -> int:
    """Run this node to its end, and return its exit code."""
    noted: list[int] = []
    nodes: list[SlurmNode] = []

    def note(number: int, _frame: object) -> None:
        noted.append(number)
        for node in nodes:
            node.signal = number

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, note)
    PRCTL(SUBREAPER, 1, 0, 0, 0)
    os.umask(0o077)
    try:
        with own_place() as place:
            nodes.append(node := SlurmNode(Path(folder), place, float(wait_s), machine, json.loads(fabric)))
            node.signal = noted[0] if noted else 0
            try:
                return node.run(command)
            finally:
                kill_descendants(reap)  # before its folder goes
    except OSError as error:
        # A canceled job has no folder any more, a name no address, a disk no space.
        say(f"{os.environ['SLURMD_NODENAME']}: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
