"""The processes of a node and the first reason to end it, for pods and nodes of Slurm; what pods do besides."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from .exits import RAY_FAILED
from .pod import Pod

ANSWER_S = 15.0
GRACE_S = 20.0
IMPORT_RAY = (
    "import sys; sys.modules.update(dict.fromkeys(('ray.serve.scripts', 'ray.dashboard.modules.job.cli', "
    "'ray.util.state.state_cli'))); import ray.scripts.scripts as ray; "
)
"""Imports the program `ray` without the commands `serve`, `job` and `list`, which Ray allows to be missing (Ray 2.60:
the end of scripts/scripts.py). Their imports are two thirds of the 3.1 s of CPU in which `ray start` begins
(2026-11-29, two busy cores)."""

T = TypeVar("T")


class OverError(Exception):
    """This node ends, with this exit code and the reason for the log."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class Supervisor:
    """Base of heads and workers: their processes, and the first reason to end."""

    def __init__(self) -> None:
        self.over: asyncio.Future[OverError] = asyncio.get_running_loop().create_future()
        self.tasks: list[asyncio.Task[None]] = []
        self.processes: list[asyncio.subprocess.Process] = []

    def end(self, code: int, why: str) -> None:
        """End this node; only the first reason counts."""
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
        """Run a coroutine until this node ends."""
        self.tasks.append(asyncio.ensure_future(work))

    async def start(
        self, *argv: str, environment: Mapping[str, str], stdin: int | None = asyncio.subprocess.DEVNULL
    ) -> asyncio.subprocess.Process:
        """Start a process as the leader of a new session, so that its whole process group can be ended."""
        process = await asyncio.create_subprocess_exec(*argv, env=environment, stdin=stdin, start_new_session=True)
        self.processes.append(process)
        return process

    async def stop(self, grace_s: float) -> None:
        """End the processes by their ids, the youngest first: by SIGTERM, and by SIGKILL after the grace."""
        for task in self.tasks:
            task.cancel()
        for process in reversed(self.processes):
            if process.returncode is None:
                _signal(process.pid, signal.SIGTERM)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), grace_s)
            # Children that outlive a process are still in the group of its session.
            _signal(process.pid, signal.SIGKILL)


def exit_code(returned: int) -> int:
    """Return the exit code of a process as a shell does: 128 + N for signal N."""
    return returned if returned >= 0 else 128 - returned


def _signal(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


class JobPod(Supervisor):
    """Base of head and workers."""

    def __init__(self, pod: Pod) -> None:
        super().__init__()
        self.pod = pod

    async def start_ray(self, *arguments: str) -> None:
        """Start Ray's node; its end is a reason to end this pod."""
        argv = [sys.executable, "-c", f"{IMPORT_RAY}ray.main()", "start", "--block", "--disable-usage-stats"]
        # A drain has no use: when a pod ends, the whole cluster does.
        environment = os.environ | {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}
        argv += [f"--node-ip-address={self.pod.address}", *self.pod.ray, *arguments]
        process = await self.start(*argv, environment=environment)

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
        process = await self.start("/bin/sh", "-c", pod.entrypoint, environment=os.environ | environment)
        return exit_code(await process.wait())
