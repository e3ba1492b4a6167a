"""Findings in logs: each broken log has its own, and a good one has none."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from workloads.nccl.evidence.facts import LogFacts, merge
from workloads.nccl.evidence.log_reader import parse_log
from workloads.nccl.evidence.problems import problems

LOGS = Path(__file__).parent / "logs"


@cache
def facts(name: str) -> LogFacts:
    return parse_log((LOGS / f"{name}.log").read_text())


def kinds(name: str, nodes: int = 2, **options: object) -> set[str]:
    """Return the kinds of the findings with code 5, for the machine that the log's name starts with."""
    efa = name.startswith("efa")
    asked = {"nics": 16 if efa else 8, "transport": "efa" if efa else "gib"} | options
    return {found.kind for found in problems(facts(name), nodes=nodes, **asked) if found.code == 5}  # type: ignore[arg-type]  # values of the tables


CASES: dict[str, set[str]] = {
    "gib-two-nodes": set(),
    "gib-one-rank": set(),
    "gib-versions-differ": set(),
    "gib-warnings": set(),
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
    "plugin-not-found": {"truncated-log"},
    "empty": {"empty-log"},
    "no-nccl": {"empty-log"},
    "subsys-init-only": {"no-channel", "nics-unknown"},
    "torch-pairs": {"nics-unknown"},
}


@pytest.mark.parametrize("name", CASES)
def test_log_has_exactly_its_problems(name: str) -> None:
    assert kinds(name) == CASES[name]


def test_old_efa_machine_passes_with_four_nics() -> None:
    assert kinds("efa-nccl-2.18-aws-libfabric", nics=4) == set()
    assert kinds("efa-nccl-2.18-aws-libfabric", nics=5) == {"nic-missing"}


def test_finding_names_missing_nic_and_host() -> None:
    [found] = problems(facts("gib-nic-missing"), nodes=2, nics=8, transport="gib")
    assert found.text == "ray-cluster-gpu-group-worker-kx2mq: 7 of 8 NICs, without mlx5_3"


def test_missing_log_is_a_finding() -> None:
    assert [found.kind for found in problems(None, nodes=2, nics=8, transport="gib")] == ["no-log"]
    assert [found.kind for found in problems(None, nodes=1, nics=None, transport=None)] == ["no-log"]


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


def test_single_rank_on_sockets_is_rejected() -> None:
    both = merge([facts("gib-one-rank"), facts("tcp-fallback")])
    assert "socket-transport" in {found.kind for found in problems(both, nodes=2, nics=8, transport="gib")}


def test_nic_connection_within_one_host_is_rejected() -> None:
    lines = "".join(
        f"node:{rank}:{rank} [0] NCCL INFO comm 0x{rank} rank {rank} nranks 2 cudaDev 0 busId 1 - Init {word}\n"
        for rank in (0, 1)
        for word in ("START", "COMPLETE")
    )
    lines += "node:0:0 [0] NCCL INFO comm 0x0 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n"
    lines += "node:0:0 [0] NCCL INFO Using network gIB\n"
    lines += "node:0:0 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/gIB/0/GDRDMA\n"
    found = problems(parse_log(lines), nodes=2, nics=None, transport="gib")
    assert [(each.code, each.kind) for each in found] == [(5, "same-host")]


def test_remarks_do_not_fail() -> None:
    remarks = {
        name: [found.kind for found in problems(facts(name), nodes=2, nics=8, transport="gib")]
        for name in ("gib-versions-differ", "gib-warnings", "gib-one-rank")
    }
    assert remarks == {
        "gib-versions-differ": ["versions-differ"],
        "gib-warnings": ["warnings"],
        "gib-one-rank": ["some-ranks"],
    }
