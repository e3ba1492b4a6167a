"""Findings in logs and on nodes: each broken one has its own, and a good one has none."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workloads.nccl.test_evidence_log import MLX5, facts
from workloads.evidence.facts import Evidence, RankEvidence
from workloads.evidence.log_reader import parse_log
from workloads.hardware.nic import Counter, Nic
from workloads.nccl.judge.expectation import has_gpu_direct, network_of
from workloads.nccl.problems import node_problems, problems


def kinds(name: str, nodes: int = 2, **options: object) -> set[str]:
    """Return the kinds of the findings for the machine that the log's name starts with. A remark is in parentheses."""
    efa = name.startswith("efa")
    asked: Any = {"nics": 16 if efa else 8, "transport": "efa" if efa else "gib"} | options
    transport = asked.pop("transport")
    network = network_of(transport) if transport else None
    found = list(problems(facts(name), nodes=nodes, network=network, **asked))
    assert {each.code for each in found} <= {0, 5}
    return {each.kind if each.code else f"({each.kind})" for each in found}


CASES: dict[str, set[str]] = {
    "gib-two-nodes": set(),
    "gib-one-rank": {"(some-ranks)"},
    "gib-versions-differ": {"(versions-differ)"},
    "gib-warnings": {"(warnings)"},
    "efa-two-nodes": set(),
    "tcp-fallback": {"socket-transport"},
    "ib-instead-of-gib": {"other-plugin"},
    "gib-no-gdrdma": {"no-gdrdma"},
    "gib-one-rank-without-gdrdma": {"no-gdrdma"},
    "gib-nic-missing": {"nic-missing"},
    "gib-nic-idle": {"nic-idle"},
    "efa-nic-missing": {"nic-missing"},
    "efa-provider-tcp": {"other-provider", "no-gdrdma", "nic-missing"},
    "one-host": {"same-host", "no-channel"},
    "gib-cut-in-a-line": {"truncated-log"},
    "gib-hang-in-initialization": {"truncated-log"},
    "plugin-not-found": {"truncated-log", "(warnings)"},
    "empty": {"empty-log"},
    "no-nccl": {"empty-log"},
    "subsys-init-only": {"no-channel", "nics-unknown", "(some-ranks)"},
    "torch-pairs": {"nics-unknown"},
}


@pytest.mark.parametrize("name", CASES)
def test_log_has_exactly_its_problems(name: str) -> None:
    assert kinds(name) == CASES[name]


def test_infiniband_needs_no_plugin_and_no_sockets() -> None:
    assert kinds("ib-instead-of-gib", transport="ib", nics=None) == set()
    assert kinds("tcp-fallback", transport="ib", nics=None) == {"socket-transport"}


def test_old_efa_machine_passes_with_four_nics() -> None:
    assert kinds("efa-nccl-2.18-aws-libfabric", nics=4) == set()
    assert kinds("efa-nccl-2.18-aws-libfabric", nics=5) == {"nic-missing"}


def test_machine_without_gpudirect_rdma_passes_with_a_remark() -> None:
    network = network_of("gib", gpu_direct=has_gpu_direct("g6.8xlarge"))
    [found] = problems(facts("gib-no-gdrdma"), nodes=2, nics=8, network=network)
    assert (found.code, found.kind) == (0, "no-gdrdma")
    assert [has_gpu_direct(name) for name in ("p5en.48xlarge", "of-another-cloud", None)] == [True] * 3


def test_finding_names_missing_nic_and_host() -> None:
    [found] = problems(facts("gib-nic-missing"), nodes=2, nics=8, network=network_of("gib"))
    assert found.text == "ray-cluster-gpu-group-worker-kx2mq: 7 of 8 NICs, without mlx5_3"


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"nodes": 4}, "too-few-nodes"),
        ({"nodes": 1}, "another-run"),
        ({"ranks": 32}, "too-few-ranks"),
        ({"ranks": 8}, "another-run"),
        ({"transport": "efa"}, "other-plugin"),
        ({"nics": 9}, "nic-missing"),
    ],
)
def test_good_log_of_another_run_is_rejected(options: dict[str, int], kind: str) -> None:
    assert kind in kinds("gib-two-nodes", **options)


