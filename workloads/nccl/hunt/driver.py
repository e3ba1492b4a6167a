"""Hunt on the cluster, as a Ray job: a gang whose ranks form a process group per test, and the driver.

python -m workloads.nccl.hunt.driver OPTIONS_JSON
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from workloads.exits import Exit, blames_peer, last_line
from workloads.gang.actors import answers
from workloads.gang.placement import Reservation, all_nodes
from workloads.nccl.driver import describe, run
from workloads.nccl.gang import EXTRA_PATIENCE_S, NO_ANSWER, BenchGang
from workloads.nccl.hunt.options import HuntOptions
from workloads.nccl.hunt.result import Answer, GroupProbe, HuntResult, Rail, Report, Round, Unit, conclude, fields_of
from workloads.nccl.hunt.search import hunt
from workloads.nccl.hunt.transport import judged, with_logged_nics
from workloads.nccl.kinds import RankPosition
from workloads.nccl.units import busbw
from workloads.results.events import emit

CHECK_S = 5  # seconds between two checks of the nodes of restarting ranks


@dataclass
class Running:
    """A running test: its ranks in the order of their process group, those still awaited, their reports and errors."""

    probe: GroupProbe
    ranks: list[int]
    awaited: set[int] = field(default_factory=set)
    reports: dict[int, Report] = field(default_factory=dict)
    errors: dict[int, RayError] = field(default_factory=dict)

    @property
    def broken(self) -> bool:
        return bool(self.awaited or self.errors)


def failed_by_peer(error: RayError) -> bool:
    """Return whether a rank failed because of another one: its peer ended or does not answer."""
    cause = str(getattr(error, "cause", "")) or str(error)
    return isinstance(error, RayTaskError) and blames_peer(cause)


class HuntGang(BenchGang):
    """A gang whose ranks form a new group for every test. A test that breaks ends only its own group."""

    rank = "workloads.nccl.hunt.rank:HuntRank"
    options: HuntOptions

    def __init__(self, options: HuntOptions, reserved: Reservation | None = None) -> None:
        super().__init__(options, reserved)
        self.gone: dict[int, str] = {}  # why a rank could not be started again

    def _join(self) -> None:
        """Start the evidence only: each test forms its own group."""
        self._watch(range(len(self.actors)))

    def _watch(self, ranks: Iterable[int]) -> None:
        world = len(self.actors)
        places = {rank: (RankPosition(rank, world, self.per_node), self.members[rank].ip) for rank in ranks}
        self._ask("watch", places, "starting the evidence", self.options.timeout_s)

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
        calls = self._launch([test for test in running if self.gone.keys().isdisjoint(test.ranks)])
        for (test, rank), answer in answers(calls, self.options.timeout_s):
            test.awaited.discard(rank)
            if isinstance(answer, RayError):
                test.errors[rank] = answer
            else:
                test.reports[rank] = answer
        silent = [rank for test in running for rank in test.awaited]
        # Before the kill: a communicator that waits for its peers keeps the GPU busy.
        where = self.abort(silent) if silent else {}
        concluded = [self._conclude(test, where) for test in running]
        # A rank whose group did not form would misnumber its next group; a hung rank can only be killed.
        self._restart(sorted(rank for test in running if test.broken for rank in test.ranks))
        return concluded

    def _restart(self, ranks: Sequence[int]) -> None:
        """Replace the actors of these ranks. Those whose node has left the cluster, or that cannot start, are `gone`.

        The evidence of a replaced rank covers its new process only.
        """
        homes = {rank: self.members[rank].node_id for rank in ranks}
        for rank in ranks:
            self.actors.restart(rank)
        if not ranks:
            return
        starting = {self.actors.call(rank, "describe"): rank for rank in ranks}
        deadline = time.monotonic() + self.options.wait_s
        while starting and time.monotonic() < deadline:
            done, _ = ray.wait(list(starting), num_returns=len(starting), timeout=CHECK_S)
            alive = {node["NodeID"] for node in all_nodes() if node["Alive"]}
            for call, rank in list(starting.items()):
                try:
                    # A spare node may take the place of a dead one: it is not the unit that was tested.
                    left = homes[rank] not in alive or (call in done and ray.get(call).node_id != homes[rank])
                    reason = "its node left the cluster" if left else None
                except RayError as error:
                    reason = f"it cannot be restarted: {last_line(error)}"
                if reason is not None:
                    self.gone[rank] = reason
                    self.actors.kill(rank)
                if reason is not None or call in done:
                    del starting[call]
        self.gone |= dict.fromkeys(starting.values(), f"it did not restart within {self.options.wait_s:g} s")
        back = [rank for rank in ranks if rank not in self.gone]
        # The GPUs of a node may return in another order: rank i keeps its position among them, and so its rail.
        self._arrange(back, "the restart")
        self._watch(back)

    def _ranks(self, test: GroupProbe) -> list[int]:
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
        patience = options.timeout_s + EXTRA_PATIENCE_S
        serving = {self.actors.call(first.rank, "serve", first.ip, patience): first.rank for first in firsts}
        ports = dict(answers(serving, options.timeout_s))
        for test, first in zip(groups, firsts, strict=True):
            port = ports.get(first.rank)
            if port is None:
                test.awaited.add(first.rank)  # the others never started
                continue
            if isinstance(port, RayError):
                test.errors[first.rank] = port
                continue
            probe = test.probe
            for index, rank in enumerate(test.ranks):
                place = RankPosition(index, len(test.ranks), 1 if probe.kind == "rail" else options.rails)
                call = self.actors.call(rank, "take_part", options, probe.count, place, first.ip, port)
                calls[call] = test, rank
        for test in running:
            for rank in test.ranks if test.probe.kind == "burn" else ():
                calls[self.actors.call(rank, "burn", test.probe.count)] = test, rank
        for test, rank in calls.values():
            test.awaited.add(rank)
        return calls

    def _conclude(self, test: Running, stages: Mapping[int, str]) -> Answer:
        """Return a test's answer from its ranks' reports: a group is as slow as its slowest rank.

        The detail of a broken test names the ranks that ended, failed or hang, not those that waited for them.
        """
        if gone := [rank for rank in test.ranks if rank in self.gone]:
            return Answer(broken="error", detail=f"{self._named(gone[:1])}: {self.gone[gone[0]]}")
        ended = [rank for rank, error in test.errors.items() if not isinstance(error, RayTaskError)]
        failed = ended or [rank for rank, error in test.errors.items() if not failed_by_peer(error)]
        if failed or (test.errors and not test.awaited):
            rank = (failed or list(test.errors))[0]
            return Answer(broken="error", detail=f"{self._named([rank])}: {last_line(test.errors[rank])}")
        if test.awaited:
            stopped = [rank for rank in test.awaited if stages[rank] == NO_ANSWER]
            hung = [f"{self._named([rank])}: {stages[rank]}" for rank in sorted(stopped or test.awaited)]
            return Answer(broken="hang", detail=f"no answer within {self.options.timeout_s:g} s from {'; '.join(hung)}")
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
            found["seconds"] = gang.seconds | {"search": round(time.monotonic() - began, 3)}
        # The evidence is gathered on exit.
        verdict, units = judged(verdict, options, gang.evidence, gang.gone), with_logged_nics(units, gang.evidence)
        found |= fields_of(verdict, units)
        return conclude(verdict, units)

    return run(options, measure, lambda **found: HuntResult(evidence=gang.evidence, **found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
