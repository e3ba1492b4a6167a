"""Results of this project's benchmark for the corpus, as JSON with evidence."""

from __future__ import annotations

import json
from typing import Any

from tests.workloads.corpus.formats import Place, Row
from workloads.nccl.evidence.facts import Evidence, RankEvidence
from workloads.nccl.evidence.log_reader import parse_log
from workloads.nccl.result import SCHEMA, Iterations, Member, RankTime, Result, Spread, World
from workloads.nccl.result import Row as ResultRow
from workloads.nccl.units import BUSBW_FACTORS, algbw


def result(
    op: str,
    place: Place,
    rows: list[Row],
    log: str | None,
    *,
    machines: int | None = None,
    backend: str = "nccl",
    **changes: Any,
) -> str:
    """Return the JSON of a run; `machines` is the number of kernels of its pods, one per host by default."""
    ranks = place.ranks
    kernels = len(place.hosts) if machines is None else machines
    members = [
        Member(
            rank=rank,
            node=rank // place.gpus,
            host=host,
            machine=f"boot-{(rank // place.gpus) % kernels}",
            ip=f"10.52.{2 + rank // place.gpus}.7",
            node_id=f"{rank // place.gpus:056x}",
            device=f"cuda:{device}" if backend == "nccl" else "cpu",
            gpu=place.gpu if backend == "nccl" else None,
            pid=3500 + rank,
        )
        for rank, host, device in ranks
    ]
    facts = None if log is None else parse_log(log)
    evidence = Evidence(
        ranks=[RankEvidence(rank=rank, log=facts if rank == 0 else None, counters=None) for rank, _, _ in ranks],
        image=None,
        topology={},
        missing=[],
    )
    fields: dict[str, Any] = {
        "started": 1795273067.0,
        "finished": 1795273184.0,
        "spec": {"ops": [op], "iterations": 20, "warmup": 5, "dtype": "fp32"},
        "exit_code": 0,
        "reason": f"{len(rows)} rows, every element right",
        "rows": [_row(op, row, len(ranks)) for row in rows],
        "backend": backend,
        "world": World(nodes=len(place.hosts), per_node=place.gpus, ranks=len(ranks), machines=kernels),
        "proves": "fabric" if kernels == len(place.hosts) else "function",
        "ranks": members,
        "evidence": evidence,
    }
    # Without defaults, so a new field of the schema does not change the files.
    document = Result(**(fields | changes)).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return json.dumps({"schema": SCHEMA} | document) + "\n"


def _row(op: str, row: Row, ranks: int) -> ResultRow:
    rate = algbw(row.size, row.time_us / 1e6)
    slow = round(row.time_us, 2)
    return ResultRow(
        op=op,
        variant=None,
        mode="throughput",
        dtype="fp32",
        algorithm=op,
        size=row.size,
        count=row.size // 4,
        time_us=Spread(max=row.time_us, avg=row.time_us * 0.998, min=row.time_us * 0.995),
        iteration_us=Iterations(p50=slow, p95=slow, p99=slow, max=slow, cv=0.01),
        algbw=round(rate, 6),
        busbw=round(rate * BUSBW_FACTORS[op](ranks), 6),
        nic_bandwidth=None,
        wrong=row.wrong[0],
        warnings=[],
        ranks=[RankTime(rank=0, time_us=slow, wrong=row.wrong[0])],
    )
