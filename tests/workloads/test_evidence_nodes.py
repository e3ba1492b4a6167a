"""Findings on nodes: links, errors, silent NICs."""

from __future__ import annotations

from workloads.nccl.evidence.facts import Counter, Evidence, Nic, RankEvidence
from workloads.nccl.evidence.problems import node_problems


def link(name: str, state: str = "ACTIVE") -> Nic:
    return Nic(name=name, state=state, rate=None, link_layer=None, firmware=None, pci=None, numa_node=None)


def counter(nic: str, sent: int, errors: dict[str, int] | None = None, reset: bool = False) -> Counter:
    return Counter(nic=nic, sent=sent, received=sent, errors=errors or {}, reset=reset)


def evidence(*ranks: RankEvidence) -> Evidence:
    return Evidence(ranks=list(ranks), image=None, topology={}, missing=[])


def node(
    rank: int, links: list[Nic] | None = None, counters: list[Counter] | None = None, driver: str | None = None
) -> RankEvidence:
    return RankEvidence(rank=rank, log=None, counters=counters, host=f"node-{rank}", nics=links, driver=driver)


def found(evidence: Evidence) -> list[tuple[int, str]]:
    return [(finding.code, finding.kind) for finding in node_problems(evidence)]


def test_healthy_nodes_have_no_findings() -> None:
    nics = [f"mlx5_{index}" for index in range(8)]
    healthy = node(0, [link(name) for name in nics], [counter(name, 10**11) for name in nics], "570.133.20")
    assert found(evidence(healthy, RankEvidence(rank=1, log=None, counters=None))) == []


def test_link_down_is_reported() -> None:
    down = evidence(node(0, [link("mlx5_0"), link("mlx5_1", "DOWN")]))
    assert found(down) == [(0, "link-down")]
    assert next(node_problems(down)).text == "node-0: mlx5_1 is DOWN"


def test_nic_errors_and_resets_are_reported() -> None:
    counted = evidence(node(3, None, [counter("a", 5, {"link_downed": 1}), counter("b", 5, reset=True)]))
    assert found(counted) == [(0, "nic-errors"), (0, "nic-reset")]
    assert next(node_problems(counted)).text == "a on node-3 counted errors during the run: link_downed 1"
    assert found(evidence(node(3, None, [counter("a", 5, {"link_downed": 0})]))) == []


def test_silent_nic_among_busy_nics_is_reported() -> None:
    busy = [counter(f"n{index}", 10**11) for index in range(7)]
    assert found(evidence(node(0, None, [*busy, counter("n7", 10**9)]))) == [(0, "nic-silent")]
    assert found(evidence(node(0, None, [*busy, counter("n7", 2 * 10**10)]))) == []
    # One pair on one rail: most NICs are silent by design.
    assert found(evidence(node(0, None, [counter("n0", 10**11), *(counter(f"n{i}", 500) for i in range(1, 8))]))) == []


def test_different_drivers_are_reported() -> None:
    assert found(evidence(node(0, driver="550.90.07"), node(1, driver="570.133.20"))) == [(0, "drivers-differ")]
    assert found(evidence(node(0, driver="550.90.07"), node(1, driver="550.90.07"))) == []
