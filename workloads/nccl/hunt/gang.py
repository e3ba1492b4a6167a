"""Ranks of a hunt: Ray actors that form a process group per test, and the gang that runs a round of tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import median
from typing import Any

import ray
import torch
import torch.distributed as dist
from ray.exceptions import RayActorError, RayError, RayTaskError
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # public, yet not among torch's typed exports

from workloads.exits import last_line
from workloads.nccl.bandwidth import busbw
from workloads.nccl.evidence.node import INFINIBAND
from workloads.nccl.gang import Gang, rank_order
from workloads.nccl.hunt.options import HuntOptions
from workloads.nccl.hunt.result import Answer, Broken, Probe, Round
from workloads.nccl.operations import COLLECTIVES, Operation, Place
from workloads.nccl.rank import Rank, select_interface

SLOW_S = 0.2  # delay of each run by an injected slow fault
BURN_GPU, BURN_CPU = 8192, 256  # side of the square matrices
BURN_S = {True: 2.0, False: 0.1}  # minimum seconds of a burn's sample, on a GPU or a CPU
EXTRA_S = 2  # seconds that the driver waits longer than the ranks, so that ranks that time out can report it


@dataclass(frozen=True, kw_only=True)
class Order:
    """One test for one rank. `fault` is the kind of an injected fault of this rank."""

    place: Place
    address: str
    port: int
    own_ip: str
    timeout_s: float
    size: int
    iterations: int
    samples: int
    fault: str | None


@dataclass(frozen=True)
class Report:
    """Measurement of one rank: seconds per run of each sample (FLOP/s of a burn), and the number of wrong elements."""

    samples: list[float]
    wrong: int


class HuntRank(Rank):
    """Actor of one rank. It forms one group after another; a rank whose group broke is killed and replaced."""

    def nics(self) -> list[str]:
        """Return the names of the node's RDMA devices."""
        return sorted(entry.name for entry in INFINIBAND.iterdir()) if INFINIBAND.is_dir() else []

    def take_part(self, order: Order) -> Report:
        """Run one test: join its group, measure and verify, leave."""
        self.loop.stage = "before its first call"
        if order.fault == "hang-node":
            threading.Event().wait()
        self._form(order)
        try:
            return self._measure(order)
        finally:
            self.loop.stage = "leaving the group"
            self.leave()

    def burn(self, samples: int, fault: str | None) -> Report:
        """Multiply matrices on this device alone: bf16 on a GPU, fp32 on a CPU."""
        side = BURN_GPU if self.use_gpu else BURN_CPU
        dtype = torch.bfloat16 if self.use_gpu else torch.float32
        left = torch.ones(side, side, dtype=dtype, device=self.device.torch_device)
        product = left @ left  # the first product is not timed: it loads the library
        self.device.synchronize()
        rates = []
        for _ in range(samples):
            runs, began = 0, time.perf_counter()
            while time.perf_counter() - began < BURN_S[self.use_gpu]:
                if fault == "slow-burn":
                    time.sleep(SLOW_S)
                torch.matmul(left, left, out=product)
                self.device.synchronize()
                runs += 1
            rates.append(2 * side**3 * runs / (time.perf_counter() - began))
        # Every element of a product of ones is the side, which both types hold exactly.
        return Report(rates, int((product != side).sum().item()))

    def _form(self, order: Order) -> None:
        self.loop.stage = "forming the group"
        self.place = order.place
        select_interface(order.own_ip)
        timeout = timedelta(seconds=order.timeout_s)
        if order.place.rank:
            self.store = TCPStore(order.address, order.port, is_master=False, timeout=timeout)
        dist.init_process_group(
            self.device.backend,
            store=self.store,
            rank=order.place.rank,
            world_size=order.place.world,
            timeout=timeout,
        )

    def _measure(self, order: Order) -> Report:
        gather, device = COLLECTIVES["all_gather"], self.device.torch_device
        operation = Operation(gather, order.place, order.size, torch.float32, device)

        def run() -> None:
            if order.fault in ("slow-node", "slow-rail"):
                time.sleep(SLOW_S)
            operation.run()

        self.loop.stage = "in the verification"
        operation.fill(1)
        operation.run()  # also the warm-up: NCCL builds its channels here
        self.device.synchronize()
        if order.fault == "corrupt-node":
            operation.received[0] = -1  # the pattern holds no negative number
        wrong = operation.wrong()
        self.loop.stage = "in the timed runs"
        samples = []
        for salt in range(order.samples):
            operation.prepare(salt + 2)
            self.device.synchronize()
            dist.barrier()
            # The median ignores runs that the operating system delayed.
            samples.append(median(self.device.time(run, order.iterations).per_iteration))
        return Report(samples, wrong + operation.left_wrong())


@dataclass
class Running:
    """A running test: its ranks in the order of their process group, and their reports and errors so far."""

    probe: Probe
    ranks: list[int]
    port: int | None = None
    reports: dict[int, Report] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)

    @property
    def silent(self) -> list[int]:
        return [rank for rank in self.ranks if rank not in self.reports and rank not in self.errors]


