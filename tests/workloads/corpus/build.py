"""Write the corpus: `python -m tests.workloads.corpus.build`. A test compares the files with this output.

Good runs have bandwidths near the published ones of their machines (infra/catalog/baselines.py).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.workloads.corpus.formats import (
    A3U,
    A4,
    GIB,
    P4D,
    P5,
    P5EN4,
    Output,
    Row,
    log,
    mixed,
    old,
    report,
    sweep,
    tagged,
    text,
)
from tests.workloads.corpus.own import result

FOLDER = Path(__file__).parent / "files"
MIB = 2**20
BAD_UNITS = {"gigabits": (8.0, 1.0), "gibibytes": (1e9 / 2**30, 1.0), "milliseconds": (1.0, 1e-3)}


def files() -> dict[str, str]:
    """Return the content by name."""
    gather = Output("all_gather", A3U, sweep("all_gather", 16, 331.0))
    reduce_ = Output("all_reduce", P5, sweep("all_reduce", 16, 488.3, end=16 * GIB))
    return logs() | good(gather, reduce_) | slow(gather) | wrong(gather) | broken(gather) | others(gather) | own(gather)


def logs() -> dict[str, str]:
    whole = log(A3U)
    return {
        "gib.log": whole,
        "gib-nic-missing.log": log(A3U, found=7),
        "gib-no-gdrdma.log": log(A3U, gdrdma=False),
        "gib-one-node.log": "".join(line for line in whole.splitlines(keepends=True) if line.startswith(A3U.hosts[0])),
        "gib-cut.log": whole[: len(whole) * 2 // 3],
        "a4.log": log(A4, algorithm="NVLS_TREE"),
        "efa.log": log(P5, algorithm="NVLS_TREE"),
        "efa-ring.log": log(P5),
        "efa-nic-missing.log": log(P5, found=31, algorithm="NVLS_TREE"),
        "p5en-ring.log": log(P5EN4),
        "p5en-nvlstree.log": log(P5EN4, algorithm="NVLS_TREE"),
        "p4d.log": log(P4D, algorithm="TREE"),
        "socket.log": log(replace(A3U, plugin="Socket", nics=1)),
        "watchdog.log": log(A3U)
        + "[rank3]:[E1120 09:24:03.118207412 ProcessGroupNCCL.cpp:685] [Rank 3] Watchdog caught collective operation"
        " timeout: WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=2147483648, Timeout(ms)=600000) ran for 600021"
        " milliseconds before timing out.\n",
    }


def good(gather: Output, reduce_: Output) -> dict[str, str]:
    table = text(gather)
    return {
        "gib-good.txt": table,
        "gib-good-mpirun.txt": tagged(mixed(table, log(A3U)), ("[1,0]<stdout>:", "[1,0]<stdout>:", "[1,0]<stderr>:")),
        "gib-good-ansi-crlf.txt": "".join(
            f"\x1b[36m(NcclTests pid=4100, ip=10.52.2.7)\x1b[0m {line}\r\n" for line in table.splitlines()
        ),
        "gib-good-skypilot.txt": tagged(table, ("(head, rank=0, pid=3808) [1,0]<stdout>:",)),
        "gib-good-mpi-build.txt": table.replace("all_gather_perf", "all_gather_perf_mpi"),
        "gib-good-pdsh.txt": tagged(table, (f"{A3U.hosts[0]}: ",)),
        "gib-good-per-iteration.txt": text(gather, per_iteration=True),
        "gib-good-version.txt": "NCCL version 2.26.6+cuda12.8\n" + table,
        "gib-good-unnamed.txt": text(replace(gather, named=False)),
        "efa-good.txt": text(reduce_),
        "efa-good.json": report(Output("all_gather", P5, sweep("all_gather", 16, 341.2, end=16 * GIB))),
        "a4-all-reduce.txt": text(Output("all_reduce", A4, sweep("all_reduce", 16, 679.9))),
        "p4d-old.txt": "nccl-tests/build/all_reduce_perf -b 1M -e 2G -f 4\n"
        + old(Output("all_reduce", P4D, sweep("all_reduce", 16, 77.6, end=2 * GIB))),
    }


def slow(gather: Output) -> dict[str, str]:
    def at(share: float) -> list[Row]:
        return sweep("all_gather", 16, share * 325.7)

    good_then_bad = [*gather.rows[:-1], Row(8 * GIB, 8 * GIB * 0.9375 / 250.0 / 1e3)]
    bad_then_good = [replace(row, time_us=row.time_us / (0.8 if row.size == 4 * GIB else 1)) for row in gather.rows]
    both = text(Output("all_reduce", P5, sweep("all_reduce", 16, 488.3, end=16 * GIB)))
    small = sweep("all_gather", 16, 331.0, begin=256, end=64 * MIB)
    return {
        "below.txt": text(replace(gather, rows=at(0.85))),
        "just-below.txt": text(replace(gather, rows=at(0.893))),
        "warn.txt": text(replace(gather, rows=at(0.93))),
        "in-place-better.txt": text(replace(gather, rows=[replace(row, in_place=0.85) for row in at(0.86)])),
        "largest-row-good.txt": text(replace(gather, rows=bad_then_good)),
        "largest-row-slow.txt": text(replace(gather, rows=good_then_bad)),
        "two-operations.txt": both + text(Output("all_gather", P5, sweep("all_gather", 16, 262.0, end=16 * GIB))),
        "a4-all-gather.txt": text(Output("all_gather", A4, sweep("all_gather", 16, 262.0))),
        "p5en-4-nodes.txt": text(Output("all_reduce", P5EN4, sweep("all_reduce", 32, 301.0, end=4 * GIB))),
        "small.txt": text(replace(gather, rows=small)),
        "half-gib.txt": text(replace(gather, rows=sweep("all_gather", 16, 330.0, end=512 * MIB))),
        "two-gib.txt": text(replace(gather, rows=sweep("all_gather", 16, 328.0, end=2 * GIB))),
        "tcp-fallback.txt": mixed(
            text(replace(gather, rows=sweep("all_gather", 16, 4.1))), log(replace(A3U, plugin="Socket", nics=1))
        ),
    }


def wrong(gather: Output) -> dict[str, str]:
    def spoiled(wrong: tuple[int | None, int | None], every: bool = False) -> list[Row]:
        return [replace(row, wrong=wrong) if every or row.size == 64 * MIB else row for row in gather.rows]

    unchecked = spoiled((None, None), every=True)
    corrupt = replace(gather, rows=spoiled((12, 12)))
    return {
        "wrong.txt": text(corrupt),
        "wrong-in-place.txt": text(replace(gather, rows=spoiled((0, 3)))),
        "wrong-and-tcp.txt": mixed(text(corrupt), log(replace(A3U, plugin="Socket", nics=1))),
        "wrong-and-cut.txt": text(replace(gather, rows=spoiled((0, 3))), footer=False),
        "wrong-footer.txt": text(gather).replace("Out of bounds values : 0 OK", "Out of bounds values : 2 FAILED"),
        "unchecked.txt": text(replace(gather, rows=unchecked)),
        "unchecked.json": report(replace(gather, rows=unchecked)),
        "wrong.json": report(corrupt, out_of_bounds={"count": 1, "okay": "false"}),
    }


def broken(gather: Output) -> dict[str, str]:
    table = text(gather)
    none = text(replace(gather, rows=[]), footer=False)
    timeout = f"{A3U.hosts[0]}: Test timeout (60s) common.cu:521\n .. {A3U.hosts[0]} pid 4100: Test failure"
    unit_files = {
        f"{name}.txt": text(replace(gather, scale=scale, clock=clock)) for name, (scale, clock) in BAD_UNITS.items()
    }
    return unit_files | {
        "empty.txt": "",
        "no-rows.txt": none,
        "no-rows-footer.txt": text(replace(gather, rows=[])),
        "cut-in-a-row.txt": table[: table.index("# Out of bounds") - 60],
        "cut-between-rows.txt": text(gather, footer=False),
        "hang.txt": none + timeout + " common.cu:1031\n",
        "hang-over-tcp.txt": mixed(none, log(replace(A3U, plugin="Socket", nics=1))) + timeout + "\n",
        "hang-half-way.txt": text(replace(gather, rows=gather.rows[:4]), footer=False) + timeout + "\n",
        "cut.json": report(gather)[:-700],
        "other.json": '{"benchmark": "something else", "busbw": 331.0}\n',
        "other-schema.json": '{"schema": "rdma-ray/nccl/1", "rows": []}\n',
        "mpirun-failed.txt": "bash: line 1: /opt/nccl-tests/build/all_gather_perf: command not found\n",
        "no-figures.txt": table.replace("331.00", "   nan"),
        "cpu-time.txt": table.replace("   time   algbw", "cputime   algbw"),
        "gigabits-and-wrong.txt": text(
            replace(gather, scale=8.0, rows=[replace(row, wrong=(5, 5)) for row in gather.rows])
        ),
    }


def others(gather: Output) -> dict[str, str]:
    one = A3U.hosts[0]
    inside = [(rank, one, device) for rank, _, device in A3U.ranks[:8]]
    pair = [(0, A3U.hosts[0], 0), (1, A3U.hosts[1], 0)]
    three = [(rank, f"{host}-b" if rank > 11 else host, device) for rank, host, device in A3U.ranks]
    twelve = [(rank, A3U.hosts[rank > 11], device) for rank, _, device in A3U.ranks]
    single = text(replace(gather, ranks=A3U.ranks[:1], rows=[Row(8 * GIB, 11220.0)]))
    table = text(gather)
    return {
        "one-host.txt": text(Output("all_gather", A3U, sweep("all_gather", 8, 360.5), ranks=inside)),
        "one-host-16-ranks.txt": text(replace(gather, ranks=[(rank, one, device) for rank, _, device in A3U.ranks])),
        "three-hosts.txt": text(replace(gather, ranks=three)),
        "uneven.txt": text(replace(gather, ranks=twelve)),
        "nvlink-pair.txt": text(Output("sendrecv", A3U, sweep("sendrecv", 2, 371.99, end=4 * GIB), ranks=pair)),
        "too-fast.txt": text(replace(gather, rows=sweep("all_gather", 16, 478.0))),
        "too-fast-all-reduce.txt": text(Output("all_reduce", A3U, sweep("all_reduce", 16, 811.0))),
        "split.txt": text(replace(gather, groups=8, rows=sweep("all_gather", 2, 48.7))),
        "every-rank-alone.txt": single + single,
        "other-gpu.txt": text(Output("all_reduce", P4D, sweep("all_reduce", 16, 77.6, end=2 * GIB))),
        "rows-only.txt": "".join(line + "\n" for line in table.splitlines() if not line.startswith("#")),
        "hypercube.txt": table.replace("all_gather_perf", "hypercube_perf"),
        "fastest-rank.txt": f"+ mpirun -np 16 /opt/all_gather_perf -b 1M -e 8G -f 4 -a 2\n{table}",
        "other-run.txt": table.replace("gke-a3u-pool-1f2e", "gke-a3u-pool-99aa"),
    }


def own(gather: Output) -> dict[str, str]:
    def run(share: float) -> list[Row]:
        """Return a sweep whose largest row has exactly this share of the published figure."""
        return [*gather.rows[:-1], Row(8 * GIB, 8 * GIB * 0.9375 / (share * 325.7) / 1e3)]

    info = log(A3U)
    corrupt = [replace(row, wrong=(4 if row.size == 64 * MIB else 0, 0)) for row in gather.rows]
    local = replace(A3U, hosts=("ray-worker-1", "ray-worker-2"), gpus=2)
    gloo = sweep("all_gather", 4, 0.5, end=4 * MIB)
    hang = "no answer within 300 s: all_gather 8 GiB, rank 11"
    return {
        "own-good.json": result("all_gather", A3U, gather.rows, info),
        "own-border.json": result("all_gather", A3U, run(0.9), info),
        "own-under-the-border.json": result("all_gather", A3U, run(0.8999), info),
        "own-hang.json": result("all_gather", A3U, gather.rows[:-1], info, exit_code=4, reason=hang),
        "own-hang-and-slow.json": result("all_gather", A3U, run(0.5), info, exit_code=4, reason=hang),
        "own-wrong.json": result("all_gather", A3U, corrupt, info, exit_code=3, reason="wrong data in 1 of 8 rows"),
        "own-no-evidence.json": result("all_gather", A3U, gather.rows, None),
        "own-one-kernel.json": result("all_gather", A3U, gather.rows, info, machines=1),
        "own-function.json": result("all_gather", local, gloo, None, machines=1, backend="gloo"),
        "own-broken.json": result("all_gather", A3U, [], info, exit_code=1, reason="a rank failed: out of memory"),
    }


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, content in files().items():
        (FOLDER / name).write_bytes(content.encode())


if __name__ == "__main__":
    main()
