"""What a hunt makes of the evidence of its units, and 200 seeds of each kind of broken fleet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from tests.workloads.nccl.broken_fleet import NICS, nccl_log
from tests.workloads.nccl.hunt_simulator import Fabric, Fault, play, search_options
from workloads.evidence.facts import Evidence, RankEvidence
from workloads.evidence.log_reader import parse_log
from workloads.exits import Exit
from workloads.hardware.gpu import Gpu, GpuReading
from workloads.hardware.nic import Counter, Nic
from workloads.nccl.hunt.options import HuntOptions
from workloads.nccl.hunt.result import Accused, Answer, GroupProbe, HuntVerdict, Rail, Round, Unit, conclude
from workloads.nccl.hunt.result import Fault as FaultName
from workloads.nccl.hunt.transport import judged, with_logged_nics
from workloads.nccl.judge.expectation import network_of
from workloads.nccl.kinds import RankPosition

OPTIONS = HuntOptions(nodes=4, per_node=1, network=network_of("gib"), nics=NICS)
HEALTHY = Gpu(
    pci="0000:1b:00.0",
    uuid=None,
    seconds=60,
    before=GpuReading(ecc_uncorrected=0),
    after=GpuReading(ecc_uncorrected=0),
    limited_s={},
    xids=[],
)
TESTED = [GroupProbe("pair", (0, 1), "pairs", failed=False), GroupProbe("pair", (2, 3), "pairs", failed=False)]


def rank(number: int, plugin: str | None = "gIB", nics: int = NICS, place: RankPosition | None = None) -> RankEvidence:
    """Return the evidence of a rank on a node of its own; no log without a plugin."""
    host = f"node-{number}"
    log = parse_log(nccl_log(host, place or RankPosition(0, 2, 1), plugin, nics)) if plugin else None
    return RankEvidence(rank=number, log=log, counters=None, host=host)


def evidence(*ranks: RankEvidence, missing: Sequence[str] = ()) -> Evidence:
    return Evidence(ranks=list(ranks), image=None, topology={}, missing=list(missing))


def units(count: int) -> list[Unit]:
    place = {"ip": "", "machine": "", "node_id": ""}
    names = [f"node-{unit}" for unit in range(count)]
    return [Unit(unit=i, name=name, host=name, gpu=None, rails=[Rail()], **place) for i, name in enumerate(names)]


def outcome(
    *ranks: RankEvidence, verdict: HuntVerdict | None = None, missing: Sequence[str] = ()
) -> tuple[HuntVerdict, Exit]:
    found = judged(verdict or HuntVerdict(tests=TESTED), OPTIONS, evidence(*ranks, missing=missing))
    return found, conclude(found, units(4))[0]


def test_fleet_on_gib_is_clean() -> None:
    found, code = outcome(*map(rank, range(4)))
    assert (found.accused, found.findings, code) == ([], [], Exit.OK)


def test_fleet_on_sockets_is_no_units_fault_and_never_passes() -> None:
    found, code = outcome(*(rank(number, "Socket") for number in range(4)))
    assert found.accused == []
    assert [(one.kind, one.units) for one in found.findings] == [("transport", [])]
    assert code == Exit.NOT_AS_ASKED


@pytest.mark.parametrize(
    ("plugin", "nics", "text"),
    [("Socket", NICS, "NET/Socket"), ("gIB", 1, "node-2: 1 of 2 NICs"), ("IB", NICS, "NCCL used IB")],
)
def test_one_unit_off_the_fabric_is_named_with_its_evidence(plugin: str, nics: int, text: str) -> None:
    found, code = outcome(rank(0), rank(1), rank(2, plugin, nics), rank(3))
    [one] = found.accused
    assert (one.unit, one.fault, found.findings, code) == (2, "transport", [], Exit.NOT_AS_ASKED)
    assert text in one.evidence[0]
    assert "NCCL's plugin" in one.on(units(4)[2]).action


@pytest.mark.parametrize(("fault", "expected"), [("error", "transport"), ("wrong", "wrong"), ("burn", "burn")])
def test_path_explains_a_unit_that_breaks_its_tests(fault: str, expected: str) -> None:
    accused = Accused.of(2, fault, [GroupProbe("pair", (2, 3), "alone", failed=True)])  # type: ignore[arg-type]
    verdict = HuntVerdict(tests=TESTED, accused=[accused])
    found, _ = outcome(rank(0), rank(1), rank(2, "Socket"), rank(3), verdict=verdict)
    [one] = found.accused
    assert (one.unit, one.fault, len(one.evidence), one.tests) == (2, expected, 1, [0])


def test_missing_log_is_reported_with_its_reason_and_does_not_pass() -> None:
    found, code = outcome(rank(0), rank(1), rank(2), rank(3, None), missing=["NCCL's log: NCCL_DEBUG=WARN (rank 3)"])
    assert found.accused == []
    [one] = found.findings
    assert (one.kind, one.units, code) == ("transport", [3], Exit.NOT_AS_ASKED)
    assert "there is no NCCL log" in one.text
    assert "NCCL_DEBUG=WARN" in one.text


def test_unit_without_network_test_needs_no_log() -> None:
    accused = Accused.of(3, "burn", [GroupProbe("burn", (3,), "single", failed=True)])
    verdict = HuntVerdict(tests=[TESTED[0], GroupProbe("pair", (1, 2), "pairs", failed=False)], accused=[accused])
    found, code = outcome(rank(0), rank(1), rank(2), rank(3, None), verdict=verdict)
    assert ([one.fault for one in found.accused], found.findings, code) == (["burn"], [], Exit.BELOW)


def test_hang_outranks_the_log_that_it_took_with_it() -> None:
    tests = [*TESTED, GroupProbe("pair", (0, 1), "alone", broken="hang", failed=True)]
    accused = Accused.of(0, "hang", [tests[-1]])
    found, code = outcome(
        rank(0, None), rank(1, None), rank(2), rank(3), verdict=HuntVerdict(tests=tests, accused=[accused])
    )
    assert (found.findings, code) == ([], Exit.HANG)


def test_nothing_is_expected_of_machines_without_rdma_or_of_one_node() -> None:
    ranks = [rank(number, None) for number in range(4)]
    for changed in ({"network": None}, {"nodes": 1, "per_node": 4, "unit": "rank"}):
        options = OPTIONS.model_copy(update=changed)
        assert judged(HuntVerdict(tests=TESTED), options, evidence(*ranks)).clean


def test_nic_counters_are_remarks_and_evidence_against_an_accused_unit() -> None:
    down = [Nic(name="mlx5_1", state="DOWN", rate=None, link_layer=None, firmware=None, pci=None, numa_node=None)]
    errors = [Counter(nic="mlx5_0", sent=1, received=1, errors={"link_downed": 3})]
    healthy = rank(1).model_copy(update={"counters": errors})
    slow = rank(2).model_copy(update={"nics": down})
    verdict = HuntVerdict(tests=TESTED, accused=[Accused.of(2, "slow", [])])
    found, code = outcome(rank(0), healthy, slow, rank(3), verdict=verdict)
    assert [(one.kind, one.units) for one in found.findings] == [("node", [1])]
    assert "link_downed 3" in found.findings[0].text
    assert [(one.unit, one.fault, one.evidence) for one in found.accused] == [(2, "slow", ["node-2: mlx5_1 is DOWN"])]
    assert code == Exit.BELOW


@pytest.mark.parametrize(("fault", "expected"), [(None, "gpu"), ("slow", "gpu"), ("burn", "gpu"), ("hang", "gpu")])
@pytest.mark.parametrize("errors", [{"xids": [79]}, {"after": GpuReading(ecc_uncorrected=2)}], ids=["xid", "memory"])
def test_gpu_with_errors_accuses_its_unit(errors: dict[str, Any], fault: FaultName | None, expected: FaultName) -> None:
    """Code 5, as `bench nccl` ends with: a unit whose figures are fine must not pass with a broken GPU."""
    bad = rank(2).model_copy(update={"gpus": [HEALTHY.model_copy(update=errors)]})
    accused = [] if fault is None else [Accused.of(2, fault, [])]
    found, code = outcome(rank(0), rank(1), bad, rank(3), verdict=HuntVerdict(tests=TESTED, accused=accused))
    assert [(one.unit, one.fault, one.severity) for one in found.accused] == [(2, expected, "isolate")]
    assert "node-2: GPU 0000:1b:00.0" in found.accused[0].evidence[0]
    assert "dcgmi" in found.accused[0].on(units(4)[2]).action
    assert (found.findings, code) == ([], Exit.NOT_AS_ASKED)
    assert conclude(found, units(4))[1].startswith("node-2 has a GPU with errors")


def test_xid_of_an_application_is_a_remark() -> None:
    crashed = rank(2).model_copy(update={"gpus": [HEALTHY.model_copy(update={"xids": [31]})]})
    found, code = outcome(rank(0), rank(1), crashed, rank(3))
    assert ([one.kind for one in found.findings], found.accused, code) == (["node"], [], Exit.OK)


@pytest.mark.parametrize(
    ("plugin", "size", "nics"),
    [("gIB", 2, ["mlx5_0"]), ("gIB", 4, []), ("Libfabric", 2, []), ("Socket", 2, [])],
    ids=["rail-test", "larger-group", "joined-devices", "sockets"],
)
def test_log_names_nic_of_rail_without_pci_path(plugin: str, size: int, nics: list[str]) -> None:
    """A device of aws-ofi-nccl is several NICs under the name of one, so it names none."""
    logged = rank(0, plugin, place=RankPosition(0, size, 1))
    [named, other] = with_logged_nics(units(2), evidence(logged))
    assert (named.rails[0].nics, other.rails[0].nics) == (nics, [])
    by_path = units(1)[0].model_copy(update={"rails": [Rail(nics=["mlx5_9"])]})
    assert with_logged_nics([by_path], evidence(logged)) == [by_path]


@dataclass
class Fleet(Fabric):
    """A fleet with one broken unit. Samples have 3 % noise, and one in 1,000 is late."""

    kind: str
    unit: int
    seed: int

    def __post_init__(self) -> None:
        faults = [Fault("nic", self.unit, 0.6, rail=3)] if self.kind == "nic" else []
        super().__init__(faults, 0.03, self.seed)
        self.disturbed = Random(self.seed)
        self.dies_in = self.disturbed.randrange(4)  # rounds
        self.played = 0
        self.gone: dict[int, str] = {}

    def answer(self, tests: Round) -> list[Answer]:
        self.played += 1
        return [self.broken(test, answer) for test, answer in zip(tests, super().answer(tests), strict=True)]

    def broken(self, test: GroupProbe, answer: Answer) -> Answer:
        hit = self.unit in test.units
        if hit and self.kind == "hang" and test.kind not in ("burn", "intra"):
            return Answer(broken="hang")
        if hit and self.kind == "dead" and self.played > self.dies_in:
            self.gone = {self.unit * 8: "its node left the cluster"}
            return Answer(broken="error")
        slow = 0.6 if hit and self.kind == "throttled" and test.kind == "burn" else 1.0
        late = [self.disturbed.uniform(0.3, 0.9) if self.disturbed.random() < 0.001 else 1.0 for _ in answer.samples]
        return Answer([sample * slow * one for sample, one in zip(answer.samples, late, strict=True)])


KINDS: dict[str, tuple[set[str], Exit]] = {
    "healthy": (set(), Exit.OK),
    "nic": ({"slow", "unsteady"}, Exit.BELOW),
    "throttled": ({"burn"}, Exit.BELOW),
    "hang": ({"hang"}, Exit.HANG),
    "dead": ({"error"}, Exit.HANG),
    "socket": ({"transport"}, Exit.NOT_AS_ASKED),
}
NETWORK_KINDS = [kind for kind in KINDS if kind != "socket"]


@pytest.mark.parametrize(("kind", "nodes"), [*((kind, 8) for kind in KINDS), *((kind, 40) for kind in NETWORK_KINDS)])
def test_200_seeds_name_the_broken_unit_and_nothing_healthy(kind: str, nodes: int) -> None:
    faults, code = KINDS[kind]
    found = 0
    rails = 1 if kind == "socket" else 8
    plain, odd = [rank(unit) for unit in range(nodes)], [rank(unit, "Socket") for unit in range(nodes)]
    for seed in range(200):
        unit = seed % nodes
        options = search_options(rails=rails, nodes=nodes, samples=5, seed=seed, network=network_of("gib"), nics=NICS)
        fleet = Fleet(kind, unit, seed)
        verdict = play(nodes, fleet, options)
        ranks = [odd[each] if each == unit else plain[each] for each in range(nodes)]
        verdict = judged(verdict, options, evidence(*ranks) if kind == "socket" else None, fleet.gone)
        showed = bool(faults) and (kind != "dead" or bool(fleet.gone))  # a unit may die after its last test
        assert {one.unit for one in verdict.accused} == ({unit} if showed else set()), f"seed {seed}"
        assert {one.fault for one in verdict.accused} <= faults
        assert conclude(verdict, units(nodes))[0] == (code if showed else Exit.OK), f"seed {seed}"
        found += showed
    assert found > 150 or not faults
