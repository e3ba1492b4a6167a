"""Pod 0: it admits the other pods, runs the entry point when all have joined, and sends them its exit code."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from .exits import PEER_LOST, RAY_FAILED, TOO_FEW_NODES, of_peer
from .link import BROKEN, Members, Message
from .nodes import NODES_ALIVE_S
from .part import ANSWER_S, GRACE_S, JobPod, OverError
from .pod import Pod

RAY_START_S = 300.0
LOOK_S = 0.5

T = TypeVar("T")


class Head(JobPod):
    """Pod 0."""

    def __init__(self, pod: Pod) -> None:
        super().__init__(pod)
        self.generation = secrets.token_hex(8)
        new = asyncio.get_running_loop().create_future
        self.exits: dict[str, asyncio.Future[int]] = {str(index): new() for index in range(1, pod.nodes)}
        self.complete = asyncio.Event()
        self.members: Members | None = None

    def listen(self, listener: socket.socket) -> Members:
        """Admit the other pods at a port."""
        pod = self.pod
        self.members = Members(listener, pod.token, self.exits, pod.job, pod.say, self._heard, self.generation)
        if not self.exits:
            self.complete.set()
        return self.members

    async def run(self) -> int:
        """Form the cluster and run the entry point; return its exit code."""
        pod = self.pod
        name = f"{pod.index}-{self.generation}"
        await self.start_ray("--head", f"--port={pod.gcs_port}", f"--node-name={name}", *pod.ray_head)
        await self._within(RAY_START_S, _listens(pod.address, pod.gcs_port), RAY_FAILED, lambda: "no port of Ray")
        # No worker can join before Ray accepts it.
        members = self.listen(socket.create_server((pod.address, pod.port), backlog=socket.SOMAXCONN))
        self._announce()
        pod.say(f"generation {self.generation} waits for {pod.nodes - 1} pods, at {pod.address}:{pod.port}")
        await self._within(pod.wait_s, self.complete.wait(), TOO_FEW_NODES, self._missing)
        names = [name, *(f"{index}-{link.nonce}" for index, link in members.links.items())]
        count = [sys.executable, "-m", f"{__package__}.nodes", f"{pod.address}:{pod.gcs_port}", *names]
        counted = await self.start(*count, environment=os.environ)
        why = "Ray does not report the node of every pod as alive"
        if await self._within(NODES_ALIVE_S + ANSWER_S, counted.wait(), TOO_FEW_NODES, lambda: why):
            raise OverError(TOO_FEW_NODES, f"{why} after {NODES_ALIVE_S:.0f} s")
        pod.say(f"generation {self.generation}: {pod.nodes} nodes are alive; the entry point starts")
        return await self.unless_over(self._work(members))

    async def dismiss(self, code: int, why: str) -> None:
        """Send the workers the result, and give them time to stop Ray while its head still answers."""
        if self.members is not None:
            for link in self.members.links.values():
                link.send("end", code=code, why=why)
            await self.members.close(GRACE_S)
        file = self.pod.file
        with contextlib.suppress(*BROKEN):
            if file is not None and self.pod.published()["generation"] == self.generation:
                file.unlink()

    async def _work(self, members: Members) -> int:
        for link in members.links.values():
            link.send("go")
        own = asyncio.ensure_future(self.run_entrypoint(self.generation, self.pod.address))
        if not self.pod.everywhere:
            return await own
        # One that fails leaves the others in a collective, so the head does not wait for them.
        for finished in asyncio.as_completed([own, *self.exits.values()]):
            if code := await finished:
                return code
        return 0

    async def _within(self, seconds: float, work: Coroutine[Any, Any, T], code: int, why: Callable[[], str]) -> T:
        try:
            return await self.unless_over(work, seconds)
        except TimeoutError:
            raise OverError(code, f"{why()} after {seconds:.0f} s") from None

    def _missing(self) -> str:
        assert self.members is not None
        absent = [index for index in self.exits if index not in self.members.links]
        refused = "; refused: " if self.members.unproven else ""
        refused += ", ".join(f"pod {index}, which has another token" for index in self.members.unproven)
        return f"too few nodes: no word from pod {', '.join(absent)} of {self.pod.nodes}{refused}"

    def _announce(self) -> None:
        """Write the file atomically: under a temporary name, then renamed."""
        if (file := self.pod.file) is None:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        place = {"job": self.pod.job, "generation": self.generation, "address": f"{self.pod.address}:{self.pod.port}"}
        draft = file.with_name(f".{file.name}.{self.generation}")
        draft.write_text(json.dumps(place))
        draft.replace(file)

    def _heard(self, index: str, message: Message) -> None:
        assert self.members is not None
        match message["kind"]:
            case "joined":
                joined = len(self.members.links)
                self.pod.say(f"pod {index} joined: {joined + 1} of {self.pod.nodes}")
                if joined == len(self.exits):
                    self.complete.set()
            case "exit":
                self.exits[index].set_result(int(message["code"]))
            case "failed":
                self.end(of_peer(int(message["code"])), f"pod {index}: {message['why']}")
            case "second":
                # The Job creates a second pod of an index only when the first has ended.
                self.end(
                    PEER_LOST, f"pod {index} restarted; generation {self.generation} cannot continue with a new one"
                )
            case "lost":
                why = f"pod {index} was lost ({message['why'] or 'silent'}); generation {self.generation} is over"
                self.end(PEER_LOST, why)


async def _listens(host: str, port: int) -> None:
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
            return
        await asyncio.sleep(LOOK_S)
