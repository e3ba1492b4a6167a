"""Pod 0: it admits the other pods, runs the entry point when all have joined, and sends them its exit code."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import secrets
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from .exits import PEER_LOST, RAY_FAILED, TOO_FEW_NODES, of_peer
from .nodes import NODES_ALIVE_S
from .part import ANSWER_S, BROKEN, GRACE_S, JobPod, Link, Message, OverError
from .pod import Pod

RAY_START_S = 300.0
LOOK_S = 0.5
GREETINGS = 256
"""Connections that may be without a proof at once; one more ends the oldest. A Job's pods join one by one."""

T = TypeVar("T")


@dataclass
class Member:
    """A worker that has joined: its connection, the name of its Ray node, and the exit code of its entry point."""

    link: Link
    node: str
    exit: asyncio.Future[int]
    gone: asyncio.Event


class Head(JobPod):
    """Pod 0."""

    def __init__(self, pod: Pod) -> None:
        super().__init__(pod)
        self.generation = secrets.token_hex(8)
        self.members: dict[int, Member] = {}
        self.complete = asyncio.Event()
        self.refused: list[str] = []
        self.greeting: list[Link] = []
        self.server: asyncio.Server | None = None
        if pod.nodes == 1:
            self.complete.set()

    async def run(self) -> int:
        """Form the cluster and run the entry point; return its exit code."""
        pod = self.pod
        name = f"{pod.index}-{self.generation}"
        await self.start_ray("--head", f"--port={pod.gcs_port}", f"--node-name={name}", *pod.ray_head)
        await self._within(RAY_START_S, _listens(pod.address, pod.gcs_port), RAY_FAILED, lambda: "no port of Ray")
        # No worker can join before Ray accepts it.
        self.server = await asyncio.start_server(self._admit, pod.address, pod.port)
        self._announce()
        pod.say(f"generation {self.generation} waits for {pod.nodes - 1} pods, at {pod.address}:{pod.port}")
        await self._within(pod.wait_s, self.complete.wait(), TOO_FEW_NODES, self._missing)
        names = [name, *(member.node for member in self.members.values())]
        module = f"{__package__}.nodes"
        counted = await self.start(sys.executable, "-m", module, f"{pod.address}:{pod.gcs_port}", *names)
        why = "Ray does not report the node of every pod as alive"
        if await self._within(NODES_ALIVE_S + ANSWER_S, counted.wait(), TOO_FEW_NODES, lambda: why):
            raise OverError(TOO_FEW_NODES, f"{why} after {NODES_ALIVE_S:.0f} s")
        pod.say(f"generation {self.generation}: {pod.nodes} nodes are alive; the entry point starts")
        return await self.unless_over(self._work())

    async def dismiss(self, code: int, why: str) -> None:
        """Send the workers the result, and give them time to stop Ray while its head still answers."""
        for member in self.members.values():
            member.link.send("end", code=code, why=why)
        with contextlib.suppress(TimeoutError):
            leaving = asyncio.gather(*(member.gone.wait() for member in self.members.values()))
            await asyncio.wait_for(leaving, GRACE_S)
        if self.server is not None:
            self.server.close()
        file = self.pod.file
        with contextlib.suppress(*BROKEN):
            if file is not None and self.pod.published()["generation"] == self.generation:
                file.unlink()

    async def _work(self) -> int:
        for member in self.members.values():
            member.link.send("go")
        own = asyncio.ensure_future(self.run_entrypoint(self.generation, self.pod.address))
        if not self.pod.everywhere:
            return await own
        # One that fails leaves the others in a collective, so the head does not wait for them.
        for finished in asyncio.as_completed([own, *(member.exit for member in self.members.values())]):
            if code := await finished:
                return code
        return 0

    async def _within(self, seconds: float, work: Coroutine[Any, Any, T], code: int, why: Callable[[], str]) -> T:
        try:
            return await self.unless_over(work, seconds)
        except TimeoutError:
            raise OverError(code, f"{why()} after {seconds:.0f} s") from None

    def _missing(self) -> str:
        absent = [str(index) for index in range(1, self.pod.nodes) if index not in self.members]
        refused = f"; refused: {', '.join(self.refused)}" if self.refused else ""
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

    async def _greeted(self, link: Link, nonce: str) -> Message:
        """Return what a connection sends to join. One that sends nothing, or heartbeats only, is closed."""
        self.greeting.append(link)
        if len(self.greeting) > GREETINGS:
            self.greeting.pop(0).close()
        try:
            async with asyncio.timeout(ANSWER_S):
                link.send("hello", job=self.pod.job, generation=self.generation, nonce=nonce)
                return await link.receive(ANSWER_S)
        finally:
            if link in self.greeting:
                self.greeting.remove(link)

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pod, link, nonce = self.pod, Link(reader, writer), secrets.token_hex(16)
        member: Member | None = None
        try:
            said = await self._greeted(link, nonce)
            index, node, own = int(said["index"]), str(said["node"]), str(said["nonce"])
            expected = pod.proof("worker", self.generation, nonce, own, index, node)
            if not hmac.compare_digest(expected, str(said["proof"])):
                source, *_ = writer.get_extra_info("peername") or ("an unknown address",)
                refused = f"pod {index}, which has another token" if 0 < index < pod.nodes else "another pod"
                if refused not in self.refused:  # whatever sends thousands gets one line
                    self.refused.append(refused)
                    pod.say(f"refused: {refused}, from {source}")
                link.send("refused")
                return
            if index in self.members:
                # The Job creates a second pod of an index only when the first has ended.
                link.send("end", code=PEER_LOST, why=f"pod {index} of generation {self.generation} was lost before")
                self.end(
                    PEER_LOST, f"pod {index} restarted; generation {self.generation} cannot continue with a new one"
                )
                return
            member = Member(link, node, asyncio.get_running_loop().create_future(), asyncio.Event())
            self.members[index] = member
            link.send("welcome", proof=pod.proof("head", self.generation, nonce, own, index, node))
            pod.say(f"pod {index} joined: {len(self.members) + 1} of {pod.nodes}")
            if len(self.members) == pod.nodes - 1:
                self.complete.set()
            self.background(link.beat())
            while True:
                said = await link.receive()
                if said["kind"] == "exit":
                    member.exit.set_result(int(said["code"]))
                elif said["kind"] == "failed":
                    self.end(of_peer(int(said["code"])), f"pod {index}: {said['why']}")
        except BROKEN as error:
            if member is not None:
                self.end(PEER_LOST, f"pod {index} was lost ({error or 'silent'}); generation {self.generation} is over")
        finally:
            link.close()
            if member is not None:
                member.gone.set()


async def _listens(host: str, port: int) -> None:
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
            return
        await asyncio.sleep(LOOK_S)
