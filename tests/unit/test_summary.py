"""The last page of `make up`: every operation is on it, and no secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools.summary import Phase, print_summary


def row(op: str, variant: str | None, size: int) -> dict[str, Any]:
    times = {"max": size / 1000, "avg": 1.0, "min": 1.0}
    return {"op": op, "variant": variant, "size": size, "time_us": times, "algbw": 1.0, "busbw": 1.5, "wrong": 0}


def test_every_operation_is_shown_at_its_own_largest_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With three ranks, 4 MiB are not a whole number of elements for each: all_gather ends 4 bytes lower."""
    rows = [row("all_reduce", None, size) for size in (1024, 4194304)]
    rows += [row("all_gather", None, size) for size in (1020, 4194300)]
    rows += [row("sendrecv", way, 4194304) for way in ("up", "down")]
    (tmp_path / "nccl.json").write_text(
        json.dumps({"rows": rows, "reason": "6 rows, every element right", "notice": None})
    )
    (tmp_path / "digits.json").write_text(json.dumps({"epochs": [{}] * 8, "world": 3, "accuracy": 0.98}))
    outputs = {
        "nodes": {"min": 3, "max": 3, "cpusPerNode": 1},
        "ray": {"version": "2.60.0", "dashboard": "http://127.0.0.1:8265", "token": "[secret]"},
    }
    print_summary("local", outputs, [Phase("cluster", 18.2)], tmp_path)
    said = capsys.readouterr().out
    shown = [line.split()[0:2] for line in said.splitlines() if "MiB" in line]
    assert [words[0] for words in shown] == ["all_reduce", "all_gather", "sendrecv", "sendrecv"]
    assert "KiB" not in said
    assert "98.00%" in said
    assert "cluster 18 s" in said
    assert json.loads((tmp_path / "summary.json").read_text())["seconds"] == {"cluster": 18.2}
