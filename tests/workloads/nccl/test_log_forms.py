"""Logs in the forms in which others pass them on: the verdict is that of the plain log, or says what is missing."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable

import pytest

from tests.workloads.nccl.test_judge import text
from workloads.evidence.log_reader import parse_log
from workloads.evidence.log_text import decoded
from workloads.exits import Exit
from workloads.nccl.judge.expectation import Expectation
from workloads.nccl.judge.verdict import judge_texts
from workloads.nccl.result import Verdict

ULTRA = Expectation(machine="a3-ultragpu-8g", nodes=2)
P5 = Expectation(machine="p5.48xlarge", nodes=2)
P5EN = Expectation(machine="p5en.48xlarge", nodes=4, no_log=True)
STAMP = "2026-11-03T14:02:07.123456789Z"


def quoted(line: str) -> str:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerow(["2026-11-03 14:02:07.123", line])
    return out.getvalue().strip()


WRAPS: dict[str, Callable[[str], str]] = {
    "torchrun --tee": lambda line: f"[default0]:{line}",
    "SkyPilot": lambda line: f"[host:0]:{line}",
    "SkyPilot with a rank": lambda line: f"(head, rank=0, pid=2418) {line}",
    "srun --label": lambda line: f"12: {line}",
    "mpirun --tag-output": lambda line: f"[1,0]<stdout>:{line}",
    "mpirun --timestamp-output": lambda line: f"Tue Nov  3 14:02:07 2026[1,0]<stdout>:{line}",
    "SageMaker": lambda line: f"[1,mpirank:0,algo-1]<stdout>:{line}",
    "kubectl --prefix": lambda line: f"[pod/nccl-0-x2fd/nccl] {line}",
    "stern": lambda line: f"nccl-0-x2fd nccl {line}",
    "docker compose": lambda line: f"worker-1  | {line}",
    "CRI": lambda line: f"{STAMP} stdout F {line}",
    "docker json-file": lambda line: json.dumps({"log": line + "\n", "stream": "stdout", "time": STAMP}),
    "Container Insights": lambda line: json.dumps({"kubernetes": {"pod_name": "nccl-0"}, "log": line}),
    "Cloud Logging": lambda line: json.dumps({"textPayload": line, "resource": {"type": "k8s_container"}}),
    "journald": lambda line: json.dumps({"MESSAGE": line, "PRIORITY": "6"}),
    "CSV": quoted,
    "colors": lambda line: f"\x1b[36m(RayWorker pid=22478, ip=10.0.41.17)\x1b[0m {line}",
    "stamp": lambda line: f"[2026-11-03 14:02:07] {line}",
    "glued stamp in brackets": lambda line: f"[14:02:07]{line}",
    "glued time": lambda line: f"14:02:07{line}",
    "glued date": lambda line: f"2026-11-03{line}",
    "glued date and time": lambda line: f"2026-11-03T14:02:07.123Z{line}",
    "CRLF": lambda line: line + "\r",
}
GOOD = [("gib-good.txt", "gib.log", ULTRA), ("efa-good.txt", "efa.log", P5)]
BAD = [
    ("gib-good.txt", "gib-nic-missing.log", ULTRA, "nic-missing"),
    ("efa-good.txt", "efa-nic-missing.log", P5, "nic-missing"),
    ("gib-good.txt", "gib-no-gdrdma.log", ULTRA, "no-gdrdma"),
    ("gib-good.txt", "gib-one-node.log", ULTRA, "some-nodes"),
    ("gib-good.txt", "socket.log", ULTRA, "socket-transport"),
]


def wrapped(given: str, wrap: Callable[[str], str]) -> str:
    return "".join(wrap(line) + "\n" for line in given.splitlines())


def kinds(found: Verdict) -> set[str]:
    return {finding.kind for finding in found.findings if finding.code}


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS.keys())
def test_carrier_of_a_log_does_not_change_the_verdict(wrap: Callable[[str], str]) -> None:
    for results, log, expected in GOOD:
        found = judge_texts(text(results), [wrapped(text(log), wrap)], expected)
        assert found.code == 0, found.findings
    for results, log, expected, kind in BAD:
        found = judge_texts(text(results), [wrapped(text(log), wrap)], expected)
        assert found.code == 5, found.findings
        assert kind in kinds(found), found.findings


@pytest.mark.parametrize("name", ["docker json-file", "CSV", "CRI", "Cloud Logging", "mpirun --timestamp-output"])
def test_carrier_of_results_does_not_change_the_verdict(name: str) -> None:
    for results, log, expected in GOOD:
        assert judge_texts(wrapped(text(results), WRAPS[name]), [text(log)], expected).code == 0


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_encoding_does_not_change_the_verdict(encoding: str) -> None:
    for results, log, expected in GOOD:
        found = judge_texts(decoded(text(results).encode(encoding)), [decoded(text(log).encode(encoding))], expected)
        assert found.code == 0, found.findings


def among_rows(table: str, lines: Callable[[int], str]) -> str:
    """Return the table as rank 0 writes it: a row's three parts, and after each a line of `lines` by the size."""
    row = re.compile(r"(?m)^( *(\d+) +\d+ +\w+ +\w+ +-?\d+)((?: +\S+){4})((?: +\S+){4}) *$")
    return row.sub(lambda at: f"{at[1]}{lines(int(at[2]))}{at[3]}{lines(int(at[2]))}{at[4]}", table)


