"""Agent of a run on one node, in an actor with all GPUs of the run there. It relays between driver and guard."""

from __future__ import annotations

import fcntl
import json
import os
import random
import select
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import ray

from workloads.gang import guard
from workloads.gang.plan import NodeShare, guard_plan
from workloads.loading import load
from workloads.rendezvous import select_interface

if TYPE_CHECKING:
    from workloads.evidence.collect import Collected, Collector

READ_S = 1.0  # until a read returns without output
MOST = 2**20  # bytes of one read, and of the pipe
PORTS = (20_000, 32_767)  # above the ports of Ray's workers, and by default below the ephemeral ones
F_SETPIPE_SZ = 1031  # linux/fcntl.h; fcntl names it in Python 3.10 and later


class Agent:
    """See the module. `stop` is called while `read` waits."""

    def __init__(self) -> None:
        self.guard: subprocess.Popen[bytes] | None = None
        self.port: socket.socket | None = None
        self.collectors: list[Collector] = []

    def hold_port(self, address: str) -> int:
        """Find a free port for the rendezvous, and hold it until `start`.

        It is below the ephemeral ports where possible, so that no connection takes it in between.
        """
        begin, end = PORTS
        with suppress(OSError):
            end = min(end, int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]) - 1)
        for port in [*random.sample(range(begin, end), min(100, max(0, end - begin))), 0]:
            with suppress(OSError):
                self.port = socket.create_server((address, port))
                break
        assert self.port is not None
        return int(self.port.getsockname()[1])

    def start(self, share: NodeShare) -> None:
        """Start the ranks of this node."""
        base = dict(os.environ)
        ray._private.utils.remove_ray_internal_flags_from_env(base)
        select_interface(share.address, base)
        extra = self._collect(share, base) if share.use_gpu else [{} for _ in share.ranks]
        plan = json.dumps(guard_plan(share, base, extra)).encode()
        # Isolated: neither the user's folder nor his variables change what the guard imports.
        command = [sys.executable, "-I", "-S", guard.__file__]
        self.guard = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, bufsize=0
        )
        assert self.guard.stdin is not None
        assert self.guard.stdout is not None
        fcntl.fcntl(self.guard.stdout, F_SETPIPE_SZ, MOST)
        if self.port is not None:
            self.port.close()
            self.port = None
        message = memoryview(len(plan).to_bytes(8, "big") + plan)
        while message:
            message = message[self.guard.stdin.write(message) or 0 :]

    def read(self) -> bytes | None:
        """Return events of the guard, as soon as there are any; None after the last."""
        assert self.guard is not None
        assert self.guard.stdout is not None
        if not select.select([self.guard.stdout], [], [], READ_S)[0]:
            return b""
        return os.read(self.guard.stdout.fileno(), MOST) or None

    def stop(self, grace_s: float) -> None:
        """Send SIGTERM to the ranks, and SIGKILL after the grace."""
        if self.guard is not None and self.guard.stdin is not None:
            with suppress(BrokenPipeError):  # it has ended
                self.guard.stdin.write(f"{grace_s}\n".encode())

    def evidence(self, local: int) -> Collected:
        """Return the evidence of one rank of this node, after its end."""
        return self.collectors[local].finish(False)

    def _collect(self, share: NodeShare, base: dict[str, str]) -> list[dict[str, str]]:
        """Prepare the evidence of each rank, and return the variables for NCCL's log."""
        collector = load("workloads.evidence.collect:Collector")
        found = []
        for local, rank in enumerate(share.ranks):
            environment = base | share.environment
            before = dict(environment)
            self.collectors.append(collector(rank, "nccl", first=local == 0, environment=environment))
            self.collectors[-1].start()
            found.append({name: value for name, value in environment.items() if before.get(name) != value})
        return found
