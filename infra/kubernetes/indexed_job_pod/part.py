"""Code that head and workers share: their connection, processes by id, and the first reason to end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .exits import RAY_FAILED
from .pod import Pod

BEAT_S = 5.0
SILENCE_S = 60.0
"""A node that is lost closes no connection; it only stops sending."""
ANSWER_S = 15.0
GRACE_S = 20.0

Message = dict[str, Any]
BROKEN = (OSError, TimeoutError, ValueError, KeyError, TypeError, ArithmeticError)
"""Errors that the end of a connection, silence, and malformed messages raise."""
T = TypeVar("T")


class Link:
    """A connection between a worker and its head: one JSON object per line, with heartbeats."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, kind: str, **fields: object) -> None:
        """Send a message; `receive` detects a broken connection."""
        self._writer.write(json.dumps({"kind": kind, **fields}).encode() + b"\n")

    async def receive(self, timeout_s: float = SILENCE_S) -> Message:
        """Return the next message that is not a heartbeat. Raises one of `BROKEN`."""
        while True:
            line = await asyncio.wait_for(self._reader.readline(), timeout_s)
            if not line.endswith(b"\n"):
                raise ConnectionError("the connection was closed")
            try:
                message = json.loads(line)
            except RecursionError:
                raise ValueError("not a message") from None
            if not isinstance(message, dict) or "kind" not in message:
                raise ValueError("not a message")
            if message["kind"] != "beat":
                return message

    async def beat(self) -> None:
        """Send heartbeats forever."""
        while True:
            await asyncio.sleep(BEAT_S)
            self.send("beat")

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


class OverError(Exception):
    """This pod ends, with this exit code and the reason for the log."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


@dataclass
class JobPod:
    """Base of head and workers: processes, and the first reason to end."""

    pod: Pod
    over: asyncio.Future[OverError] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    processes: list[asyncio.subprocess.Process] = field(default_factory=list)

    def end(self, code: int, why: str) -> None:
        """End this pod; only the first reason counts."""
        if not self.over.done():
            self.over.set_result(OverError(code, why))

    async def unless_over(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Return the result of `work`. Raises `OverError` on a reason to end, `TimeoutError` after the timeout."""
        task = asyncio.ensure_future(work)
        waiting: list[asyncio.Future[Any]] = [task, self.over]
        await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if self.over.done() or not task.done():
            task.cancel()
            await asyncio.wait({task})
            if self.over.done():
                raise self.over.result()
            raise TimeoutError
        return task.result()

    def background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine until this pod ends."""
        self.tasks.append(asyncio.ensure_future(work))

    async def start(self, *argv: str, **environment: str) -> asyncio.subprocess.Process:
        """Start a process as the leader of a new session, so that its whole process group can be ended."""
        process = await asyncio.create_subprocess_exec(
            *argv, env=os.environ | environment, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
        )
        self.processes.append(process)
        return process

    async def start_ray(self, *arguments: str) -> None:
        """Start Ray's node; its end is a reason to end this pod."""
        argv = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
        # A drain has no use: when a pod ends, the whole cluster does.
        process = await self.start(
            *argv,
            f"--node-ip-address={self.pod.address}",
            *self.pod.ray,
            *arguments,
            RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S="0",
        )

        async def watch() -> None:
            code = await process.wait()
            self.end(RAY_FAILED, f"Ray ended unexpectedly (exit code {code}); see its output above and /tmp/ray")

        self.background(watch())

    async def run_entrypoint(self, generation: str, head: str) -> int:
        """Run the entry point to its end; return its exit code, 128 + N for signal N."""
        pod = self.pod
        environment = {"RAY_ADDRESS": f"{head}:{pod.gcs_port}", "RDMA_RAY_GENERATION": generation}
        if pod.everywhere:
            # Only with --everywhere: a driver on the head with a rank would wait for the others. torchrun reads PET_*.
            places = {"NNODES": pod.nodes, "NODE_RANK": pod.index, "MASTER_ADDR": head, "MASTER_PORT": pod.torch_port}
            environment |= {name: str(value) for name, value in places.items()}
            environment |= {f"PET_{name}": str(value) for name, value in places.items()}
            environment |= {"RANK": str(pod.index), "WORLD_SIZE": str(pod.nodes)}
        process = await self.start("/bin/sh", "-c", pod.entrypoint, **environment)
        code = await process.wait()
        return code if code >= 0 else 128 - code

    async def stop(self) -> None:
        """End the processes of this pod by their ids, the youngest first."""
        for task in self.tasks:
            task.cancel()
        for process in reversed(self.processes):
            if process.returncode is None:
                _signal(process.pid, signal.SIGTERM)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), GRACE_S)
            # Children that outlive a process are still in the group of its session.
            _signal(process.pid, signal.SIGKILL)


def _signal(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