TUNING = "ray-cluster-gpu-group-worker-684r7:4100:4100 [0] NCCL INFO AllGather: {} Bytes -> Algo RING proto SIMPLE\n"
FOREIGN: dict[str, Callable[[int], str]] = {
    "TUNING": lambda size: 5 * TUNING.format(size),
    "WARN": lambda _: "\nnode-7:41:42 [0] transport/net_ib.cc:221 NCCL WARN NET/IB : Got async event : port error\n",
    "stderr": lambda _: "\nwarning: 3 unknown options\n",
    "stamped": lambda size: "[14:02:07] " + TUNING.format(size),
}


@pytest.mark.parametrize("lines", FOREIGN.values(), ids=FOREIGN.keys())
def test_rows_are_joined_across_lines_of_others(lines: Callable[[int], str]) -> None:
    mixed = among_rows(text("gib-good.txt"), lines)
    assert mixed != text("gib-good.txt")
    assert judge_texts(mixed, [text("gib.log")], ULTRA).code == 0
    assert judge_texts(mixed, [text("socket.log")], ULTRA).code == 5
    assert judge_texts(among_rows(text("below.txt"), lines), [text("gib.log")], ULTRA).code == 2


def test_row_that_is_never_completed_is_damaged() -> None:
    table = text("gib-good.txt").splitlines()
    last = max(number for number, line in enumerate(table) if re.match(r" +\d+ +\d+ ", line))
    table[last] = table[last][:50] + TUNING.format(1).strip()
    assert "damaged" in kinds(judge_texts("\n".join(table), [text("gib.log")], ULTRA))


@pytest.mark.parametrize("value", ["^NVLSTree", "NVLSTree,Ring", "allreduce:NVLSTree"])
def test_algorithm_counts_only_as_one_plain_name(value: str) -> None:
    table = text("p5en-4-nodes.txt")
    assert judge_texts(f"+ mpirun -x NCCL_ALGO={value} all_reduce_perf\n{table}", [], P5EN).code == 2
    assert judge_texts(f"+ mpirun -x NCCL_ALGO=NVLSTree all_reduce_perf\n{table}", [], P5EN).code == 0


def test_algorithm_of_one_run_is_not_that_of_the_next() -> None:
    table = text("p5en-4-nodes.txt")
    first = f"+ mpirun -x NCCL_ALGO=NVLSTree all_reduce_perf\n{table}\n"
    assert judge_texts(first, [], P5EN).code == 0
    assert judge_texts(f"{first}+ mpirun all_reduce_perf\n{table}", [], P5EN).code == 2


def test_algorithm_that_only_the_log_has_counts() -> None:
    log = text("p5en-nvlstree.log")
    log = "".join(line for line in log.splitlines(keepends=True) if "Bytes -> Algo" not in line)
    said = "node-7:41:42 [0] NCCL INFO NCCL_ALGO set by environment to NVLSTree\n"
    expected = Expectation(machine="p5en.48xlarge", nodes=4)
    assert judge_texts(text("p5en-4-nodes.txt"), [log], expected).code == 2
    assert judge_texts(text("p5en-4-nodes.txt"), [said + log], expected).code == 0


def test_process_that_sees_fewest_nics_decides() -> None:
    lines = text("efa.log").splitlines(keepends=True)
    found = [number for number, line in enumerate(lines) if "(found 32 nics)" in line]
    lines[found[1]] = lines[found[1]].replace("32", "24")
    assert "nic-missing" in kinds(judge_texts(text("efa-good.txt"), ["".join(lines)], P5))
    half = len(lines) // 2
    assert "nic-missing" in kinds(judge_texts(text("efa-good.txt"), ["".join(lines[half:]), "".join(lines[:half])], P5))


def test_notice_of_fewer_nics_fails() -> None:
    notice = "node-7:41:42 [0] NCCL INFO Rank 3 has 0 local Net devices (max 8).\n"
    assert "nic-missing" in kinds(judge_texts(text("efa-good.txt"), [notice + text("efa.log")], P5))