def test_single_node_log_needs_no_fabric() -> None:
    assert kinds("one-host", nodes=1, ranks=2) == set()
    assert kinds("nccl-2.18-inside-a-node", nodes=1) == set()


def test_sockets_are_rejected_on_unknown_machine() -> None:
    assert kinds("tcp-fallback", transport=None, nics=None) == {"socket-transport"}
    assert kinds("ib-instead-of-gib", transport=None, nics=None) == set()


def test_nic_connection_within_one_host_is_rejected() -> None:
    lines = "".join(
        f"node:{rank}:{rank} [0] NCCL INFO comm 0x{rank} rank {rank} nranks 2 cudaDev 0 busId 1 - Init {word}\n"
        for rank in (0, 1)
        for word in ("START", "COMPLETE")
    )
    lines += "node:0:0 [0] NCCL INFO comm 0x0 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n"
    lines += "node:0:0 [0] NCCL INFO Using network gIB\n"
    lines += "node:0:0 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/gIB/0/GDRDMA\n"
    found = problems(parse_log(lines), nodes=2, nics=None, network=network_of("gib"))
    assert [(each.code, each.kind) for each in found] == [(5, "same-host")]


def link(name: str, state: str = "ACTIVE") -> Nic:
    return Nic(name=name, state=state, rate=None, link_layer=None, firmware=None, pci=None, numa_node=None)


def counter(nic: str, sent: int, errors: dict[str, int] | None = None, reset: bool = False) -> Counter:
    return Counter(nic=nic, sent=sent, received=sent, errors=errors or {}, reset=reset)


def node(
    rank: int, links: list[Nic] | None = None, counters: list[Counter] | None = None, driver: str | None = None
) -> RankEvidence:
    return RankEvidence(rank=rank, log=None, counters=counters, host=f"node-{rank}", nics=links, driver=driver)


BUSY = [counter(name, 10**11) for name in MLX5[1:]]


@pytest.mark.parametrize(
    ("ranks", "remarks"),
    [
        ([node(0, [link(name) for name in MLX5], [counter(MLX5[0], 10**11), *BUSY], "570.133.20")], []),
        ([RankEvidence(rank=1, log=None, counters=None)], []),
        ([node(0, [link("mlx5_0"), link("mlx5_1", "DOWN")])], ["node-0: mlx5_1 is DOWN"]),
        (
            [node(3, None, [counter("a", 5, {"link_downed": 1}), counter("b", 5, reset=True)])],
            [
                "a on node-3 counted errors during the run: link_downed 1",
                "the counters of b on node-3 restarted from zero during the run: was the NIC reset?",
            ],
        ),
        ([node(3, None, [counter("a", 5, {"link_downed": 0})])], []),
        (
            [node(0, None, [*BUSY, counter("silent", 10**9)])],
            ["silent on node-0 sent 1.0 GB, the node's median NIC 100.0"],
        ),
        ([node(0, None, [*BUSY, counter("slow", 2 * 10**10)])], []),
        # One pair on one rail: most NICs are silent by design.
        ([node(0, None, [counter("n0", 10**11), *(counter(name, 500) for name in MLX5[1:])])], []),
        (
            [node(0, driver="550.90.07"), node(1, driver="570.133.20")],
            ["the nodes run different GPU drivers: 550.90.07, 570.133.20"],
        ),
        ([node(0, driver="550.90.07"), node(1, driver="550.90.07")], []),
    ],
)
def test_remarks_on_nodes(ranks: list[RankEvidence], remarks: list[str]) -> None:
    found = list(node_problems(Evidence(ranks=ranks, image=None, topology={}, missing=[])))
    assert [each.text for each in found] == remarks
    assert not any(each.code for each in found)
