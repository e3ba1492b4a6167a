"""Synthetic results with plausible curves for 2 × 8 GPUs, and for gloo on one machine."""

from __future__ import annotations

from collections.abc import Sequence

from infra.catalog.pins import RAY
from workloads.evidence.facts import Channel, Evidence, LogFacts, RankEvidence
from workloads.hardware.nic import Counter
from workloads.nccl.options import BenchOptions
from workloads.nccl.presets import Mode
from workloads.nccl.result import (
    BenchResult,
    Comparison,
    EvidenceFinding,
    Iterations,
    Member,
    Pair,
    RankTime,
    Row,
    Spread,
    Verdict,
    World,
)
from workloads.nccl.units import algbw

STARTED = 1795273067.0  # 2026-11-21 14:57:47 UTC
SWEEP = [2**exponent for exponent in range(10, 34)]
PEAKS = {"all_reduce": 355.0, "all_gather": 326.0, "reduce_scatter": 324.0, "all_to_all": 46.0, "broadcast": 310.0}
FACTORS = {"all_reduce": 1.875, "all_gather": 0.9375, "reduce_scatter": 0.9375, "all_to_all": 0.9375}


def row(
    op: str,
    size: int,
    peak: float,
    ranks: int,
    *,
    variant: str | None = None,
    mode: Mode = "throughput",
    latency_us: float = 24.0,
    slow: int | None = None,
    pairs: Sequence[tuple[int, int]] = (),
    limit: float | None = None,
) -> Row:
    """Return a row with the time of a latency plus the size at peak (GB/s of busbw); rank `slow` takes 12 % longer."""
    factor = FACTORS.get(op, 1.0)
    time_us = latency_us + size * factor / peak / 1e3
    members = sorted({rank for pair in pairs for rank in pair}) or list(range(ranks))
    times = {rank: time_us * (1.12 if rank == slow else 1 - 0.0015 * ((rank * 7) % 5)) for rank in members}
    slowest = max(times.values())
    rate = algbw(size, slowest / 1e6)
    flows = []
    for sender, receiver in pairs:
        time = max(times[sender], times[receiver])
        bandwidth = round(algbw(size, time / 1e6), 3)
        flows.append(Pair(sender=sender, receiver=receiver, time_us=time, bandwidth=bandwidth))
    return Row(
        op=op,
        variant=variant,
        mode=mode,
        dtype="fp32",
        algorithm=op,
        size=size,
        count=size // 4,
        time_us=Spread(max=slowest, avg=sum(times.values()) / len(times), min=min(times.values())),
        iteration_us=Iterations(
            p50=slowest * 0.998, p95=slowest * 1.02, p99=slowest * 1.06, max=slowest * 1.09, cv=0.012
        ),
        algbw=rate,
        busbw=rate * factor,
        nic_bandwidth=rate * factor / 15 if not pairs else None,
        wrong=0,
        warnings=[],
        ranks=[RankTime(rank=rank, time_us=time, wrong=0) for rank, time in times.items()],
        pairs=flows or None,
        total=round(sum(flow.bandwidth for flow in flows), 3) if flows else None,
        limit=limit,
    )


def fabric(*, slow: int | None = None, verdict: Verdict | None = None, sizes: Sequence[int] = SWEEP) -> BenchResult:
    """2 nodes × 8 H200 over gIB: collectives, point to point (pairs, every rail), and evidence."""
    rows = [row(op, size, peak, 16, slow=slow) for op, peak in PEAKS.items() for size in sizes]
    rows += [
        row("all_reduce", size, 355.0, 16, mode="latency", latency_us=27.5, slow=slow) for size in sizes if size < 2**20
    ]
    up, down = [(i, i + 8) for i in range(8)], [(i + 8, i) for i in range(8)]
    for name, flows, limit in (("up", up, 400.0), ("down", down, 400.0), ("duplex", up + down, 800.0)):
        rate = 46.6 if name != "duplex" else 43.1
        for size in sizes:
            if size >= 2**20:
                rows.append(row("p2p", size, rate, 16, variant=f"pairs {name}", slow=slow, pairs=flows, limit=limit))
        for rail in range(8):
            flows_of_rail = [flow for flow in flows if rail in flow]
            one = row("p2p", sizes[-1], rate, 16, variant=f"rail {rail} {name}", slow=slow, pairs=flows_of_rail)
            rows.append(one.model_copy(update={"limit": 100.0 if name == "duplex" else 50.0}))
    return BenchResult(
        started=STARTED,
        finished=STARTED + 214.0,
        spec=BenchOptions(ops=[*PEAKS, "p2p"], sizes=list(sizes), iterations=20, warmup=5, use_gpu=True),
        exit_code=0,
        reason=f"{len(rows)} rows, every element right",
        rows=rows,
        backend="nccl",
        world=World(nodes=2, per_node=8, ranks=16, machines=2),
        proves="fabric",
        versions={"nccl": "2.30.7", "torch": "2.15.0+cu132", "ray": RAY, "cuda": "13.2", "python": "3.11.7"},
        environment={"NCCL_DEBUG": "INFO", "NCCL_NET": "gIB", "LD_LIBRARY_PATH": "/usr/local/gib/lib64"},
        environment_differs_on=[],
        ranks=[_member(rank, 8, "NVIDIA H200") for rank in range(16)],
        evidence=evidence(),
        seconds={"placement": 141.2, "start": 9.8, "rendezvous": 3.1, "sweep": 58.4},
        verdict=verdict,
        job="nccl-20261121-145740-a1b2c3",
        cluster="rdma-ray",
        command=["rdma-ray", "bench", "nccl", "--nodes", "2"],
    )