@pytest.mark.parametrize("suffix", [" [repeated 15x across cluster]", "\x1b[32m [repeated 2x across cluster]\x1b[0m"])
def test_hidden_lines_fail(suffix: str) -> None:
    log = text("efa.log").replace("Using network Libfabric\n", f"Using network Libfabric{suffix}\n", 1)
    found = judge_texts(text("efa-good.txt"), [log], P5)
    assert kinds(found) == {"lines-left-out"}
    assert "RAY_DEDUP_LOGS=0" in found.reason


def test_every_message_of_a_line_is_read() -> None:
    for results, log, expected, kind in BAD:
        joined = re.sub(r"\n(?=(?:\S+ ){2}NCCL INFO Channel)", "    ", text(log))
        assert kind in kinds(judge_texts(text(results), [joined], expected))
    joined = text("gib.log").replace("\n", " ", 40)
    assert judge_texts(text("gib-good.txt"), [joined], ULTRA).code == 0


def torn(log: str, number: int, characters: int) -> str:
    """Return the log with a connection of a NIC that ends early, joined to the next line."""
    lines = log.splitlines(keepends=True)
    at = [index for index, line in enumerate(lines) if " via NET/" in line][number]
    lines[at] = lines[at].rstrip()[:-characters]
    return "".join(lines)


@pytest.mark.parametrize("characters", [3, 6, 8, 20])
def test_torn_connection_is_not_one_without_gpudirect(characters: int) -> None:
    log = text("gib.log")
    lines = log.splitlines(keepends=True)
    first = next(line for line in lines if " via NET/" in line)
    twice = log.replace(first, first.replace("Channel 0", "Channel 1", 1) + first, 1)
    assert judge_texts(text("gib-good.txt"), [torn(twice, 0, characters)], ULTRA).code == 0


def test_torn_line_that_nothing_repeats_fails() -> None:
    only = re.sub(r"(?m)^.* Channel 0[1-9]/.*\n", "", text("efa.log"))
    log = torn(only, 0, 3)
    assert "damaged-log" in kinds(judge_texts(text("efa-good.txt"), [log], P5))
    assert parse_log("node-7:41:42 [0] NCCL INFO NET/OFI Selected provider is efa, fab\n" + text("efa.log")).damaged


def test_processes_with_several_gpus_count_all_of_them() -> None:
    report = json.loads(text("efa-good.json"))
    devices = report["config"]["devices"]
    report["config"] |= {"ngpus": 8, "nthreads": 1, "devices": [each for each in devices if each["rank"] % 8 == 0]}
    assert judge_texts(json.dumps(report), [text("efa-ring.log")], P5).code == 0


def test_times_of_ten_seconds_have_two_digits() -> None:
    table = text("tcp-fallback.txt")
    column = "1.2e+07    0.74    0.69       0"
    row = f"  8589934592    134217728     float    none      -1  {column}  {column}\n"
    table = re.sub(r"(?m)^ +8589934592 .*\n", row, table)
    found = judge_texts(table, [], ULTRA)
    assert found.code == 5
    assert "units" not in kinds(found)


@pytest.mark.parametrize(
    "line",
    [
        "[rank3]:[E1103 13:48:58 ProcessGroupNCCL.cpp:1870] ProcessGroupNCCL's watchdog got stuck for 480 seconds",
        "[rank6]: Heartbeat monitor timed out! Process will be terminated after dumping debug info.",
        "[PG 0 Rank 1] Received a dump signal due to a collective timeout from rank 6 and we will try our best",
    ],
)
def test_last_words_of_a_watchdog_are_a_hang(line: str) -> None:
    table = "\n".join(each for each in text("gib-good.txt").splitlines() if each.startswith("#"))
    table = re.split("# Out of bounds", table)[0]
    assert judge_texts(table, [text("gib.log") + line + "\n"], ULTRA).code == 4


def test_gpu_initiated_networking_is_named() -> None:
    log = "".join(line for line in text("efa.log").splitlines(keepends=True) if "Channel " not in line)
    found = judge_texts(text("efa-good.txt"), [log], P5)
    assert found.code == 5
    assert "GIN" in found.reason


def test_algorithm_that_the_log_of_two_runs_has_is_of_neither() -> None:
    table = text("p5en-4-nodes.txt")
    said = "ip-10-3-9-21:15102:15102 [0] NCCL INFO NCCL_ALGO set by environment to NVLSTree\n"
    expected = Expectation(machine="p5en.48xlarge", nodes=4, no_log=True)
    assert judge_texts(said + table, [], expected).code == Exit.OK
    assert judge_texts(said + table + table, [], expected).code == Exit.BELOW
