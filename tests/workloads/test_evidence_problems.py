"""What a log has against a run: each broken log is found out, and a good one is let pass."""

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
    """Kinds of the findings with code 5, as the machine that the log's name begins with would be judged."""
    efa = name.startswith("efa")
    asked = {"nics": 16 if efa else 8, "transport": "efa" if efa else "gib"} | options
    return {found.kind for found in problems(facts(name), nodes=nodes, **asked) if found.code == 5}  # type: ignore[arg-type]  # the own values of the tables


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
    "gib-hang-in-initialisation": {"truncated-log"},
    "plugin-not-found": {"truncated-log"},
    "empty": {"empty-log"},
    "no-nccl": {"empty-log"},
    "subsys-init-only": {"no-channel", "nics-unknown"},
    "torch-pairs": {"nics-unknown"},
}


@pytest.mark.parametrize("name", CASES)
def test_each_log_has_its_own_problems_and_no_other(name: str) -> None:
    assert kinds(name) == CASES[name]


def test_an_old_efa_machine_passes_with_its_four_nics() -> None:
    assert kinds("efa-nccl-2.18-aws-libfabric", nics=4) == set()
    assert kinds("efa-nccl-2.18-aws-libfabric", nics=5) == {"nic-missing"}


def test_the_text_names_what_is_missing_and_where() -> None:
    [found] = problems(facts("gib-nic-missing"), nodes=2, nics=8, transport="gib")
    assert found.text == "ray-cluster-gpu-group-worker-kx2mq: 7 of 8 NICs, without mlx5_3"


def test_no_log_is_no_pass() -> None:
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
def test_a_good_log_is_held_against_what_was_asked(options: dict[str, int], kind: str) -> None:
    assert kind in kinds("gib-two-nodes", **options)


def test_a_log_without_a_fabric_is_fine_on_one_node() -> None:
    assert kinds("one-host", nodes=1, ranks=2) == set()
    assert kinds("nccl-2.18-inside-a-node", nodes=1) == set()


def test_where_gpu_direct_is_not_demanded_its_absence_is_a_remark() -> None:
    found = problems(facts("gib-no-gdrdma"), nodes=2, nics=8, transport="gib", gdrdma=False)
    assert [(each.code, each.kind) for each in found] == [(0, "no-gdrdma")]


def test_an_unknown_machine_still_may_not_use_sockets() -> None:
    assert kinds("tcp-fallback", transport=None, nics=None) == {"socket-transport"}
    assert kinds("ib-instead-of-gib", transport=None, nics=None) == set()


def test_one_rank_on_sockets_among_good_ones() -> None:
    both = merge([facts("gib-one-rank"), facts("tcp-fallback")])
    assert "socket-transport" in {found.kind for found in problems(both, nodes=2, nics=8, transport="gib")}


def test_ranks_of_one_host_that_talk_through_a_nic() -> None:
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


def test_remarks_do_not_fail_a_run() -> None:
    remarks = {
        name: [found.kind for found in problems(facts(name), nodes=2, nics=8, transport="gib")]
        for name in ("gib-versions-differ", "gib-warnings", "gib-one-rank")
    }
    assert remarks == {
        "gib-versions-differ": ["versions-differ"],
        "gib-warnings": ["warnings"],
        "gib-one-rank": ["some-ranks"],
    }
