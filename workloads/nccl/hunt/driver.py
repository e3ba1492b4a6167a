"""Hunt on the cluster, as a Ray job: ranks that form a process group per test, their gang, and the driver.

python -m workloads.nccl.hunt.driver OPTIONS_JSON
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import ray
import torch
import torch.distributed as dist
from ray.exceptions import RayActorError, RayError, RayTaskError

from workloads.exits import Exit, last_line
from workloads.nccl.driver import describe, run
from workloads.nccl.evidence.node import nearest
from workloads.nccl.gang import Gang
from workloads.nccl.hunt.options import HuntOptions
from workloads.nccl.hunt.result import Answer, Broken, HuntResult, Probe, Rail, Round, Unit, conclude, fields_of
from workloads.nccl.hunt.search import hunt
from workloads.nccl.operations import COLLECTIVES, Operation, Place
from workloads.nccl.rank import Rank
from workloads.nccl.units import busbw
from workloads.rendezvous import select_interface
from workloads.results import emit

SLOW_S = 0.2  # delay of each run by an injected slow fault
BURN_GPU, BURN_CPU = 8192, 256  # side of the square matrices
BURN_S = {True: 2.0, False: 0.1}  # minimum seconds of a burn's sample, on a GPU or a CPU
EXTRA_S = 2  # seconds that the driver waits longer than the ranks, so that ranks that time out can report it


@dataclass(frozen=True)
class Report:
    """Seconds per run of each sample on one rank (FLOP/s of a burn), and the number of wrong elements."""

    samples: list[float]
    wrong: int


class HuntRank(Rank):
    """Actor of one rank. It forms one group after another; a rank whose group broke is killed and replaced."""

    def nics(self) -> list[str]:
        """Return the RDMA devices with the shortest PCI path to this rank's GPU; empty if the path identifies none."""
        address = pci_address(torch.cuda.get_device_properties(0)) if self.use_gpu else None
        return nearest(address) if address else []

    def take_part(
        self, options: HuntOptions, samples: int, fault: str | None, place: Place, address: str, port: int, own_ip: str
    ) -> Report:
        """Run one test: join its group at address:port, measure and verify, leave."""
        if fault == "hang-node":
            threading.Event().wait()
        select_interface(own_ip)
        self.form(place, address, port, options.timeout_s)
        try:
            return self._measure(options, samples, fault)
        finally:
            dist.destroy_process_group()

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

    def _measure(self, options: HuntOptions, count: int, fault: str | None) -> Report:
        gather, device = COLLECTIVES["all_gather"], self.device.torch_device
        operation = Operation(gather, self.place, options.bytes, torch.float32, device)

        def run() -> None:
            if fault in ("slow-node", "slow-rail"):
                time.sleep(SLOW_S)
            operation.run()

        operation.fill(1)
        operation.run()  # also the warm-up: NCCL builds its channels here
        self.device.synchronize()
        if fault == "corrupt-node":
            operation.received[0] = -1  # the pattern holds no negative number
        wrong = operation.wrong()
        samples = []
        for salt in range(count):
            operation.fill(salt + 2)
            self.device.synchronize()
            dist.barrier()
            # The median ignores runs that the operating system delayed.
            samples.append(median(self.device.time(run, options.iterations or 1).per_iteration))
        return Report(samples, wrong + operation.wrong())


