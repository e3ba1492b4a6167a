"""A rank's collector: NCCL's settings, the evidence found, and cleanup; also with the real NCCL."""

from __future__ import annotations

import base64
import importlib.util
import io
import os
import shutil
import socket
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.other_user import needs_root
from tests.planted import ATTACKER, VICTIM, as_user, shared_folder
from tests.workloads.nccl.test_evidence_counters import MLX5, written_nic
from workloads.evidence import collect, raw_log
from workloads.evidence.collect import Collected, Collector, assemble, expanded, remove_stale, send_logs
from workloads.evidence.facts import RankEvidence
from workloads.evidence.log_reader import parse_log
from workloads.evidence.raw_log import LogFolder, named, pack, pack_file
from workloads.evidence.show import show_evidence
from workloads.exits import WorkloadError
from workloads.secrecy import Masker

LOG = (Path(__file__).parent / "logs" / "gib-one-rank.log").read_text()
TOKEN = "ray-token-0123456789"


def started(folder: Path, backend: str = "nccl", first: bool = True, **environment: str) -> Collector:
    rank = Collector(
        0, backend, first, environment, infiniband=folder / "sys", temporary=folder, topology=lambda: "GPU0 X PIX"
    )
    rank.start()
    return rank


def write(rank: Collector, text: str) -> Path:
    file = Path(expanded(rank.environment["NCCL_DEBUG_FILE"], socket.gethostname(), os.getpid()))
    file.write_text(text)
    return file


def test_collector_sets_up_reads_and_removes_log(tmp_path: Path) -> None:
    written_nic(tmp_path / "sys", "mlx5_0", MLX5)
    rank = started(tmp_path, RAY_AUTH_TOKEN=TOKEN)
    assert rank.environment["NCCL_DEBUG"] == "INFO"
    assert rank.environment["NCCL_DEBUG_SUBSYS"] == "INIT,NET,GRAPH"
    log = LOG + f"node:1:1 [0] x.cc:1 NCCL WARN refused {TOKEN}\n"
    file = write(rank, log)
    assert file.parent.stat().st_mode & 0o777 == 0o700
    written_nic(tmp_path / "sys", "mlx5_0", {"counters/port_xmit_data": 2_000})
    found = rank.finish(with_log=True)
    assert found.evidence.log is not None
    assert found.evidence.log.plugin == "gIB"
    assert found.evidence.counters is not None
    assert found.evidence.counters[0].sent == 4_000
    assert found.topology == "GPU0 X PIX"
    assert TOKEN not in str(found)
    assert found.raw is not None
    assert found.raw.size == len(log)
    assert not file.parent.exists()
    assert found.missing == []
    assert "NCCL_DEBUG_FILE" not in rank.variables()  # differs on each rank


def test_user_settings_take_precedence(tmp_path: Path) -> None:
    log = str(tmp_path / "mine.%h.%p")
    rank = started(tmp_path, NCCL_DEBUG="TRACE", NCCL_DEBUG_SUBSYS="ALL", NCCL_DEBUG_FILE=log)
    assert rank.environment == {"NCCL_DEBUG": "TRACE", "NCCL_DEBUG_SUBSYS": "ALL", "NCCL_DEBUG_FILE": log}
    file = write(rank, LOG)
    found = rank.finish(with_log=False)
    assert found.evidence.log is not None
    assert found.evidence.log.nranks == 16
    assert file.exists()
    assert found.raw is None