def wide() -> BenchResult:
    """128 nodes × 8: more ranks, pairs and hosts than fit into a plot. Rank 700 is slow."""
    nodes, per_node, sizes = 128, 8, (2**10, 2**33)
    ranks = nodes * per_node
    up = [(rank, rank + per_node) for rank in range(ranks) if rank // per_node % 2 == 0]
    down = [(receiver, sender) for sender, receiver in up]
    rows = [row(op, size, peak, ranks, slow=700) for op, peak in PEAKS.items() for size in sizes]
    for name, flows in (("up", up), ("down", down)):
        rows.append(row("p2p", sizes[-1], 46.6, ranks, variant=f"pairs {name}", slow=700, pairs=flows, limit=25600.0))
    update = {
        "rows": rows,
        "ranks": [_member(rank, per_node, "NVIDIA H200") for rank in range(ranks)],
        "world": World(nodes=nodes, per_node=per_node, ranks=ranks, machines=nodes),
    }
    return fabric(sizes=sizes).model_copy(update=update)


def evidence() -> Evidence:
    """Both nodes over gIB with GPUDirect RDMA on all eight NICs."""
    return Evidence(
        ranks=[RankEvidence(rank=rank, log=_log(rank), counters=_counters(rank)) for rank in range(16)],
        image="sha256:" + "5d" * 32,
        topology={"gpu-node-0": "GPU0  X  NV18  PIX", "gpu-node-1": "GPU0  X  NV18  PIX"},
        missing=[],
    )


def failed() -> Verdict:
    """Below the floor in one collective, near it in another."""
    comparison = Comparison(
        op="all_gather",
        size=2**33,
        measured=291.1,
        expected=325.7,
        share=0.894,
        source="skypilot-org/skypilot: examples, GCP and EFA pages, read 2026-08",
        confidence="two publications agree within 1 %",
    )
    smaller = {"size": 2**32, "measured": 302.0, "expected": 324.3, "share": 0.931}
    return Verdict(
        code=2,
        outcome="fail",
        reason="all_gather at 8 GiB reaches 291.1 GB/s: 89 % of the 325.7 GB/s expected on a3-ultragpu-8g",
        machine="a3-ultragpu-8g",
        findings=[
            EvidenceFinding(
                code=2, kind="below", text="all_gather at 8 GiB: 291.1 GB/s, at least 293.1 GB/s are the floor"
            ),
            EvidenceFinding(
                code=0, kind="straggler", text="rank 11 on gpu-node-1 is 12 % slower than the others in every row"
            ),
        ],
        comparisons=[comparison, comparison.model_copy(update=smaller)],
    )


def passed() -> Verdict:
    return failed().model_copy(update={"code": 0, "outcome": "pass", "findings": []})


def functional() -> BenchResult:
    """gloo on one machine: two nodes of two ranks, small sizes."""
    sizes = [2**exponent for exponent in range(10, 23, 3)]
    rows = [row(op, size, 0.7, 4, latency_us=4100.0) for op in PEAKS for size in sizes]
    rows += [
        row("p2p", size, 1.1, 4, variant=f"pairs {name}", latency_us=3900.0, pairs=flows)
        for name, flows in (("up", [(0, 2), (1, 3)]), ("down", [(2, 0), (3, 1)]))
        for size in sizes
    ]
    update = {
        "spec": BenchOptions(ops=[*PEAKS, "p2p"], sizes=sizes, iterations=20, warmup=5),
        "reason": f"{len(rows)} rows, every element right",
        "rows": rows,
        "backend": "gloo",
        "world": World(nodes=2, per_node=2, ranks=4, machines=1),
        "proves": "function",
        "notice": "all ranks on one host: a functional proof, not a fabric measurement",
        "versions": {"nccl": None, "torch": "2.15.0+cpu", "ray": RAY, "cuda": None, "python": "3.11.7"},
        "environment": {"GLOO_SOCKET_IFNAME": "lo"},
        "ranks": [_member(rank, 2, None) for rank in range(4)],
        "evidence": None,
        "seconds": {"placement": 0.4, "start": 12.0, "rendezvous": 0.9, "sweep": 8.3},
        "cluster": "local",
    }
    return fabric(sizes=sizes).model_copy(update=update)


def _member(rank: int, per_node: int, gpu: str | None) -> Member:
    node, local = divmod(rank, per_node)
    return Member(
        rank=rank,
        node=node,
        host=f"gpu-node-{node}",
        machine=f"kernel-{node}",
        ip=f"10.0.0.{node + 2}",
        node_id=f"{node:056x}",
        device=f"cuda:{local}" if gpu else "cpu",
        gpu=gpu,
        pid=4000 + rank,
    )


def _log(rank: int) -> LogFacts:
    peer = (rank + 8) % 16
    return LogFacts(
        nccl_version="2.30.7",
        plugin="gIB",
        plugins=["gIB"],
        plugin_version="1.1.0",
        nranks=16,
        nnodes=2,
        hosts={rank: f"gpu-node-{rank // 8}"},
        hcas=[f"mlx5_{index}" for index in range(8)],
        nics_by_host={f"gpu-node-{rank // 8}": [f"mlx5_{index}" for index in range(8)]},
        gdrdma_hcas=list(range(8)),
        channels=[Channel(sender=rank, receiver=peer, transport="NET", plugin="gIB", device=rank % 8, gdrdma=True)],
        algorithms=["RING/SIMPLE", "TREE/LL128"],
        lines=412,
    )


def _counters(rank: int) -> list[Counter] | None:
    if rank % 8:
        return None
    return [
        Counter(
            nic=f"mlx5_{index}",
            sent=81_000_000_000 + index * 10**6,
            received=80_900_000_000,
            errors={"rnr_nak_retry_err": 0, "packet_seq_err": 3 if index == 5 else 0},
        )
        for index in range(8)
    ]
