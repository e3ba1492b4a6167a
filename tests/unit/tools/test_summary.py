"""Summary at the end of `make up`: every operation, and no secret."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from infra.catalog.pins import RAY
from tests.workloads.nccl import results
from tools.stack import print_summary
from workloads.nccl.report import show
from workloads.nccl.result import BenchResult, Iterations, Row


def row(op: str, variant: str | None, size: int, wrong: int | None = 0) -> Row:
    figures: dict[str, Any] = {"algbw": 1.0, "busbw": 1.5, "nic_bandwidth": None, "wrong": wrong, "size": size}
    figures["iteration_us"] = Iterations(p50=1, p95=1, p99=1, max=1, cv=0)
    return results.row(op, 1024, 1.0, 1, variant=variant).model_copy(update=figures)


def result(rows: list[Row]) -> BenchResult:
    spec = {"iterations": 20, "left_out": ["reduce uint8"]}
    bare = results.functional().model_copy(update={"rows": rows, "reason": "7 rows, every element right"})
    return BenchResult.model_validate(bare.model_dump(by_alias=True) | {"spec": spec})


def test_every_operation_is_shown_at_its_own_largest_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With three ranks, 4 MiB are not a whole number of elements for each: all_gather ends 4 bytes lower."""
    rows = [row("all_reduce", None, size) for size in (1024, 4194304)]
    rows += [row("all_gather", None, size) for size in (1020, 4194300)]
    rows += [row("p2p", way, 4194304) for way in ("pairs up", "pairs down")]
    rows += [row("broadcast", None, 4194304, wrong=None)]
    (tmp_path / "nccl").mkdir()
    (tmp_path / "nccl" / "result.json").write_text(result(rows).model_dump_json(by_alias=True))
    (tmp_path / "digits.json").write_text(json.dumps({"epochs": [{}] * 8, "world": 3, "accuracy": 0.98}))
    outputs = {
        "nodes": {"min": 3, "max": 3, "cpusPerNode": 1},
        "ray": {"version": RAY, "dashboard": "http://127.0.0.1:8265", "token": "[secret]"},
    }
    print_summary("local", outputs, {"cluster": 18.2}, tmp_path)
    said = capsys.readouterr().out
    shown = [line.split()[0:2] for line in said.splitlines() if "MiB" in line]
    assert [words[0] for words in shown] == ["all_reduce", "all_gather", "p2p", "p2p", "broadcast"]
    assert "KiB" not in said
    assert said.count("not checked") == 1
    assert "98.00%" in said
    assert "cluster 18 s" in said
    assert json.loads((tmp_path / "summary.json").read_text())["seconds"] == {"cluster": 18.2}


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("mixed", [False, True])
def test_the_benchmarks_table_fits_the_terminal(width: int, mixed: bool) -> None:
    rows = [row("reduce_scatter", None, 2**33), row("all_gather", None, 1000, wrong=None), row("reduce", None, 8, 12)]
    if mixed:
        rows = [each.model_copy(update={"nic_bandwidth": 45.6789}) for each in rows]
        rows.append(rows[0].model_copy(update={"mode": "latency", "dtype": "bf16", "nic_bandwidth": None}))
    said = shown(result(rows), width)
    table = [line for line in said.splitlines() if "GiB" in line or "B " in line]
    assert len(table) >= len(rows)
    assert max(map(len, said.splitlines()[: len(rows) + 5])) <= width
    assert "…" not in said  # nothing is cut
    for word in ("reduce_scatter", "8 GiB", "1000 B", "N/A", "12", "every element right", "reduce uint8"):
        assert word in said
    assert ("p99" in said) == (width == 120)
    assert ("per NIC" in said, "45.68" in said, "bf16" in said) == (mixed, mixed, mixed)


def shown(found: BenchResult, width: int) -> str:
    out = io.StringIO()
    show(found, Console(file=out, width=width))
    return out.getvalue()