def test_choices_are_logged_between_two_resets_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Timed runs write no line per collective. The log is one again, however many files NCCL began."""
    resets: list[str] = []
    rank = started(tmp_path)
    monkeypatch.setattr(collect, "nccl_reset", lambda: lambda: resets.append(rank.environment["NCCL_DEBUG_SUBSYS"]))
    at = LOG.index("\n", LOG.index("Channel")) + 1
    write(rank, LOG[:at])
    assert rank.log_choices(True)
    chosen = "AllReduce: 1024 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}"
    write(rank, f"node:1:1 [0] NCCL INFO {chosen}\n")
    assert rank.log_choices(False)
    write(rank, LOG[at:])
    assert resets == ["INIT,NET,GRAPH,TUNING", "INIT,NET,GRAPH"]
    found = rank.finish(with_log=True)
    whole = parse_log(LOG[:at] + f"node:1:1 [0] NCCL INFO {chosen}\n" + LOG[at:])
    assert found.evidence.log == whole
    assert any((one.op, one.size, one.algorithm) == ("AllReduce", 1024, "RING") for one in whole.choices)
    assert found.raw is not None
    assert found.raw.size > len(LOG)


def test_choices_are_missing_if_their_log_cannot_be_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_reset() -> None:
        raise AttributeError("ncclResetDebugInit")

    monkeypatch.setattr(collect, "nccl_reset", no_reset)
    rank = started(tmp_path)
    assert not rank.log_choices(True)
    assert rank.environment["NCCL_DEBUG_SUBSYS"] == "INIT,NET,GRAPH"
    [reason] = rank.missing
    assert "--env NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,TUNING" in reason
    assert not started(tmp_path, NCCL_DEBUG_SUBSYS="ALL").log_choices(True)  # the user's setting stays


@pytest.mark.parametrize("level", ["WARN", "VERSION", "warn"])
def test_insufficient_debug_level_is_reported(tmp_path: Path, level: str) -> None:
    rank = started(tmp_path, NCCL_DEBUG=level)
    assert "NCCL_DEBUG_FILE" not in rank.environment  # its output stays where the user expects it
    found = rank.finish(with_log=True)
    assert found.evidence.log is None
    assert any(f"NCCL_DEBUG={level} is set on the ranks" in reason for reason in found.missing)


def test_gloo_rank_reports_missing_log(tmp_path: Path) -> None:
    rank = started(tmp_path, backend="gloo")
    assert rank.environment == {}
    found = rank.finish(with_log=True)
    assert (found.evidence.log, found.evidence.counters, found.raw) == (None, None, None)
    assert found.missing == [
        "NCCL's log: the ranks used gloo, which does not write one",
        f"NIC counters: a rank sees no RDMA NIC on this node ({tmp_path / 'sys'})",
    ]


def test_only_first_rank_of_node_reports_node_evidence(tmp_path: Path) -> None:
    written_nic(tmp_path / "sys", "mlx5_0", MLX5)
    rank = started(tmp_path, backend="gloo", first=False)
    found = rank.finish(with_log=False)
    assert (found.evidence.counters, found.evidence.nics, found.topology) == (None, None, None)
    assert found.missing == ["NCCL's log: the ranks used gloo, which does not write one"]


def test_full_disk_skips_log_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "ROOM", 2**62)
    rank = started(tmp_path)
    assert "NCCL_DEBUG_FILE" not in rank.environment
    found = rank.finish(with_log=True)
    assert found.evidence.log is None
    assert any("no room for it" in reason and "MiB are free" in reason for reason in found.missing)


def test_stale_folders_are_removed(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    dead, *others = (tmp_path / f"rdma-ray-nccl-{of}" for of in (f"{child.pid}-x", f"{os.getpid()}-x", "notes"))
    for folder in (dead, *others):
        folder.mkdir()
    remove_stale(tmp_path)
    assert set(tmp_path.iterdir()) == set(others)


@needs_root
def test_what_another_user_has_in_tmp_stops_no_rank_and_stays() -> None:
    """Where TMPDIR is a folder of all users. No process has this ID: the largest one is below 2^22 (proc(5))."""

    def plant() -> None:
        os.mkfifo(tmp / "rdma-ray-nccl-9999999-fifo", 0o666)
        (tmp / "rdma-ray-nccl-9999999-link").symlink_to(tmp)
        (tmp / "rdma-ray-nccl-9999999-open").mkdir()
        (tmp / "rdma-ray-nccl-9999999-open" / "log").touch()
        (tmp / "rdma-ray-nccl-9999999-open").chmod(0o777)

    with shared_folder() as tmp:
        as_user(ATTACKER, plant)
        before = sorted(tmp.rglob("*"))
        as_user(VICTIM, lambda: (tmp / "rdma-ray-nccl-9999999-own").mkdir())
        as_user(VICTIM, lambda: remove_stale(tmp))
        assert sorted(tmp.rglob("*")) == before


@pytest.mark.parametrize(
    ("pattern", "name"), [("/x/%h.%p", "/x/node.7"), ("a%%h%p", "a%h7"), ("%q%", "%q%"), ("plain", "plain")]
)
def test_log_file_pattern_expands_as_in_nccl(pattern: str, name: str) -> None:
    assert expanded(pattern, "node.example.org", 7) == name


REAL = """
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
class Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]
unique, comm = Id(), ctypes.c_void_p()
lib.ncclGetUniqueId(ctypes.byref(unique))
lib.ncclCommInitRank(ctypes.byref(comm), 1, unique, 0)
if sys.argv[2:]:
    from pathlib import Path
    from workloads.evidence.collect import Collector
    rank = Collector(0, "nccl", first=False, folder=Path(sys.argv[2]), files=1)
    print(rank.log_choices(True))
    lib.ncclCommInitRank(ctypes.byref(comm), 1, unique, 0)
