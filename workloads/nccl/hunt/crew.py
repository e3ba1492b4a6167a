"""The ranks of a hunt, and how they run a round: each test a process group of its own, all of them at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.placement_group import remove_placement_group

from workloads.exits import last_line
from workloads.nccl.bandwidth import busbw
from workloads.nccl.collectives import Place
from workloads.nccl.gang import Gang, rank_order
from workloads.nccl.hunt.member import Member, Order, Report
from workloads.nccl.hunt.options import HuntOptions
from workloads.nccl.hunt.plan import Answer, Broken, Probe, Round

GRACE_S = 2  # seconds that this side waits longer than the ranks do, so that those who can still speak have spoken
TIME_OUTS = ("timed out", "timeout")


@dataclass
class Running:
    """A test under way: its ranks, in the order of its process group, and what each of them said so far."""

    probe: Probe
    ranks: list[int]
    reports: dict[int, Report] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)

    @property
    def silent(self) -> list[int]:
        return [rank for rank in self.ranks if rank not in self.reports and rank not in self.errors]


class Crew(Gang):
    """A gang whose ranks form a new group for every test. A test that breaks ends its own group only."""

    actor = Member

    def __init__(self, spec: HuntOptions, on_event: Callable[..., None]) -> None:
        super().__init__(spec.gang(), on_event)
        self.hunt = spec
        self.fault = spec.fault
        self.nics: list[list[str]] = []  # RDMA devices of each rank's node

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for actor in self.actors:
            ray.kill(actor)
        if self.group is not None:
            remove_placement_group(self.group)

    def _join(self) -> None:
        """Read the NICs. Groups are formed test by test."""
        self.nics = self.call("nics", what="listing the NICs")

    def answer(self, tests: Round) -> list[Answer]:
        """Run a round; one answer per test, in order. Never raises for what a test did."""
        running = [Running(probe, self._ranks(probe)) for probe in tests]
        references = self._launch(running)
        deadline = time.monotonic() + self.options.timeout_s + GRACE_S
        waiting = list(references)
        while waiting and (left := deadline - time.monotonic()) > 0:
            done, waiting = ray.wait(waiting, timeout=left)
            for reference in done:
                self._note(*references[reference], reference)
        answers = [self._conclude(one) for one in running]
        # A rank whose group could not form counts its next group wrongly; one that hangs in a call can only be ended.
        self._renew({rank for one in running if one.silent or one.errors for rank in one.ranks})
        return answers

    def _ranks(self, probe: Probe) -> list[int]:
        rails = self.hunt.rails
        if probe.kind != "rail":
            return [unit * rails + rail for unit in probe.units for rail in range(rails)]
        first, second = probe.units
        rail = probe.rail or 0
        return [first * rails + rail, second * rails + (rail + probe.shifted) % rails]

    def _launch(self, running: Sequence[Running]) -> dict[Any, tuple[Running, int]]:
        """Start every test; (test, rank) by reference."""
        groups = [one for one in running if one.probe.kind != "burn"]
        # The ranks' patience for one another is the test's; the store's is the same.
        serving = {
            self.actors[one.ranks[0]].serve.remote(self.members[one.ranks[0]].ip, self.options.timeout_s): one
            for one in groups
        }
        ports: dict[int, int] = {}
        ray.wait(list(serving), num_returns=max(1, len(serving)), timeout=self.options.timeout_s) if serving else None
        for reference, one in serving.items():
            try:
                ports[id(one)] = ray.get(reference, timeout=0)
            except RayError as error:
                one.errors[one.ranks[0]] = f"opening the rendezvous: {last_line(error)}"
        references: dict[Any, tuple[Running, int]] = {}
        for one in running:
            for index, rank in enumerate(one.ranks):
                if one.probe.kind == "burn":
                    call = self.actors[rank].burn.remote(one.probe.samples, self._planted(rank))
                elif id(one) in ports:
                    call = self.actors[rank].take_part.remote(self._order(one, index, ports[id(one)]))
                else:
                    continue
                references[call] = (one, rank)
        return references

    def _order(self, one: Running, index: int, port: int) -> Order:
        rank = one.ranks[index]
        rails = 1 if one.probe.kind == "rail" else self.hunt.rails
        return Order(
            place=Place(index, len(one.ranks), rails),
            address=self.members[one.ranks[0]].ip,
            port=port,
            own_ip=self.members[rank].ip,
            timeout_s=self.options.timeout_s,
            size=self.hunt.bytes,
            iterations=self.hunt.iterations or 1,
            samples=one.probe.samples,
            # A fault of the network is none of the ranks of one node among themselves.
            fault=None if one.probe.kind == "intra" else self._planted(rank),
        )

    def _planted(self, rank: int) -> str | None:
        unit, rail = divmod(rank, self.hunt.rails)
        return self.fault.kind if self.fault and self.fault.hits(unit, rail) else None

    def _note(self, one: Running, rank: int, reference: Any) -> None:
        try:
            one.reports[rank] = ray.get(reference)
        except (RayTaskError, RayActorError) as error:
            one.errors[rank] = last_line(error)

    def _conclude(self, one: Running) -> Answer:
        """One answer from what the ranks of a test said: a group is as slow as its slowest rank."""
        if one.silent:
            return Answer(broken="hang", detail=f"no answer from {self._named(one.silent)}")
        if one.errors:
            rank, text = next(iter(one.errors.items()))
            broken: Broken = "hang" if all(map(_timed_out, one.errors.values())) else "error"
            return Answer(broken=broken, detail=f"{self._named([rank])}: {text}")
        reports = [one.reports[rank] for rank in one.ranks]
        wrong = {rank: one.reports[rank].wrong for rank in one.ranks if one.reports[rank].wrong}
        rows = zip(*(report.samples for report in reports), strict=True)
        if one.probe.kind == "burn":
            samples = tuple(min(row) / 1e12 for row in rows)
        else:
            samples = tuple(busbw("all_gather", self.hunt.bytes, max(row), len(one.ranks)) for row in rows)
        if wrong:
            return Answer(samples, "wrong", f"{sum(wrong.values())} wrong elements on {self._named(wrong)}")
        return Answer(samples)

    def _named(self, ranks: Iterable[int]) -> str:
        return ", ".join(f"rank {rank} on {self.members[rank].host} ({self.members[rank].ip})" for rank in ranks)

    def _renew(self, ranks: set[int]) -> None:
        """New processes for these ranks, in their old places."""
        if not ranks:
            return
        for rank in sorted(ranks):
            ray.kill(self.actors[rank])
        fresh = {rank: self._spawn(self.bundles[rank]) for rank in sorted(ranks)}
        described = dict(
            zip(
                fresh,
                self._gather([actor.describe.remote() for actor in fresh.values()], "the restart", self.options.wait_s),
                strict=True,
            )
        )
        for node in {rank // self.per_node for rank in ranks}:
            slots = [rank for rank in sorted(ranks) if rank // self.per_node == node]
            # The GPUs of a node may come back in another order: rank i keeps its place among them, and so its rail.
            for slot, found in zip(slots, sorted(slots, key=lambda rank: rank_order(described[rank])), strict=True):
                self.actors[slot] = fresh[found]
                self.members[slot] = self._member(described[found], slot)


def _timed_out(text: str) -> bool:
    return any(word in text.lower() for word in TIME_OUTS)
