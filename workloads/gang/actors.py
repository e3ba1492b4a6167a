"""Actors of a gang: the one way to start ranks on reserved nodes, to call them while they live, and to end them.

A benchmark and a hunt have an actor per rank. A run has one per node, which starts the ranks as processes (`agent`).
Training under Ray has Ray Train's workers instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Strategy

from workloads.loading import load

if TYPE_CHECKING:
    # Actors start without Pydantic.
    from workloads.evidence.facts import Evidence
    from workloads.gang.placement import Reservation

EVIDENCE_S = 60  # a log of 256 MiB takes 20 s to read; everything else takes less than a second


Key = TypeVar("Key")


class RankActor:
    """Process of an actor. Only it imports the class at `path`, and with it torch, which takes seconds."""

    def __init__(self, path: str, *arguments: Any) -> None:
        self.rank = load(path)(*arguments)

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self.rank, method)(*arguments)


def answers(calls: Mapping[Any, Key], timeout_s: float) -> Iterator[tuple[Key, Any]]:
    """Yield what each call has answered, or Ray's error in place of it, as they come; after the time-out, no more."""
    pending, deadline = list(calls), time.monotonic() + timeout_s
    while pending:
        done, pending = ray.wait(pending, timeout=max(0.0, deadline - time.monotonic()))
        if not done:
            return
        for call in done:
            try:
                answer = ray.get(call)
            except RayError as error:
                answer = error
            yield calls[call], answer


class Actors:
    """Actors of one gang, by rank in `handles` once started. A reference is that of a call's answer.

    Args:
        path: Class in each actor, as `module:Class`; `arguments` are those of its constructor.
        environment: Variables of the processes.
    """

    def __init__(self, path: str, *arguments: Any, environment: Mapping[str, str] | None = None) -> None:
        self.handles: list[Any] = []
        self._remotes: list[Any] = []
        self._constructor = (path, *arguments)
        # Set when the process starts: libraries read some of these on load.
        self._options: dict[str, Any] = {"runtime_env": {"env_vars": environment}} if environment else {}

    def __len__(self) -> int:
        return len(self.handles)

    def start(self, reserved: Reservation, per_node: int = 1) -> Actors:
        """Start `per_node` actors on each reserved node, which share its GPUs or CPUs equally."""
        slots = int(reserved.request.amount) // per_node
        self._options |= {"num_gpus": slots, "num_cpus": 0} if reserved.request.kind == "GPU" else {"num_cpus": slots}
        actor_class: Callable[..., Callable[[type[RankActor]], Any]] = ray.remote  # this form is untyped in Ray
        remote = actor_class(concurrency_groups={"control": 1})(RankActor)  # a second thread
        self._remotes = [
            remote.options(**self._options, scheduling_strategy=Strategy(reserved.group, spot.bundle))
            for spot in reserved.spots
            for _ in range(per_node)
        ]
        self.handles = [remote.remote(*self._constructor) for remote in self._remotes]
        return self

    def restart(self, rank: int) -> None:
        """Replace the actor of a rank by a new one on the same node."""
        self.kill(rank)
        self.handles[rank] = self._remotes[rank].remote(*self._constructor)

    def kill(self, rank: int) -> None:
        ray.kill(self.handles[rank])

    def close(self) -> None:
        for rank in range(len(self)):
            self.kill(rank)

    def call(self, rank: int, method: str, *arguments: Any) -> Any:
        """Call a method of a rank, and return the reference."""
        return self.handles[rank].call.remote(method, *arguments)

    def control(self, rank: int, method: str, *arguments: Any) -> Any:
        """Call a method of a rank, even while another call of it hangs, and return the reference."""
        return self.handles[rank].call.options(concurrency_group="control").remote(method, *arguments)

    def ask(self, method: str, arguments: Mapping[int, Iterable[Any]], timeout_s: float) -> dict[int, Any]:
        """Call a method on ranks concurrently, each with its arguments. Return the answers of those that are in time.

        A rank's error is raised immediately, while others may still wait for it.
        """
        found: dict[int, Any] = {}
        for rank, answer in answers({self.call(rank, method, *arguments[rank]): rank for rank in arguments}, timeout_s):
            if isinstance(answer, RayError):
                raise answer
            found[rank] = answer
        return found

    def evidence(self, *arguments: Any, emit: Callable[..., None] | None = None) -> Evidence:
        """Collect how the data of the ranks traveled: each actor's answers to `evidence`, called with each argument.

        Never raises: an error here would hide the measurement or its failure.
        """
        calls = [self.control(rank, "evidence", one) for rank in range(len(self)) for one in arguments]
        found: dict[int, Any] = dict.fromkeys(range(len(calls)), TimeoutError(f"no answer within {EVIDENCE_S} s"))
        try:
            found |= answers({call: rank for rank, call in enumerate(calls)}, EVIDENCE_S)
        except RayError as error:
            found = dict.fromkeys(found, error)
        combined: Callable[..., Evidence] = load("workloads.evidence.collect:combined")
        return combined(found, emit)
