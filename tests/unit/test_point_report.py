"""The table of pairs: hosts and both units within 80 columns, and a maximum of pairs."""

from __future__ import annotations

import io

from rich.console import Console

from tests.unit.test_point_limits import a_result, a_row, seconds_for
from workloads.nccl.report import MAX_PAIRS, show_pairs
from workloads.nccl.result import Result


def output(result: Result) -> str:
    text = io.StringIO()
    show_pairs(result, Console(file=text, width=80, color_system=None))
    return text.getvalue()


def test_totals_have_their_limit_and_pairs_their_hosts() -> None:
    rows = a_row("pairs up", seconds_for(46.5)), a_row("single up", seconds_for(47))
    shown = output(a_result(*rows))
    assert "pairs up, 8 at once" in shown
    [total] = [line for line in shown.splitlines() if line.strip().startswith("pairs up")]
    assert total.split()[-5:] == ["23091", "372", "2976", "3200", "93.0%"]
    [pair] = [line for line in shown.splitlines() if line.strip().startswith("7 to 15")]
    assert pair.split()[-3:] == ["23091", "46.5", "372"]
    [alone] = [line for line in shown.splitlines() if "0 to 8" in line and "single" in line]
    assert alone.split()[:5] == ["single", "up,", "0", "to", "8"]
    assert "node 0: gpu-node-0, 10.0.0.2, ranks 0 to 7" in shown
    assert "node 1: gpu-node-1, 10.0.0.3, ranks 8 to 15" in shown
    assert "…" not in shown  # nothing was cut


def test_no_share_without_limits_and_no_table_without_pairs() -> None:
    shown = output(a_result(a_row("pairs up", 1.0, limits=None)))
    [total] = [line for line in shown.splitlines() if line.strip().startswith("pairs up")]
    assert total.split()[-2:] == ["-", "-"]
    assert output(a_result()) == ""


def test_of_many_pairs_the_slowest_are_shown() -> None:
    times = [0.02 + 0.001 * (rank % 32) for rank in range(64)]
    result = a_result(a_row("pairs duplex", times, per_node=32))
    assert result.world
    result = result.model_copy(update={"world": result.world.model_copy(update={"per_node": 32})})
    shown = output(result)
    listed = [line.strip() for line in shown.splitlines() if " to " in line and line.strip()[0].isdigit()]
    assert len(listed) == MAX_PAIRS
    assert f"pairs duplex: the {MAX_PAIRS} slowest of 64" in shown
    assert listed[0].startswith("24 to 56")


def test_only_the_largest_size_of_each_measurement_is_shown() -> None:
    small = a_row("pairs up", 1.0).model_copy(update={"size": 1024})
    result = a_result(small, a_row("pairs up", seconds_for(46.5)), small)
    shown = output(result)
    assert shown.count("pairs up") == 1
    assert "1 GiB to each receiver" in shown