"""


@pytest.fixture
def library() -> str:
    """NVIDIA's library, which torch installs: without a GPU it logs that there is none."""
    package = importlib.util.find_spec("nvidia.nccl")
    if package is None or not package.submodule_search_locations:
        pytest.skip("this torch came without NCCL")
    return str(Path(next(iter(package.submodule_search_locations))) / "lib" / "libnccl.so.2")


def test_real_nccl_writes_to_configured_file(library: str, tmp_path: Path) -> None:
    rank = started(tmp_path, PATH=os.environ["PATH"])
    subprocess.run([sys.executable, "-c", REAL, library], env=rank.environment, check=True, timeout=300)
    found = rank.finish(with_log=True)
    assert found.evidence.log is not None
    assert found.evidence.log.lines > 0
    if shutil.which("nvidia-smi") is None:
        assert any("driver version is insufficient" in warning for warning in found.evidence.log.warnings)
    assert found.raw is not None


def test_real_nccl_begins_another_file(library: str, tmp_path: Path) -> None:
    rank = started(tmp_path, PATH=os.environ["PATH"])
    assert rank.folder is not None
    command = [sys.executable, "-c", REAL, library, str(rank.folder)]
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        command, env=rank.environment, cwd=root, check=True, timeout=300, capture_output=True, text=True
    )
    assert done.stdout == "True\n"
    assert sorted(file.name[0] for file in rank.folder.iterdir()) == ["0", "1"]
    assert rank.finish(with_log=False).evidence.log is not None


def test_long_log_keeps_both_ends_and_notes_gap(tmp_path: Path) -> None:
    lines = [f"node:1:1 [0] NCCL INFO line {number}\n" for number in range(60_000)]
    file = tmp_path / "log"
    file.write_text("".join(lines))
    packed = pack_file(file, Masker())
    assert len(packed.data) <= raw_log.PACKED
    folder = LogFolder(tmp_path / "logs")
    folder.take({"kind": raw_log.KIND} | packed.to_event(0, "node"))
    home = (tmp_path / "logs" / "rank-000.node.log").read_text()
    kept = home.splitlines(keepends=True)
    assert kept[0] == lines[0]
    assert kept[-1] == lines[-1]
    [note] = [line for line in kept if line.startswith("[rdma-ray:")]
    assert note == f"[rdma-ray: {packed.left_out} bytes were left out here]\n"
    assert packed.left_out == file.stat().st_size - (len(home) - len(note))
    assert "(rank 0)" in folder.summary()


