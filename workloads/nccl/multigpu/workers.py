"""The workers of one check: each on a node of its own, all or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from workloads.events import emit
from workloads.interfaces import numeric
from workloads.nccl.multigpu.spec import Spec
from workloads.nccl.multigpu.worker import Worker
from workloads.nccl.placement import Wanted
from workloads.nccl.waiting import answers, wait_for_nodes


class Workers:
    """A worker per node, as a context: leaving it kills them and frees the nodes, whatever happened.

    Only a placement group keeps them apart: two workers that want all GPUs of a node each end on two nodes anyway, and
    two that want a CPU do not.
    """

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.wanted = Wanted(spec.nodes, "GPU" if spec.use_gpu else "CPU", float(spec.devices if spec.use_gpu else 1))
        self.actors: list[Any] = []
        self.members: list[dict[str, Any]] = []  # describe() of each, by rank
        self.group: PlacementGroup | None = None

    def __enter__(self) -> Workers:
        try:
            emit("phase", name="placement")
            self._reserve()
            emit("phase", name="start")
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for actor in self.actors:
            ray.kill(actor)
        if self.group is not None:
            remove_placement_group(self.group)

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]] = (), timeout_s: float | None = None) -> list[Any]:
        """Call `method` on every worker at once, with its own arguments; the answers by rank.

        Raises WorkloadError(HANG) where one has not answered in time, and at once its own error where one fails.
        """
        given = arguments or [()] * len(self.actors)
        references = [getattr(actor, method).remote(*own) for actor, own in zip(self.actors, given, strict=True)]
        patience = timeout_s or self.spec.timeout_s

        def hang(silent: list[int]) -> str:
            return f"{method}: no answer within {patience:.0f} s from worker {', '.join(map(str, silent))}"

        return answers(references, patience, hang)

    def _reserve(self) -> None:
        self.group = placement_group([{self.wanted.kind: self.wanted.amount}] * self.wanted.nodes, "STRICT_SPREAD")
        wait_for_nodes(self.group, self.wanted, self.spec.wait_s, self.spec.elastic, emit)

    def _start(self) -> None:
        assert self.group is not None
        actor_class: Callable[[type[Worker]], Any] = ray.remote
        remote = actor_class(Worker)
        resources = {"num_gpus": self.spec.devices, "num_cpus": 0} if self.spec.use_gpu else {"num_cpus": 1}
        self.actors = [
            remote.options(
                **resources,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self.group, placement_group_bundle_index=bundle),
            ).remote(self.spec.devices, self.spec.use_gpu)
            for bundle in range(self.spec.nodes)
        ]
        # A first start imports torch, on cold machines from a cold disk: it has the nodes' patience.
        described = self.call("describe", timeout_s=self.spec.wait_s)
        order = sorted(range(len(described)), key=lambda i: numeric(described[i]["ip"]))
        self.actors = [self.actors[i] for i in order]
        self.members = [described[i] for i in order]
