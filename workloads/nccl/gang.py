"""Gang of a benchmark: an actor per rank on the reserved nodes, ranks in a stable order."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from ray.exceptions import RayError

from workloads.evidence.facts import Evidence
from workloads.exits import Exit, WorkloadError
from workloads.gang.actors import Actors, answers
from workloads.gang.placement import Reservation
from workloads.nccl.kinds import RankPosition
from workloads.nccl.options import GangOptions, parse_fault
from workloads.nccl.result import Member
from workloads.results.events import emit, phase

EXTRA_PATIENCE_S = 30
"""Seconds that a rank waits longer than the driver, so that the driver times out first and names the silent ranks."""

ABORT_S = 10  # to abort a communicator; a rank that takes longer is stopped or its node is
NO_ANSWER = "does not answer"


class BenchGang:
    """Ranks of one run, placed all or none. On exit the context kills the actors and frees the nodes.

    Args:
        reserved: Nodes that the caller has reserved, and keeps.
    """

    rank: ClassVar[str] = "workloads.nccl.rank:Rank"

    def __init__(self, options: GangOptions, reserved: Reservation | None = None) -> None:
        self.options = options
        self.nodes, self.per_node = options.world
        self.actors = Actors(self.rank, options.use_gpu, environment=options.environment)
        self.members: list[Member] = []  # by rank once placed
        self.seconds: dict[str, float] = {}  # by phase
        self.reserved, self.borrowed = reserved, reserved is not None
        self.evidence: Evidence | None = None  # set on exit if the ranks had started

    def __enter__(self) -> BenchGang:
        options = self.options
        try:
            if self.reserved is None:
                with phase("placement", self.seconds):
                    slots = options.gpus_per_rank if options.use_gpu else 1
                    self.reserved = Reservation(
                        self.nodes, self.per_node * slots, options.use_gpu, options.wait_s, options.elastic
                    )
            with phase("start", self.seconds):
                # The first import of torch on a new machine can take as long as starting the node.
                self._arrange(range(len(self.actors.start(self.reserved, self.per_node))), "the start")
            with phase("rendezvous", self.seconds):
                self._join()
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # An interrupt must end immediately.
        if self.members and (kind is None or issubclass(kind, Exception)):
            self.evidence = self.actors.evidence(self.options.logs, emit=emit)
        self.actors.close()
        if self.reserved is not None and not self.borrowed:
            self.reserved.close()

    @property
    def machines(self) -> int:
        """Number of different kernels: containers of one machine count once."""
        return len({member.machine for member in self.members})

    @property
    def fabric(self) -> bool:
        """Whether a network connects the nodes. Host names do not show it: pods on one machine have different ones."""
        return self.nodes > 1 and self.machines == self.nodes

    def call(self, method: str, *arguments: Any, what: str) -> list[Any]:
        """Call `method` on all ranks concurrently, and return the answers by rank; `what` names the step in messages.

        A rank's error is raised immediately. After the time-out the communicator is aborted, and WorkloadError has the
        code HANG.
        """
        return self._ask(method, dict.fromkeys(range(len(self.actors)), arguments), what, self.options.timeout_s)

    def abort(self, ranks: Sequence[int]) -> dict[int, str]:
        """Abort the communicators of these ranks while they hang, and return each rank's stage."""
        calls = {self.actors.control(rank, "abort"): rank for rank in ranks}
        found = dict.fromkeys(ranks, NO_ANSWER) | dict(answers(calls, ABORT_S))
        return {rank: "its process ended" if isinstance(one, RayError) else one for rank, one in found.items()}

    def _arrange(self, ranks: Sequence[int], what: str) -> None:
        """Describe the new actors of these ranks, and put them in the order of their nodes and GPUs."""
        described = self._ask("describe", dict.fromkeys(ranks, ()), what, self.options.wait_s)
        found = zip(ranks, described, [self.actors.handles[rank] for rank in ranks], strict=True)
        order = sorted(found, key=lambda one: (one[0] // self.per_node, *gpu_order(one[1])))
        for rank, (_, member, handle) in zip(ranks, order, strict=True):
            self.actors.handles[rank] = handle
            # Appends at the start.
            self.members[rank : rank + 1] = [member.model_copy(update={"rank": rank, "node": rank // self.per_node})]

    def _join(self) -> None:
        address, world = self.members[0].ip, len(self.actors)
        fault = parse_fault(self.options.inject_fault, world)
        faults = {fault.rank: fault} if fault else {}
        patience = self.options.timeout_s + EXTRA_PATIENCE_S
        [port] = self._ask("serve", {0: (address, patience)}, "opening the rendezvous", patience)
        arguments = {
            rank: (RankPosition(rank, world, self.per_node), address, port, member.ip, patience, faults.get(rank))
            for rank, member in enumerate(self.members)
        }
        self._ask("join", arguments, "the rendezvous", self.options.timeout_s)

    def _ask(self, method: str, arguments: Mapping[int, Iterable[Any]], what: str, timeout_s: float) -> list[Any]:
        """Call `method` on ranks, each with its arguments, and return the answers in the same order. Errors: `call`."""
        found = self.actors.ask(method, arguments, timeout_s)
        if silent := sorted(arguments.keys() - found):
            raise WorkloadError(self._hang(what, silent, timeout_s), Exit.HANG)
        return [found[rank] for rank in arguments]

    def _hang(self, what: str, silent: Sequence[int], timeout_s: float) -> str:
        """Abort the communicator on all ranks, and return the message: the silent ranks and their stages."""
        stages = self.abort(range(len(self.actors)))
        lines = [f"{what}: no answer within {timeout_s:.0f} s from {len(silent)} of {len(self.actors)} ranks"]
        lines += [
            f"  rank {rank} on {self.members[rank].host} ({self.members[rank].ip}): {stages[rank]}"
            for rank in silent
            if self.members
        ]
        option = "--wait" if timeout_s == self.options.wait_s else "--timeout"
        return "\n".join([*lines, f"the communicator was aborted and the ranks were killed; {option} allows more time"])


def gpu_order(member: Member) -> tuple[Any, ...]:
    """Return a rank's sort key within its node: GPUs by index, the same in every run.

    GPUs without an index (GPU-8f…, MIG-4c…, as in CUDA_VISIBLE_DEVICES) come last, by name.
    """
    gpu = member.gpu or ""
    return (int(gpu) if gpu.isdecimal() else sys.maxsize, gpu, member.pid)
