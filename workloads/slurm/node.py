"""One node of the cluster on an allocation of Slurm: starts Ray there, watches it, and leaves nothing of it behind.

    python -m workloads.slurm.node FOLDER WAIT_S MACHINE FABRIC [COMMAND …]

`job.sh` runs it on each node. FOLDER is the job's, which all nodes see: `token`, `nodes` (a name and an address in each
line), and what the first node adds: `head.json`, and `outputs.json` once all nodes have joined. The first node
(SLURM_PROCID 0) is Ray's head, a worker as well, and runs COMMAND.

It does not use `ray symmetric-run` (docs/slurm.md), which accepts no other Ray on its nodes, ends every Ray of the
user, counts dead nodes, and exits with 0 when Ray does not start (ray: scripts/symmetric_run.py, 2.60, read 2026-11).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import json
import os
import re
import signal
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from infra.kubernetes.indexed_job_pod.link import BROKEN, Link, Members, Message, RefusedError, join
from infra.kubernetes.indexed_job_pod.part import OverError, Supervisor, exit_code
from workloads import temporary
from workloads.gang.guard import PRCTL, SUBREAPER, die_with_parent, kill_descendants
from workloads.rendezvous import select_interface
from workloads.slurm import facts, head

TEMPORARY = facts.TEMPORARY
PLACE = "rdma-ray-slurm-"  # without user and job: the paths of sockets are below it
LOCK = "lock"
REAP_S = 1.0
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


class SlurmNode(Supervisor):
    """This node. `run` returns its exit code.

    Args:
        folder: The job's folder.
        place: Folder of this node, for Ray's sockets and logs.
        machine: Machine type of the nodes; "" if it is not known.
        fabric: Network between machines of this type, as in `infra/outputs.py`; empty if it is not known.
    """

    def __init__(self, folder: Path, place: Path, wait_s: float, machine: str, fabric: Mapping[str, Any]) -> None:
        super().__init__()
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
        self.members: Members | None = None
        """The other nodes, on the first node."""
        self.rays: list[Process] = []

    async def run(self, command: Sequence[str]) -> int:
        """Be the head or a worker until the end of the cluster."""
        for warning in facts.warnings(os.environ):
            say(f"{self.name}: {warning}")
        self.background(self._reap())
        if "RDMA_RAY_CONTAINED" in os.environ:  # standard input is a pipe that ends with the job (job.sh)
            asyncio.get_running_loop().add_reader(0, self._input)
        try:
            await (self._head(command) if os.environ.get("SLURM_PROCID") == "0" else self._worker())
        except OverError as over:
            if str(over):
                say(str(over))
            return over.code
        finally:
            await self.stop(GRACE_S)
            if self.members is not None:
                await self.members.close()
            await self._kill()
        return 0

    async def _head(self, command: Sequence[str]) -> None:
        listener = facts.listen(self.address)
        self.members = Members(listener, self.token, self.nodes, self.folder.name, say, self._heard)
        cluster = await self._start_head()
        write(self.folder / "head.json", {"gcs": cluster.gcs, "members": self.members.port, "address": self.address})
        while missing := sorted(set(self.nodes) - (alive := await self._alive(cluster)).keys()):
            joined = self.members.links
            why = [f"{name} ({'its Ray does not join' if name in joined else 'not started'})" for name in missing]
            await self._pause(f"missing {', '.join(why)}: not all nodes joined")
        described = cluster.outputs(self.folder, alive, self.machine, self.fabric)
        write(self.folder / "outputs.json", described)
        say(f"Ray runs on {len(self.nodes)} nodes: {', '.join(self.nodes)}; outputs {self.folder / 'outputs.json'}")
        if not command:
            await self.unless_over(asyncio.Event().wait())
        environment = self.environment | head.entry_environment(described, cluster.gcs, self.place)
        with _own_words(command[0]):
            process = await self.start(*command, environment=environment, stdin=None)
        raise OverError(exit_code(await self.unless_over(process.wait())), "")

    async def _worker(self) -> None:
        found = self.folder / "head.json"
        while not found.exists():
            await self._pause(f"{self.name}: the head did not start")
        cluster = json.loads(found.read_text())
        link = await self._link(cluster["address"], cluster["members"])
        self.background(link.beat())
        gone = asyncio.ensure_future(_end_of(link))
        for attempt in itertools.count(1):
            ray = await self._start_ray([f"--address={cluster['gcs']}"])
            ended = asyncio.ensure_future(ray.wait())
            await self.unless_over(asyncio.wait({gone, ended}, return_when=asyncio.FIRST_COMPLETED))
            if gone.done():
                return
            if (self.folder / "outputs.json").exists() or not self._again(attempt):
                raise self._without_ray(ray)
            await self._kill()

    async def _link(self, address: str, port: int) -> Link:
        while True:
            try:
                return await self.unless_over(join(address, port, self.token, self.name, self.folder.name))
            except RefusedError as error:
                raise OverError(1, f"{self.name}: refused {address}:{port} as the first node: {error}") from None
            except BROKEN as error:
                why = str(error) or "no answer"
                await self._pause(f"{self.name}: the first node does not answer at {address}:{port} ({why})")

    async def _start_head(self) -> head.Cluster:
        """Start Ray's head. Another job may take a port between the moment it is found free and Ray's start."""
        for attempt in itertools.count(1):
            cluster = head.Cluster(self.address, self.token, self.nodes, self.place / "ray")
            self.environment |= cluster.variables
            ray = await self._start_ray(cluster.arguments)
            while ray.returncode is None:
                if self.name in await self._alive(cluster):
                    self.background(self._watch(ray))
                    return cluster
                await self._pause(f"Ray's head on {self.name} does not answer")
            if not self._again(attempt):
                raise self._without_ray(ray)
            await self._kill()
        raise AssertionError

    async def _alive(self, cluster: head.Cluster) -> dict[str, Mapping[str, float]]:
        return await self.unless_over(asyncio.to_thread(cluster.alive))

    async def _start_ray(self, arguments: Sequence[str]) -> Process:
        command = [sys.executable, "-c", head.START, "start", "--block", f"--node-name={self.name}"]
        command += [f"--temp-dir={self.place / 'ray'}", f"--node-ip-address={self.address}", "--disable-usage-stats"]
        # By default the workers' ports are a fixed range, which another Ray on this node would share.
        command += ["--min-worker-port=0", "--max-worker-port=0", f"--dashboard-agent-listen-port={facts.free_port()}"]
        command += [*facts.resources(os.environ), *arguments]
        with (self.place / "ray.log").open("wb") as log:
            ray = await asyncio.create_subprocess_exec(
                *command, env=self.environment, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.place, preexec_fn=die_with_parent,
            )  # fmt: skip
        self.rays.append(ray)
        return ray

    async def _watch(self, ray: Process) -> None:
        await ray.wait()
        over = self._without_ray(ray)
        self.end(over.code, str(over))

    def _without_ray(self, ray: Process) -> OverError:
        return OverError(1, f"node {self.name}: its Ray ended with status {ray.returncode}:\n{self._tail()}")

    def _heard(self, name: str, message: Message) -> None:
        if message["kind"] == "lost":
            # A signal of Slurm reaches the nodes one after the other.
            why = f"node {name} is lost: its process ended, or it does not answer"
            asyncio.get_running_loop().call_later(SIGNAL_S, self.end, 1, why)

    def _input(self) -> None:
        if not os.read(0, 1):
            asyncio.get_running_loop().remove_reader(0)
            self.end(1, f"node {self.name}: Slurm has killed the client of its container")

    async def _pause(self, late: str) -> None:
        """Pause in the start of the cluster. Raise OverError at the time limit, with `late`, and when a node failed."""
        for failed in {path.name.removeprefix("failed-") for path in self.folder.glob("failed-*")} & self.nodes.keys():
            raise OverError(1, f"node {failed} did not start: its message is above")
        if not self.folder.exists():
            raise OverError(1, "")  # the head has ended, and has said why
        if time.monotonic() > self.deadline:
            raise OverError(1, f"{late} within {self.wait_s:g} s (--wait)")
        await self.unless_over(asyncio.sleep(START_POLL_S))

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

    async def _reap(self) -> None:
        while True:
            self._reap_orphans()
            await asyncio.sleep(REAP_S)

    def _reap_orphans(self) -> None:
        """Wait for orphans that have ended: as a subreaper, this process inherits them. asyncio waits for its own."""
        own = {process.pid for process in (*self.processes, *self.rays) if process.returncode is None}
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid not in own:
                os.waitpid(ended.si_pid, 0)

    async def _kill(self) -> None:
        """Kill every process that this node has started, before its folder goes."""
        kill_descendants(self._reap_orphans)
        with contextlib.suppress(TimeoutError):  # it hangs in the kernel
            async with asyncio.timeout(GRACE_S):
                for process in (*self.processes, *self.rays):
                    await process.wait()


async def _end_of(link: Link) -> None:
    """Wait until the first node has ended, or does not answer."""
    with contextlib.suppress(*BROKEN):
        while True:
            await link.receive()


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


@contextlib.contextmanager
def _own_words(program: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise OverError(127, f"COMMAND: there is no program {program!r} on the first node") from None
    except PermissionError:
        raise OverError(126, f"COMMAND: {program!r} cannot be executed on the first node") from None


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


async def run(folder: str, wait_s: str, machine: str, fabric: str, *command: str) -> int:
    """Run this node to its end, and return its exit code."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    for number in signals:
        loop.add_signal_handler(number, lambda: None)  # noted, for the handler that the loop finds later
    try:
        with own_place() as place:
            node = SlurmNode(Path(folder), place, float(wait_s), machine, json.loads(fabric))
            for number in signals:
                loop.add_signal_handler(number, node.end, 128 + number, "")
            return await node.run(command)
    except OSError as error:
        # A canceled job has no folder any more, a name no address, a disk no space.
        say(f"{os.environ['SLURMD_NODENAME']}: {error}")
        return 1


if __name__ == "__main__":
    PRCTL(SUBREAPER, 1, 0, 0, 0)
    os.umask(0o077)
    sys.exit(asyncio.run(run(*sys.argv[1:])))
