"""Gang of a run: an agent on each reserved node, their ranks' output, and their common end after the first failure."""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import ray
from ray.exceptions import RayError

from workloads.exits import Exit, blames_peer, last_line
from workloads.gang.actors import Actors
from workloads.gang.options import RunOptions
from workloads.gang.placement import Reservation, all_nodes
from workloads.gang.plan import NodeShare
from workloads.results.lines import TORCHRUN, RankLine
from workloads.secrecy import Masker

TAIL = 200  # last lines of each rank that are kept for a failure
SHOWN = 20  # last lines that are shown of a rank that failed without a traceback
CULPRIT_S = 2.0  # after a rank failed because of another one, until the gang is stopped: that one's own end is near
MARGIN_S = 15.0  # beyond the grace, until an agent that has not ended is killed
POLL_S = 0.5
TRACEBACK = "Traceback (most recent call last):"
SIGNALED = (128 + 15, 128 + 9)  # exit codes by SIGTERM and SIGKILL


@dataclass(frozen=True)
class RankFailure:
    """Failed rank, or a node's torchrun or agent, which has no rank. `lost`: its node or agent left the cluster."""

    rank: int | None
    host: str
    time: float
    code: int
    text: str
    lost: bool = False

    @property
    def order(self) -> tuple[bool, bool, float]:
        """The cause of a gang's end comes first: a rank before its torchrun, and before ranks that blame others."""
        return self.rank is None and not self.lost, blames_peer(self.text), self.time


@dataclass
class RankGang:
    """One attempt of a run on its nodes. `run` starts the ranks and returns when all have ended.

    Args:
        secrets: Variables of the ranks, besides those of `options`, whose values are removed from their output.
    """

    options: RunOptions
    reserved: Reservation
    secrets: Mapping[str, str] = field(repr=False)
    per_node: int
    restart: int
    codes: dict[int, int] = field(default_factory=dict)  # by rank
    failures: list[RankFailure] = field(default_factory=list)
    stopped: bool = False  # by a signal to the driver

    def __post_init__(self) -> None:
        self.agents = Actors("workloads.gang.agent:Agent").start(self.reserved)
        self.tails: defaultdict[tuple[int, int | None], deque[str]] = defaultdict(lambda: deque(maxlen=TAIL))
        self.rests = [b"" for _ in self.reserved.spots]
        self.masker = Masker(self.secrets.values())
        self.ending = False  # the agents have been asked to stop their ranks

    def start(self) -> None:
        """Start the ranks of all nodes, which meet on the first one."""
        spots = self.reserved.spots
        port = ray.get(self.agents.call(0, "hold_port", spots[0].address))
        shares = [
            NodeShare(
                mode=self.options.mode,
                command=self.options.command,
                environment={**self.options.environment, **self.secrets},
                node=node,
                nodes=len(spots),
                per_node=self.per_node,
                address=spot.address,
                master=spots[0].address,
                port=port,
                use_gpu=self.options.use_gpu,
                grace_s=self.options.grace_s,
                restart=self.restart,
            )
            for node, spot in enumerate(spots)
        ]
        ray.get([self.agents.call(share.node, "start", share) for share in shares])

    def relay(self) -> None:
        """Write the output of all ranks to the log until all have ended. The first failure ends the others."""
        reads = {self.agents.call(node, "read"): node for node in range(len(self.agents))}
        deadline: float | None = None
        while reads:
            done, _ = ray.wait(list(reads), num_returns=1, timeout=POLL_S)
            for reference in done:
                node = reads.pop(reference)
                try:
                    data = ray.get(reference)
                except RayError as error:
                    self._lost(node, error)
                    continue
                if data is not None:
                    self._take(node, data)
                    reads[self.agents.call(node, "read")] = node
            if deadline is None and (self.stopped or self._settled()):
                deadline = time.monotonic() + self.options.grace_s + MARGIN_S
                self.ending = True
                for node in reads.values():
                    self.agents.control(node, "stop", self.options.grace_s)
            if deadline is not None and time.monotonic() > deadline:
                for node in reads.values():
                    self.agents.kill(node)  # its guard then kills what it has started
                deadline = time.monotonic() + MARGIN_S

    @property
    def failure(self) -> RankFailure | None:
        """The failure that ended the gang."""
        return min(self.failures, key=lambda one: one.order, default=None)

    def _settled(self) -> bool:
        """Return whether the cause of a failure is known, or its time is over."""
        first = self.failure
        if first is None:
            return False
        return not first.order[1] or time.time() - min(one.time for one in self.failures) > CULPRIT_S

    def _take(self, node: int, data: bytes) -> None:
        *events, self.rests[node] = (self.rests[node] + data).split(b"\n")
        written = []
        for event in events:
            kind, rank, moment, value = json.loads(event)
            if kind == "line":
                value = self.masker.text(value)
                self.tails[node, rank].append(value)
                written.append(
                    f"{TORCHRUN}{self.reserved.spots[node].host}: {value}"
                    if rank is None
                    else str(RankLine(rank, moment, value))
                )
            else:
                self._ended(node, rank, moment, value)
        if written:
            sys.stdout.write("\n".join(written) + "\n")
            sys.stdout.flush()

    def _ended(self, node: int, rank: int | None, moment: float, code: int) -> None:
        if rank is not None:
            self.codes[rank] = code
        # What ended after the order to end is no cause, unless its time shows the contrary.
        if code and not (self.ending and (code in SIGNALED or rank is None)):
            text = failure_text(self.tails[node, rank])
            self.failures.append(RankFailure(rank, str(self.reserved.spots[node]), moment, code, text))

    def _lost(self, node: int, error: RayError) -> None:
        """Record an agent that has ended. One that was killed at the end is none, unless its node has left."""
        spot = self.reserved.spots[node]
        alive = any(one["Alive"] and one["NodeID"] == spot.node_id for one in all_nodes())
        if alive and self.ending:
            return
        text = f"the agent on {spot} ended: {last_line(error)}" if alive else f"node {spot} left the cluster"
        failure = RankFailure(node * self.per_node, str(spot), time.time(), Exit.ERROR, text, lost=True)
        self.failures.append(failure)


def failure_text(tail: deque[str]) -> str:
    """Return the end of a failed rank's output: from its traceback, or its last lines."""
    lines = list(tail)
    begin = next((index for index, line in enumerate(lines) if TRACEBACK in line), max(0, len(lines) - SHOWN))
    return "\n".join(lines[begin:])
