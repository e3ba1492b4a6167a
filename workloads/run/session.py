"""A run as a gang: reserve its nodes, run its ranks, restart after a failure, and report how it ended."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import ray
from ray.exceptions import RayError

from workloads.exits import Exit, WorkloadError, last_line
from workloads.gang.options import RunOptions
from workloads.gang.placement import Reservation
from workloads.gang.ranks import RankFailure, RankGang
from workloads.nccl.hunt.before import check_nodes
from workloads.results.events import emit, phase
from workloads.run.result import RunFailure, RunLayout, RunNode, RunResult

PORT_TAKEN = ("EADDRINUSE", "Address already in use", "address already in use")
PORT_TRIES = 3  # starts with another port, which are no restarts


class StoppedError(BaseException):
    """SIGTERM or SIGINT, as from `rdma-ray stop`. Not an Exception, so that no handler swallows it."""


@dataclass
class Session:
    """State of a run over all of its attempts."""

    options: RunOptions
    secrets: Mapping[str, str] = field(repr=False)
    reserved: Reservation | None = None
    gang: RankGang | None = None
    restarts: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    evidence: Any = None
    nodes: list[RunNode] = field(default_factory=list)
    relaying: bool = False
    interrupted: bool = False

    def run(self) -> RankFailure | None:
        """Run the gang until it succeeds or its restarts are used up; return the last failure."""
        ports = 0
        while True:
            failure = self._attempt()
            if failure is None or self.gang is None or self.gang.stopped:
                return failure
            taken = failure.rank in (None, 0) and any(text in failure.text for text in PORT_TAKEN)
            if taken and ports < PORT_TRIES:
                ports += 1
                emit("note", text="another process took the port of the rendezvous: restarting with a different port")
                continue
            if self.restarts == self.options.max_restarts:
                return failure
            self.restarts += 1
            show(failure)
            emit("restart", number=self.restarts, of=self.options.max_restarts)

    def _attempt(self) -> RankFailure | None:
        options = self.options
        assert options.nodes is not None
        per_node = options.per_node or 1
        if self.reserved is None:
            with phase("placement", self.seconds):
                self.reserved = Reservation(options.nodes, per_node, options.use_gpu, options.wait_s, options.elastic)
            if options.hunt:
                with phase("check", self.seconds):
                    check_nodes(options.hunt, self.reserved, lambda text: emit("note", text=text))
        ranks = iter(range(options.nodes * per_node))
        self.nodes = [
            RunNode(host=spot.host, ip=spot.address, node_id=spot.node_id, ranks=[*islice(ranks, per_node)])
            for spot in self.reserved.spots
        ]
        self.gang = gang = RankGang(options, self.reserved, self.secrets, per_node, self.restarts)
        try:
            with phase("start", self.seconds):
                gang.start()
            with phase("run", self.seconds):
                self.relaying = True
                gang.relay()
            if options.use_gpu:
                self.evidence = gang.agents.evidence(*range(per_node))
        except RayError as error:
            spots = ", ".join(map(str, self.reserved.spots))
            text = f"an agent did not start on one of {spots}: {last_line(error)}"
            gang.failures.append(RankFailure(None, spots, time.time(), Exit.ERROR, text, lost=True))
        finally:
            self.relaying = False
            gang.agents.close()
        if gang.failure is not None and gang.failure.lost:
            self.close()
        return gang.failure

    def close(self) -> None:
        if self.reserved is not None:
            self.reserved.close()
            self.reserved = None

    def interrupt(self, *_: object) -> None:
        """Handle SIGTERM and SIGINT: the ranks get their grace; before they run, the run ends at once."""
        if self.gang is not None and self.relaying:
            self.gang.stopped = True
        elif not self.interrupted:  # once: a signal may arrive twice, to the process group and by its parent
            self.interrupted = True
            raise StoppedError


def run(options: RunOptions, secrets: Mapping[str, str]) -> int:
    """Run a gang, emit its result, and return the exit code. The ranks get the secrets as variables."""
    started = time.time()
    # The agents print nothing; the ranks' output comes through `Gang.relay`, without loss.
    ray.init(logging_level=logging.WARNING, log_to_driver=False)
    session = Session(options, secrets)
    if (layout := options.layout) is not None:
        emit("note", text=layout.table())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, session.interrupt)  # Ray's own ends the process at once
    failure, code, reason = None, int(Exit.OK), ""
    try:
        failure = session.run()
    except WorkloadError as error:
        code, reason = error.code, str(error)
    except StoppedError:
        code, reason = Exit.STOPPED, "stopped before the ranks ran"
    finally:
        session.close()
    gang = session.gang
    if failure is not None:
        show(failure)
        who = f"rank {failure.rank} on {failure.host}" if failure.rank is not None else f"torchrun on {failure.host}"
        code = failure.code
        reason = f"{who} failed with exit code {code}" if not failure.lost else failure.text.splitlines()[-1]
    elif gang is not None and gang.stopped:
        code, reason = Exit.STOPPED, "stopped"
    elif not reason:
        reason = "every rank succeeded"
    ranks = [rank for node in session.nodes for rank in node.ranks]
    result = RunResult(
        started=started,
        finished=time.time(),
        exit_code=code,
        reason=reason,
        versions={"ray": ray.__version__},
        mode=options.mode,
        nodes=session.nodes,
        layout=layout and RunLayout.model_validate(layout.as_json()),
        exit_codes=[gang.codes.get(rank) if gang else None for rank in ranks],
        restarts=session.restarts,
        seconds=session.seconds,
        failure=failure and RunFailure(rank=failure.rank, host=failure.host, code=failure.code, text=failure.text),
        evidence=session.evidence,
        transport=options.transport,
    )
    emit("result", result=result.model_dump(mode="json", by_alias=True))
    return int(code)


def show(failure: RankFailure) -> None:
    """Emit a failure, after the output of all ranks. Output of torchrun itself has no rank."""
    if failure.rank is None:
        emit("note", text=f"torchrun on {failure.host} failed with exit code {failure.code}:\n{failure.text}")
    else:
        emit("failure", rank=failure.rank, host=failure.host, code=failure.code, text=failure.text)