def pci_address(gpu: Any) -> str | None:
    """Return a GPU's address in /sys/bus/pci/devices, as pytorch does (torch/numa/binding.py, 2.15.0).

    None for an older torch, whose properties lack it.
    """
    parts = [getattr(gpu, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    return None if None in parts else "{:04x}:{:02x}:{:02x}.0".format(*parts)


@dataclass
class Running:
    """A running test: its ranks in the order of their process group, and their reports and errors so far."""

    probe: Probe
    ranks: list[int]
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

    def _join(self) -> None:
        """Do nothing: each test forms its own group."""

    def units(self) -> list[Unit]:
        """Return the units, each named by its node's host and address, and by rank and GPU if units are ranks."""
        nics, by_rank = self.call("nics", what="listing the NICs"), self.options.unit == "rank"
        rails = [Rail(gpu=member.gpu, nics=nics[member.rank]) for member in self.members]
        found, size = [], self.options.rails
        for unit, member in enumerate(self.members[::size]):
            name, gpu = f"{member.host} ({member.ip})", member.gpu if by_rank else None
            if by_rank:
                name = f"rank {unit} on {name}" + (f", GPU {gpu}" if gpu is not None else "")
            place = member.model_dump(include={"host", "ip", "machine", "node_id"})
            found.append(Unit(unit=unit, name=name, gpu=gpu, rails=rails[unit * size : (unit + 1) * size], **place))
        return found

    def answer(self, tests: Round) -> list[Answer]:
        """Run a round, and return one answer per test. A failed test is an answer, not an error."""
        stages = sorted({test.stage for test in tests})
        emit("round", stages=stages, kind_of=tests[0].kind, tests=len(tests), units=tests[0].units)
        running = [Running(test, self._ranks(test)) for test in tests]
        calls = self._launch(running)
        deadline = time.monotonic() + self.options.timeout_s + EXTRA_S
        waiting = list(calls)
        while waiting and (left := deadline - time.monotonic()) > 0:
            done, waiting = ray.wait(waiting, timeout=left)
            for call in done:
                test, rank = calls[call]
                try:
                    test.reports[rank] = ray.get(call)
                except (RayTaskError, RayActorError) as error:
                    test.errors[rank] = last_line(error)
        answers = [self._conclude(test) for test in running]
        # A rank whose group did not form would misnumber its next group; a hung rank can only be killed.
        broken = sorted(rank for test in running if test.silent or test.errors for rank in test.ranks)
        for rank in broken:
            ray.kill(self.actors[rank])
            self.actors[rank] = self._spawn(self.bundles[rank])
        # The GPUs of a node may return in another order: rank i keeps its position among them, and so its rail.
        self._arrange(broken, "the restart")
        return answers

    def _ranks(self, test: Probe) -> list[int]:
        rails = self.options.rails
        if test.kind != "rail":
            return [unit * rails + rail for unit in test.units for rail in range(rails)]
        first, second = test.units
        rail = test.rail or 0
        return [first * rails + rail, second * rails + (rail + test.shifted) % rails]

    def _launch(self, running: Sequence[Running]) -> dict[Any, tuple[Running, int]]:
        """Start every test; return (test, rank) by reference."""
        options = self.options
        calls: dict[Any, tuple[Running, int]] = {}
        groups = [test for test in running if test.probe.kind != "burn"]
        firsts = [self.members[test.ranks[0]] for test in groups]
        serving = [self.actors[first.rank].serve.remote(first.ip, options.timeout_s) for first in firsts]
        if serving:
            ray.wait(serving, num_returns=len(serving), timeout=options.timeout_s)
        for test, first, reference in zip(groups, firsts, serving, strict=True):
            try:
                port = ray.get(reference, timeout=0)
            except RayError as error:
                test.errors[first.rank] = f"opening the rendezvous: {last_line(error)}"
                continue
            probe = test.probe
            for index, rank in enumerate(test.ranks):
                # A network fault does not affect traffic within a node.
                fault = None if probe.kind == "intra" else options.fault_of(rank)
                place = Place(index, len(test.ranks), 1 if probe.kind == "rail" else options.rails)
                where = place, first.ip, port, self.members[rank].ip
                calls[self.actors[rank].take_part.remote(options, probe.count, fault, *where)] = test, rank
        for test in running:
            for rank in test.ranks if test.probe.kind == "burn" else ():
                calls[self.actors[rank].burn.remote(test.probe.count, options.fault_of(rank))] = test, rank
        return calls

    def _conclude(self, test: Running) -> Answer:
        """Return a test's answer from its ranks' reports: a group is as slow as its slowest rank."""
        if test.silent:
            return Answer(broken="hang", detail=f"no answer from {self._named(test.silent)}")
        if test.errors:
            rank, text = next(iter(test.errors.items()))
            messages = [message.lower() for message in test.errors.values()]
            timed_out = all("timed out" in message or "timeout" in message for message in messages)
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
            where = self._named(sorted(wrong))
            return Answer(samples, "wrong", f"{sum(wrong.values())} wrong elements on {where}")
        return Answer(samples)

    def _named(self, ranks: Iterable[int]) -> str:
        return ", ".join(f"rank {rank} on {self.members[rank].host} ({self.members[rank].ip})" for rank in ranks)


def main(text: str) -> int:
    """Run the hunt with these options, and return the process's exit code."""
    options = HuntOptions.from_json(text)
    gang = HuntGang(options)

    def measure(found: dict[str, Any]) -> tuple[Exit, str]:
        with gang:
            described, units = describe(gang), gang.units()
            found |= {name: described[name] for name in ("backend", "proves", "notice", "versions")}
            began = time.monotonic()
            verdict = hunt(options, gang.answer)
            found |= fields_of(verdict, units)
            found["seconds"] = gang.seconds | {"search": round(time.monotonic() - began, 3)}
        return conclude(verdict, units)

    return run(options, measure, HuntResult)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