class HuntGang(Gang):
    """A gang whose ranks form a new group for every test. A test that breaks ends only its own group."""

    actor = HuntRank
    collects_evidence = False  # its ranks start no collector
    options: HuntOptions

    def __init__(self, options: HuntOptions, on_event: Callable[..., None]) -> None:
        super().__init__(options, on_event)
        self.fault = options.fault
        self.nics: list[list[str]] = []  # RDMA devices of each rank's node

    def _join(self) -> None:
        """Read the NICs. Each test forms its own group."""
        self.nics = self.call("nics", what="listing the NICs")

    def answer(self, tests: Round) -> list[Answer]:
        """Run a round, and return one answer per test. A failed test is an answer, not an error."""
        running = [Running(probe, self._ranks(probe)) for probe in tests]
        references = self._launch(running)
        deadline = time.monotonic() + self.options.timeout_s + EXTRA_S
        waiting = list(references)
        while waiting and (left := deadline - time.monotonic()) > 0:
            done, waiting = ray.wait(waiting, timeout=left)
            for reference in done:
                test, rank = references[reference]
                try:
                    test.reports[rank] = ray.get(reference)
                except (RayTaskError, RayActorError) as error:
                    test.errors[rank] = last_line(error)
        answers = [self._conclude(test) for test in running]
        # A rank whose group did not form would misnumber its next group; a hung rank can only be killed.
        self._replace({rank for test in running if test.silent or test.errors for rank in test.ranks})
        return answers

    def _ranks(self, probe: Probe) -> list[int]:
        rails = self.options.rails
        if probe.kind != "rail":
            return [unit * rails + rail for unit in probe.units for rail in range(rails)]
        first, second = probe.units
        rail = probe.rail or 0
        return [first * rails + rail, second * rails + (rail + probe.shifted) % rails]

    def _launch(self, running: Sequence[Running]) -> dict[Any, tuple[Running, int]]:
        """Start every test; return (test, rank) by reference."""
        timeout_s = self.options.timeout_s
        groups = [test for test in running if test.probe.kind != "burn"]
        firsts = [self.members[test.ranks[0]] for test in groups]
        serving = [self.actors[first.rank].serve.remote(first.ip, timeout_s) for first in firsts]
        if serving:
            ray.wait(serving, num_returns=len(serving), timeout=timeout_s)
        for test, reference in zip(groups, serving, strict=True):
            try:
                test.port = ray.get(reference, timeout=0)
            except RayError as error:
                test.errors[test.ranks[0]] = f"opening the rendezvous: {last_line(error)}"
        references: dict[Any, tuple[Running, int]] = {}
        for test in running:
            for index, rank in enumerate(test.ranks):
                if test.probe.kind == "burn":
                    call = self.actors[rank].burn.remote(test.probe.samples, self._fault_of(rank))
                elif test.port is not None:
                    call = self.actors[rank].take_part.remote(self._order(test, index, test.port))
                else:
                    continue
                references[call] = (test, rank)
        return references

    def _order(self, test: Running, index: int, port: int) -> Order:
        rank = test.ranks[index]
        return Order(
            place=Place(index, len(test.ranks), 1 if test.probe.kind == "rail" else self.options.rails),
            address=self.members[test.ranks[0]].ip,
            port=port,
            own_ip=self.members[rank].ip,
            timeout_s=self.options.timeout_s,
            size=self.options.bytes,
            iterations=self.options.iterations or 1,
            samples=test.probe.samples,
            # A network fault does not affect traffic within a node.
            fault=None if test.probe.kind == "intra" else self._fault_of(rank),
        )

    def _fault_of(self, rank: int) -> str | None:
        unit, rail = divmod(rank, self.options.rails)
        return self.fault.kind if self.fault and self.fault.hits(unit, rail) else None

    def _conclude(self, test: Running) -> Answer:
        """Return a test's answer from its ranks' reports: a group is as slow as its slowest rank."""
        if test.silent:
            return Answer(broken="hang", detail=f"no answer from {self._named(test.silent)}")
        if test.errors:
            rank, text = next(iter(test.errors.items()))
            timed_out = all("timed out" in each.lower() or "timeout" in each.lower() for each in test.errors.values())
            broken: Broken = "hang" if timed_out else "error"
            return Answer(broken=broken, detail=f"{self._named([rank])}: {text}")
        reports = [test.reports[rank] for rank in test.ranks]
        rows = zip(*(report.samples for report in reports), strict=True)
        if test.probe.kind == "burn":
            samples = tuple(min(row) / 1e12 for row in rows)
        else:
            samples = tuple(busbw("all_gather", self.options.bytes, max(row), len(test.ranks)) for row in rows)
        wrong = {rank: report.wrong for rank, report in test.reports.items() if report.wrong}
        if wrong:
            return Answer(samples, "wrong", f"{sum(wrong.values())} wrong elements on {self._named(sorted(wrong))}")
        return Answer(samples)

    def _named(self, ranks: Iterable[int]) -> str:
        return ", ".join(f"rank {rank} on {self.members[rank].host} ({self.members[rank].ip})" for rank in ranks)

    def _replace(self, ranks: set[int]) -> None:
        """Start new processes for these ranks on the same nodes."""
        if not ranks:
            return
        for rank in sorted(ranks):
            ray.kill(self.actors[rank])
        new = {rank: self._spawn(self.bundles[rank]) for rank in sorted(ranks)}
        references = [actor.describe.remote() for actor in new.values()]
        described = dict(zip(new, self._gather(references, "the restart", self.options.wait_s), strict=True))
        for node in {rank // self.per_node for rank in ranks}:
            slots = [rank for rank in sorted(ranks) if rank // self.per_node == node]
            # The GPUs of a node may return in another order: rank i keeps its position among them, and so its rail.
            for slot, found in zip(slots, sorted(slots, key=lambda rank: rank_order(described[rank])), strict=True):
                self.actors[slot] = new[found]
                self.members[slot] = self._member(described[found], slot)
