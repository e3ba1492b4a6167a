"""Reader of NCCL's log: every format of the corpus, and any other text."""

from __future__ import annotations

import re
import time
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.evidence.facts import Channel, LogFacts, merge, thinned
from workloads.evidence.log_reader import parse_log

LOGS = Path(__file__).parent / "logs"
A, B = "ray-cluster-gpu-group-worker-684r7", "ray-cluster-gpu-group-worker-kx2mq"
MLX5 = [f"mlx5_{index}" for index in range(8)]


@cache
def text(name: str) -> str:
    return (LOGS / f"{name}.log").read_text()


@cache
def facts(name: str) -> LogFacts:
    return parse_log(text(name))


def carried(found: LogFacts) -> list[Channel]:
    return [channel for channel in found.channels if channel.transport == "NET"]


# Log of each format: (version, plugin, plugin's version, ranks, nodes, hosts known, NICs by name, connections through
# NICs). test_evidence_problems.py has the other logs.
EXPECTED: dict[str, tuple[str | None, str | None, str | None, int | None, int | None, int, int, int]] = {
    "efa-nccl-2.18-aws-libfabric": ("2.18.5", "Libfabric", "1.7.4-aws", 2, 2, 2, 4, 4),
    "efa-two-nodes": ("2.27.7", "Libfabric", "1.16.3", 16, 2, 16, 8, 32),
    "empty": (None, None, None, None, None, 0, 0, 0),
    "gib-cut-in-a-line": ("2.26.6", "gIB", "1.0.6", 4, 2, 4, 8, 7),
    "gib-hang-in-initialization": ("2.26.6", "gIB", "1.0.6", 4, 2, 4, 8, 0),
    "gib-one-rank": ("2.26.6", "gIB", "1.0.6", 16, 2, 1, 8, 2),
    "gib-two-nodes": ("2.26.6", "gIB", "1.0.6", 16, 2, 16, 8, 32),
    "ib-instead-of-gib": ("2.26.6", "IB", None, 4, 2, 4, 8, 8),
    "nccl-2.18-inside-a-node": ("2.18.3", "IB", None, 2, 1, 2, 2, 0),
    "nccl-2.22-numbered-algorithms": ("2.22.3", "IB", None, 2, 2, 1, 2, 2),
    "nccl-2.30-no-driver": (None, None, None, None, None, 0, 0, 0),
    "nccl-2.30-timestamps": ("2.30.7", "IB", None, 2, 2, 1, 4, 2),
    "no-nccl": (None, None, None, None, None, 0, 0, 0),
    "one-host": ("2.26.6", "gIB", "1.0.6", 2, 1, 2, 8, 0),
    "plugin-not-found": ("2.26.6", None, None, None, None, 0, 0, 0),
    "subsys-init-only": ("2.26.6", "gIB", None, 16, 2, 1, 0, 0),
    "tcp-fallback": ("2.27.7", "Socket", None, 4, 2, 4, 1, 8),
    "torch-pairs": ("2.27.7", "gIB", None, 4, 2, 4, 0, 2),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_log_formats_are_read(name: str) -> None:
    found = facts(name)
    names = (found.nccl_version, found.plugin, found.plugin_version)
    counts = (found.nranks, found.nnodes, len(found.hosts), len(found.hcas), len(carried(found)))
    assert (*names, *counts) == EXPECTED[name]


def test_complete_gib_log_is_read() -> None:
    found = facts("gib-two-nodes")
    assert found.hcas == MLX5
    assert found.nics_by_host == {A: MLX5, B: MLX5}
    assert found.gdrdma_hcas == list(range(8))
    assert found.no_gdrdma_hcas == []
    assert found.hosts == {rank: A if rank < 8 else B for rank in range(16)}
    assert all(channel.gdrdma and channel.plugin == "gIB" for channel in carried(found))
    assert {channel.device for channel in carried(found)} == set(range(8))
    assert found.algorithms == ["TREE/LL128", "NVLS_TREE/SIMPLE", "RING/SIMPLE"]
    choices = {("AllReduce", 2**23), ("AllReduce", 2**30), ("AllGather", 2**29), ("ReduceScatter", 2**29)}
    assert {(choice.op, choice.size) for choice in found.choices} == choices
    assert found.nvls_channels == 16
    assert found.lines == 548


def test_libfabric_nic_count_is_read() -> None:
    found = facts("efa-two-nodes")
    assert found.nics_found == {"ip-10-1-14-201": 16, "ip-10-1-27-88": 16}
    assert (found.provider, found.fabric) == ("efa", "efa-direct")
    assert facts("efa-nccl-2.18-aws-libfabric").provider == "efa"


def test_channels_within_a_node_are_read() -> None:
    found = facts("nccl-2.18-inside-a-node")
    channels = [(channel.sender, channel.receiver, channel.transport) for channel in found.channels]
    assert channels == [(0, 1, "P2P"), (1, 0, "SHM")]
    assert all(channel.plugin is None and channel.device is None for channel in found.channels)


def test_numbered_algorithms_are_named() -> None:
    found = facts("nccl-2.22-numbered-algorithms")
    assert found.algorithms == ["TREE/LL128", "RING/SIMPLE"]
    assert found.hcas == ["mlx5_0", "mlx5_1"]  # a dual-port NIC is one device
    assert [channel.transport for channel in found.channels] == ["NET", "NET", "COLLNET"]


def test_unfinished_ranks_are_listed() -> None:
    assert facts("gib-hang-in-initialization").unfinished == [0, 1, 2, 3]
    assert facts("gib-cut-in-a-line").unfinished == [3]


def test_truncated_line_is_ignored() -> None:
    whole = "a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/gIB/0/GDRDMA\n"
    assert not parse_log(whole).truncated
    for cut in range(len(whole) - 1, whole.index("NCCL INFO ") + 9, -1):
        found = parse_log(whole[:cut])
        assert found.truncated
        assert found.channels == []


@pytest.mark.parametrize(
    "prefix",
    ["", "[1,11]<stdout>:", "2026-11-20T09:14:31Z ", "\x1b[36m(Rank pid=7, ip=1.0.0.1)\x1b[0m ", "[pod/job-0-x/nccl] "],
)
def test_line_prefixes_are_ignored(prefix: str) -> None:
    lines = text("nccl-2.18-inside-a-node").splitlines()
    assert parse_log("".join(f"{prefix}{line}\r\n" for line in lines)) == facts("nccl-2.18-inside-a-node")


@pytest.mark.parametrize("name", ["gib-two-nodes", "efa-two-nodes", "tcp-fallback"])
def test_merged_rank_logs_equal_combined_log(name: str) -> None:
    whole = facts(name)
    apart: dict[str, list[str]] = {}
    for line in text(name).splitlines(keepends=True):
        process = re.search(r"(\S+:\d+):\d+ \[\d+\] NCCL", line)
        apart.setdefault(process[1] if process else "", []).append(line)
    assert len(apart) == whole.nranks
    together = merge([parse_log("".join(lines)) for lines in apart.values()])
    for field in ("nccl_version", "plugin", "nranks", "nnodes", "hosts", "gdrdma_hcas", "lines", "truncated"):
        assert getattr(together, field) == getattr(whole, field)
    assert set(together.channels) == set(whole.channels)
    assert set(together.hcas) == set(whole.hcas)
    assert together.nics_by_host.keys() == whole.nics_by_host.keys()


def test_thinned_facts_keep_connections_without_gdrdma() -> None:
    whole = facts("gib-one-rank-without-gdrdma")
    bad = [channel for channel in carried(whole) if not channel.gdrdma]
    for keep in (len(bad), len(bad) + 4, len(whole.channels), 1000):
        thin = thinned(whole, keep, warnings=1)
        assert set(bad) <= set(thin.channels) <= set(whole.channels)
        assert len(thin.channels) + thin.channels_left_out == len(whole.channels)
    assert thinned(whole, 1000, warnings=1) == whole
    one_each = thinned(facts("gib-two-nodes"), 24, warnings=1)
    assert {(channel.device, channel.end) for channel in one_each.channels if channel.transport == "NET"} == {
        (device, end) for device in range(8) for end in ("send", "receive")
    }
    warned = thinned(facts("gib-warnings"), 1000, warnings=1)
    assert (len(warned.warnings), warned.warnings_left_out) == (1, 1)


def test_lost_log_marks_merged_facts_truncated() -> None:
    good = facts("gib-one-rank")
    assert not merge([good]).truncated
    assert merge([good, parse_log("")]).truncated
    assert merge([]) == parse_log("")


PARTS = (
    "NCCL |INFO |WARN |Channel 00/0 : |0[0] -> |via NET/gIB/|/GDRDMA|comm 0x1 rank | nranks |Init START|\n|\x00|²|[|("
    "|HCA 0 '|NET/IB : Using|Bytes -> Algo |\ud800|999999999999999999999999999999"
)
line_parts = st.sampled_from(PARTS.split("|"))


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(), st.lists(st.one_of(line_parts, st.text(max_size=5))).map("".join)))
def test_any_text_is_read(anything: str) -> None:
    found = merge([parse_log(anything), parse_log("node:1:1 [0] NCCL INFO " + anything)])
    assert LogFacts.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize(
    "piece",
    [
        text("gib-two-nodes"),
        "NCCL ",
        "a:1:1 [0] NCCL WARN token=abc " + "x" * 900 + "\n",
        "a:1:1 [0] NCCL INFO NET/IB : Using" + " [0]mlx5_0:1/RoCE" * 500 + "\n",
    ],
    ids=["log", "one line", "warnings", "long lines"],
)
def test_reading_time_is_linear(piece: str) -> None:
    def seconds(size: int) -> float:
        whole = piece * (size // len(piece) + 1)
        best = float("inf")
        for _ in range(3):
            began = time.process_time()
            parse_log(whole)
            best = min(best, time.process_time() - began)
        return best

    # Eight times the text takes eight times the time; quadratic time would be sixty-four times.
    assert seconds(2_000_000) < 24 * seconds(250_000) + 0.05
