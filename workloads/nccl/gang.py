"""All ranks or none: one placement group over the nodes, an actor per rank in it, ranks in a stable order."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from workloads.interfaces import numeric
from workloads.nccl.evidence.collect import gather
from workloads.nccl.evidence.facts import Evidence
from workloads.nccl.operation import Place
from workloads.nccl.placement import Wanted
from workloads.nccl.rank import Rank
from workloads.nccl.spec import Spec, parse_fault
from workloads.nccl.waiting import answers, wait_for_nodes


class Gang:
    """The ranks of one run, as a context: leaving it kills the actors and frees the nodes, whatever happened."""

    def __init__(self, spec: Spec, on_event: Callable[..., None]) -> None:
        """`on_event` is told of each phase and, from time to time, what is waited for, as events.emit is."""
        self.spec = spec
        self.on_event = on_event
        self.wanted = Wanted(spec.nodes, "GPU" if spec.use_gpu else "CPU", float(spec.per_node))
        self.actors: list[Any] = []  # by rank once placed
        self.members: list[dict[str, Any]] = []  # describe() of each, with its rank and its node's index
        self.seconds: dict[str, float] = {}
        self.group: PlacementGroup | None = None
        self.evidence: Evidence | None = None  # once left, if it got as far as to have ranks

    def __enter__(self) -> Gang:
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
        if self.members and (kind is None or issubclass(kind, Exception)):  # not where somebody wants it to stop now
            self.evidence = gather(self.actors, self.spec.logs, self.on_event)
        for actor in self.actors:
            ray.kill(actor)
        if self.group is not None:
            remove_placement_group(self.group)

    @property
    def machines(self) -> int:
        """How many different kernels the ranks run on: containers of one machine count once."""
        return len({member["machine"] for member in self.members})

    @property
    def fabric(self) -> bool:
        """Whether a network lies between the nodes.

        Pods of one machine have their own host names and addresses; only different kernels make a network.
        """
        return self.spec.nodes > 1 and self.machines == self.spec.nodes

    def call(self, method: str, *arguments: Any, what: str) -> list[Any]:
        """Call `method` on every rank at once; the answers by rank.

        Raises WorkloadError(HANG) when a rank has not answered within the spec's time-out, after aborting the
        communicator everywhere; and at once with the first rank's own error where one fails.
        """
        references = [getattr(actor, method).remote(*arguments) for actor in self.actors]
        return self._gather(references, what, self.spec.timeout_s)

    def _phase(self, name: str, step: Callable[[], None]) -> None:
        began = time.monotonic()
        self.on_event("phase", name=name)
        step()
        self.seconds[name] = round(time.monotonic() - began, 3)

    def _reserve(self) -> None:
        """One bundle per node, all at once: half a gang would wait for its other half and hold its nodes meanwhile."""
        bundle = {self.wanted.kind: self.wanted.amount}
        self.group = placement_group([bundle] * self.wanted.nodes, strategy="STRICT_SPREAD")
        wait_for_nodes(self.group, self.wanted, self.spec.wait_s, self.spec.elastic, self.on_event)

    def _start(self) -> None:
        # A second thread for `abort`, so that it gets through to a rank whose first thread hangs.
        assert self.group is not None
        actor_class: Callable[..., Callable[[type[Rank]], Any]] = ray.remote  # this form is untyped in Ray
        remote = actor_class(concurrency_groups={"control": 1})(Rank)
        options: dict[str, Any] = {"num_gpus": 1, "num_cpus": 0} if self.spec.use_gpu else {"num_cpus": 1}
        if self.spec.environment:
            # Of the process, from its start: libraries read some of these when they are loaded.
            options["runtime_env"] = {"env_vars": self.spec.environment}
        self.actors = [
            remote.options(
                **options,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self.group, placement_group_bundle_index=bundle),
            ).remote(self.spec.use_gpu)
            for bundle in range(self.spec.nodes)
            for _ in range(self.spec.per_node)
        ]
        # A first start imports torch, on cold machines from a cold disk: it has the nodes' patience, not a row's.
        described = self._gather([actor.describe.remote() for actor in self.actors], "the start", self.spec.wait_s)
        order = sorted(range(len(self.actors)), key=lambda i: _rank_order(described[i]))
        self.actors = [self.actors[i] for i in order]
        self.members = [described[i] | {"rank": rank} for rank, i in enumerate(order)]
        for member in self.members:
            member["node"] = member["rank"] // self.spec.per_node

    def _join(self) -> None:
        address = self.members[0]["ip"]
        world = len(self.actors)
        fault = parse_fault(self.spec.inject_fault, world)
        # The ranks' own time-out is longer, so that this side's decides and names who is silent.
        patience = self.spec.timeout_s + 30
        [port] = self._gather([self.actors[0].serve.remote(address, patience)], "opening the rendezvous", patience)
        self._gather(
            [
                actor.join.remote(
                    Place(rank, world, self.spec.per_node),
                    address,
                    port,
                    self.members[rank]["ip"],
                    patience,
                    fault if fault and fault.rank == rank else None,
                )
                for rank, actor in enumerate(self.actors)
            ],
            "the rendezvous",
            self.spec.timeout_s,
        )

    def _gather(self, references: Sequence[Any], what: str, timeout_s: float) -> list[Any]:
        return answers(references, timeout_s, lambda silent: self._hang(what, silent, timeout_s))

    def _hang(self, what: str, silent: Sequence[int], timeout_s: float) -> str:
        lines = [f"{what}: no answer within {timeout_s:.0f} s from {len(silent)} of {len(self.actors)} ranks"]
        stages = self._abort()
        lines += [
            f"  rank {rank} on {self.members[rank]['host']} ({self.members[rank]['ip']}): {stages[rank]}"
            for rank in silent
            if self.members
        ]
        option = "--wait" if timeout_s == self.spec.wait_s else "--timeout"
        return "\n".join([*lines, f"the communicator was aborted and the ranks were killed; {option} allows more time"])

    def _abort(self) -> list[str]:
        """Abort the communicator everywhere; where each rank stood. One that stands behind the others is the cause."""
        references = [actor.abort.remote() for actor in self.actors]
        answered, _ = ray.wait(references, num_returns=len(references), timeout=10)
        return [ray.get(reference) if reference in answered else "does not answer" for reference in references]


def _rank_order(member: dict[str, Any]) -> tuple[Any, ...]:
    """Nodes by numeric address, then GPUs by index: the same ranks in every run on the same nodes."""
    return (*numeric(member["ip"]), member["node_id"], int(member["gpu"] or 0), member["pid"])
