"""Gang of a benchmark: an actor per rank on the reserved nodes, ranks in a stable order."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, ClassVar

import ray
from ray.exceptions import RayError

from workloads.evidence.collect import gather
from workloads.evidence.facts import Evidence
from workloads.exits import Exit, WorkloadError
from workloads.gang.placement import GangRequest, Reservation
from workloads.loading import load
from workloads.nccl.kinds import RankPosition
from workloads.nccl.options import GangOptions, parse_fault
from workloads.nccl.result import Member
from workloads.results.events import emit

EXTRA_PATIENCE_S = 30
"""Seconds that a rank waits longer than the driver, so that the driver times out first and names the silent ranks."""

ABORT_S = 10  # to abort a communicator; a rank that takes longer is stopped or its node is
NO_ANSWER = "does not answer"


class RankActor:
    """Actor of a rank. Only its process imports the rank's class, and with it torch, which takes seconds."""

    def __init__(self, path: str, use_gpu: bool) -> None:
        self.rank = load(path)(use_gpu)

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self.rank, method)(*arguments)

    @ray.method(concurrency_group="control")
    def control(self, method: str, *arguments: Any) -> Any:
        """Call a method while another call hangs."""
        return getattr(self.rank, method)(*arguments)


class BenchGang:
    """Ranks of one run, placed all or none. On exit the context kills the actors and frees the nodes."""

    rank: ClassVar[str] = "workloads.nccl.rank:Rank"
    collects_evidence: ClassVar[bool] = True

    def __init__(self, options: GangOptions) -> None:
        self.options = options
        self.nodes, self.per_node = options.world
        self.actors: list[Any] = []  # by rank once placed
        self.members: list[Member] = []  # by rank
        self.bundles: list[int] = []  # of the placement group, by rank
        self.seconds: dict[str, float] = {}  # by phase
        self.reserved: Reservation | None = None
        self.evidence: Evidence | None = None  # set on exit if the ranks had started

    def __enter__(self) -> BenchGang:
        try:
            self._phase("placement", self._reserve)
            self._phase("start", self._start)
            self._phase("rendezvous", self._join)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # An interrupt must end immediately.
        if self.collects_evidence and self.members and (kind is None or issubclass(kind, Exception)):
            references = [actor.control.remote("evidence", self.options.logs) for actor in self.actors]
            self.evidence = gather(references, emit)
        for actor in self.actors:
            ray.kill(actor)
        if self.reserved is not None:
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
        references = [actor.call.remote(method, *arguments) for actor in self.actors]
        return self._gather(references, what, self.options.timeout_s)

    def abort(self, ranks: Sequence[int]) -> dict[int, str]:
        """Abort the communicators of these ranks while they hang, and return each rank's stage."""
        references = {rank: self.actors[rank].control.remote("abort") for rank in ranks}
        answered, _ = ray.wait(list(references.values()), num_returns=len(references), timeout=ABORT_S)
        stages = {}
        for rank, reference in references.items():
            try:
                stages[rank] = ray.get(reference) if reference in answered else NO_ANSWER
            except RayError:
                stages[rank] = "its process ended"
        return stages

    def _phase(self, name: str, step: Callable[[], None]) -> None:
        began = time.monotonic()
        emit("phase", name=name)
        step()
        self.seconds[name] = round(time.monotonic() - began, 3)

    def _reserve(self) -> None:
        slots = self.options.gpus_per_rank if self.options.use_gpu else 1
        request = GangRequest(self.nodes, "GPU" if self.options.use_gpu else "CPU", float(self.per_node * slots))
        self.reserved = Reservation(request, self.options.wait_s, self.options.elastic)

    def _start(self) -> None:
        assert self.reserved is not None
        self.bundles = [spot.bundle for spot in self.reserved.spots for _ in range(self.per_node)]
        self.actors = [self._spawn(bundle) for bundle in self.bundles]
        # The first import of torch on a new machine can take as long as starting the node.
        self._arrange(range(len(self.actors)), "the start")

    def _arrange(self, ranks: Sequence[int], what: str) -> None:
        """Describe the new actors of these ranks, and put them in the order of their nodes and GPUs."""
        actors, bundles = [self.actors[rank] for rank in ranks], [self.bundles[rank] for rank in ranks]
        described = self._gather([actor.call.remote("describe") for actor in actors], what, self.options.wait_s)
        # The nodes of `bundles` are in order already.
        keys = [(self.bundles.index(bundle), *gpu_order(each)) for bundle, each in zip(bundles, described, strict=True)]
        order = sorted(range(len(ranks)), key=keys.__getitem__)
        for rank, index in zip(ranks, order, strict=True):
            self.actors[rank], self.bundles[rank] = actors[index], bundles[index]
            member = described[index].model_copy(update={"rank": rank, "node": rank // self.per_node})
            self.members[rank : rank + 1] = [member]  # appends at the start

    def _spawn(self, bundle: int) -> Any:
        """Start an actor in this bundle, with a second thread so that `abort` reaches a hung rank."""
        assert self.reserved is not None
        actor_class: Callable[..., Callable[[type[RankActor]], Any]] = ray.remote  # this form is untyped in Ray
        remote = actor_class(concurrency_groups={"control": 1})(RankActor)
        gpus = self.options.gpus_per_rank
        options: dict[str, Any] = {"num_gpus": gpus, "num_cpus": 0} if self.options.use_gpu else {"num_cpus": 1}
        if self.options.environment:
            # Set when the process starts: libraries read some of these on load.
            options["runtime_env"] = {"env_vars": self.options.environment}
        strategy = self.reserved.on(bundle)
        return remote.options(**options, scheduling_strategy=strategy).remote(self.rank, self.options.use_gpu)

    def _join(self) -> None:
        address, world = self.members[0].ip, len(self.actors)
        fault = parse_fault(self.options.inject_fault, world)
        patience = self.options.timeout_s + EXTRA_PATIENCE_S
        [port] = self._gather(
            [self.actors[0].call.remote("serve", address, patience)], "opening the rendezvous", patience
        )
        references = [
            actor.call.remote(
                "join",
                RankPosition(member.rank, world, self.per_node),
                address,
                port,
                member.ip,
                patience,
                fault if fault and fault.rank == member.rank else None,
            )
            for actor, member in zip(self.actors, self.members, strict=True)
        ]
        self._gather(references, "the rendezvous", self.options.timeout_s)

    def _gather(self, references: Sequence[Any], what: str, timeout_s: float) -> list[Any]:
        """Return the answers in the order of the references. See `call` for errors."""
        pending = list(references)
        deadline = time.monotonic() + timeout_s
        while pending:
            done, pending = ray.wait(pending, timeout=max(0.0, deadline - time.monotonic()))
            if not done:
                silent = [index for index, reference in enumerate(references) if reference in pending]
                raise WorkloadError(self._hang(what, silent, timeout_s), Exit.HANG)
            ray.get(done)  # raises an actor's error, while others may still wait for it
        found: list[Any] = ray.get(list(references))
        return found

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
