"""A pod other than the head: it finds the head, joins its Ray cluster and follows its messages."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator

from .exits import HEAD_NOT_FOUND, PEER_LOST, WRONG_TOKEN, of_peer
from .link import BROKEN, Link, RefusedError, join
from .part import ANSWER_S, JobPod, OverError
from .pod import Pod

LOOK_S, LOOK_MOST_S = 0.5, 5.0
"""Pauses grow, because pods may search for hours, and every attempt is a DNS query."""


class Worker(JobPod):
    """A pod other than the head."""

    def __init__(self, pod: Pod) -> None:
        super().__init__(pod)
        self.link: Link | None = None

    async def run(self) -> int:
        """Find the head, join its Ray cluster, and follow its messages until it sends the exit code."""
        pod = self.pod
        link, head = await self.unless_over(self._find())
        generation = link.generation
        self.link = link
        self.background(link.beat())
        pod.say(f"joins generation {generation} at {head}")
        await self.start_ray(f"--address={head}:{pod.gcs_port}", f"--node-name={pod.index}-{link.nonce}")
        while True:
            try:
                said = await self.unless_over(link.receive())
            except BROKEN as error:
                why = f"the head of generation {generation} was lost ({error or 'silent'})"
                raise OverError(PEER_LOST, why) from None
            if said["kind"] == "end":
                raise OverError(of_peer(int(said["code"])), f"the head ended: {said['why']}")
            if said["kind"] == "go" and pod.everywhere:
                self.background(self._work(link, head))

    async def dismiss(self, code: int, why: str) -> None:
        """Send the head the reason why this pod ends, unless the head ended it."""
        if self.link is not None and code:
            self.link.send("failed", code=code, why=why)

    async def _work(self, link: Link, head: str) -> None:
        link.send("exit", code=await self.run_entrypoint(link.generation, head))

    async def _find(self) -> tuple[Link, str]:
        deadline = time.monotonic() + self.pod.wait_s
        seen: dict[str, str] = {}
        pause = LOOK_S
        self.pod.say(f"looks for the head: {self.pod.head_host}" + (f", {file}" if (file := self.pod.file) else ""))
        while time.monotonic() < deadline:
            async for source, host, port in self._places(seen):
                try:
                    return await join(host, port, self.pod.token, str(self.pod.index), self.pod.job), host
                except RefusedError as error:
                    if error.kind == "token":
                        why = f"wrong token: the head at {host}:{port} has another one than this pod"
                        raise OverError(WRONG_TOKEN, why) from None
                    if error.kind == "second":
                        raise OverError(PEER_LOST, f"{error}, which was lost before") from None
                    # Logged at once, for a user who reads the log while the pod waits.
                    if seen.get(source) != (line := f"{source} leads to {host}:{port}: {error}"):
                        self.pod.say(line)
                    seen[source] = line
                except BROKEN as error:
                    seen[source] = f"{source} leads to {host}:{port}: {error or 'no answer'}"
            await asyncio.sleep(min(pause, max(deadline - time.monotonic(), 0)))
            pause = min(2 * pause, LOOK_MOST_S)
        tried = "; ".join(seen.values()) or "nothing was found"
        raise OverError(HEAD_NOT_FOUND, f"no head of Job {self.pod.job} in {self.pod.wait_s:.0f} s: {tried}")

    async def _places(self, seen: dict[str, str]) -> AsyncIterator[tuple[str, str, int]]:
        """Yield where the head may be: every address of its name, then the address in the file."""
        pod, loop = self.pod, asyncio.get_running_loop()
        try:
            found = await asyncio.wait_for(
                loop.getaddrinfo(pod.head_host, pod.port, family=socket.AF_INET, type=socket.SOCK_STREAM), ANSWER_S
            )
            for *_, place in found:
                yield "the name", str(place[0]), pod.port
        except (OSError, TimeoutError) as error:
            seen["the name"] = f"the name {pod.head_host} does not resolve ({error or 'no answer'})"
        if pod.file is None:
            return
        try:
            published = await asyncio.to_thread(pod.published)
            host, _, port = str(published["address"]).rpartition(":")
            if published["job"] == pod.job:
                yield "the file", host, int(port)
            else:
                seen["the file"] = f"the file {pod.file} is stale: it belongs to Job {published['job']}"
        except BROKEN as error:
            seen["the file"] = f"the file {pod.file} cannot be read ({type(error).__name__})"