def test_logs_of_no_rank_second_logs_and_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anything on the cluster may write to a job's log: the receiver keeps the limits that a rank has."""
    event = {"kind": raw_log.KIND} | pack("x\n" * 1000, 2000, 0).to_event(0, "../../a")
    bomb = base64.b64encode(zlib.compress(b"x" * 2**27, 9)).decode()
    folder = LogFolder(tmp_path / "logs")
    ranks: tuple[Any, ...] = (0, 0, -1, 2**16, 10**24, "1", None, 1.0, True, [], {})
    for rank in ranks:
        folder.take(event | {"rank": rank})
    monkeypatch.setattr(folder, "left", 5 * 2**20)
    for rank in range(1, 9):
        folder.take(event | {"rank": rank, "data": bomb[: raw_log.LONGEST_DATA]})
    files = [*(tmp_path / "logs").iterdir()]
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]
    assert sorted(file.name[:8] for file in files) == ["rank-000", "rank-001"]
    assert sum(file.stat().st_size for file in files) < 5 * 2**20
    assert folder.summary().endswith("17 were refused: without a rank, a second log of a rank, or too large")
    for data in (bomb + "AAAA" * raw_log.PACKED, "x", None, 7, ["x"]):
        with pytest.raises(WorkloadError, match="the log of rank 9 is corrupt"):
            folder.take(event | {"rank": 9, "data": data})


def test_incompressible_log_is_cut_to_limit() -> None:
    text = "".join(f"{os.urandom(30).hex()}\n" for _ in range(10_000))
    packed = pack(text, len(text), 0)
    assert len(packed.data) <= raw_log.PACKED
    assert packed.left_out > 0


def answer(rank: int, **fields: Any) -> Collected:
    return Collected(RankEvidence(rank=rank, log=None, counters=None), **fields)


def test_total_log_size_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pack(LOG, len(LOG), 0)
    monkeypatch.setattr(raw_log, "ALL_PACKED", 2 * len(packed.data) + 1)
    found = {rank: answer(rank, first=True, raw=packed) for rank in range(4)}
    sent: list[int] = []
    unsent = send_logs(found, lambda _kind, **fields: sent.append(fields["rank"]))
    assert sent == [0, 1]
    assert unsent.keys() == {2, 3}
    evidence = assemble(found, unsent)
    assert any("(ranks 2-3)" in reason for reason in evidence.missing)
    assert len(evidence.ranks) == 4


def test_equal_reasons_are_grouped_by_rank() -> None:
    reasons = [["a", "b", "c"], ["a", "b"], ["a", "c"]]
    found = {rank: answer(rank, first=rank != 1, missing=missing) for rank, missing in enumerate(reasons)}
    evidence = assemble(found, {3: "a"})
    assert evidence.missing[:3] == ["a", "b (ranks 0-1)", "c"]
    assert named([5]) == "rank 5"
    assert named([0, 1, 2, 7, 9, 10]) == "ranks 0-2, 7, 9-10"


def test_terminal_shows_transport_and_counters(tmp_path: Path) -> None:
    written_nic(tmp_path / "sys", "mlx5_0", MLX5)
    rank = started(tmp_path, RDMA_RAY_IMAGE="registry.example/ray@sha256:1")
    write(rank, LOG)
    written_nic(tmp_path / "sys", "mlx5_0", {"counters/port_xmit_data": 500_000_000, "hw_counters/out_of_sequence": 4})
    evidence = assemble({0: rank.finish(with_log=False)}, {})
    assert evidence.image == "registry.example/ray@sha256:1"
    assert evidence.missing == []
    written = io.StringIO()
    show_evidence(evidence, Console(width=80, file=written))
    text = written.getvalue()
    assert "NCCL 2.26.6 by the logs of 1 rank, network plugin gIB 1.0.6" in text
    assert "GPUDirect RDMA on 2 of 2 connections, 8 NICs per node" in text
    assert "1 NIC of 1 node sent 2.0 GB and received 0.0 GB" in text
    assert "counted errors: out_of_sequence 1" in text
