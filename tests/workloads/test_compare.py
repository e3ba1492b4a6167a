"""`rdma-ray bench compare`: changed and missing rows, and runs that are not comparable."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.results import SWEEP, fabric, functional, passed
from workloads.cli import main
from workloads.exits import Exit, WorkloadError
from workloads.nccl.page.compare import SMALL, Compared, compare
from workloads.nccl.result import Result, Row, RowKey

BASE = fabric(sizes=SWEEP[::4] + SWEEP[-1:])
LARGE = next(row for row in BASE.rows if row.op == "all_gather" and row.size == SWEEP[-1])
TINY = next(row for row in BASE.rows if row.op == "all_gather" and row.size == SWEEP[0])


def scaled(row: Row, speed: float, *, mean: bool = True, median: bool = True) -> Row:
    """Return the row at another speed, by its mean, by the median of its runs, or by both."""
    update: dict[str, object] = {}
    if mean:
        update |= {"busbw": row.busbw * speed, "algbw": row.algbw * speed}
        update["time_us"] = row.time_us.model_copy(update={"max": row.time_us.max / speed})
    if median:
        update["iteration_us"] = row.iteration_us.model_copy(update={"p50": row.iteration_us.p50 / speed})
    return row.model_copy(update=update)


def changed(row: Row, change: Callable[[Row], Row | None], base: Result = BASE) -> Result:
    """Return `base` with one row changed, or without it if the change is None."""
    rows = [(change(one) if one is row else one) for one in base.rows]
    return base.model_copy(update={"rows": [one for one in rows if one is not None]})


def faster(found: Compared) -> list[RowKey]:
    return [one.key for one in found.rows if one.moved == "faster"]


@pytest.mark.parametrize("result", [BASE, functional()])
def test_a_run_equals_itself(result: Result) -> None:
    found = compare(result, result, 0.0)
    assert found.code == Exit.OK
    assert len(found.rows) == len(result.rows)
    assert [*found.slower, *faster(found), *found.missing, *found.added] == []


@settings(deadline=None, max_examples=60)
@given(st.floats(0.5, 1.5), st.integers(0, len(BASE.rows) - 1), st.floats(0.5, 20))
def test_a_single_row_changes_and_swapping_the_runs_swaps_the_sign(speed: float, index: int, threshold: float) -> None:
    row = BASE.rows[index]
    other = changed(row, lambda one: scaled(one, speed))
    there, back = compare(BASE, other, threshold), compare(other, BASE, threshold)
    assert [one.key for one in there.slower] == faster(back)
    assert faster(there) == [one.key for one in back.slower]
    assert {one.key for one in there.slower}.union(faster(there)) <= {row.key}
    if abs(speed - (1 - threshold / 100)) > 1e-9:
        assert there.code == (Exit.BELOW if speed < 1 - threshold / 100 else Exit.OK)


@pytest.mark.parametrize(("speed", "code"), [(0.951, Exit.OK), (0.949, Exit.BELOW), (1.2, Exit.OK)])
def test_five_percent_is_the_limit(speed: float, code: Exit) -> None:
    for row in (LARGE, TINY):
        found = compare(BASE, changed(row, lambda one: scaled(one, speed)))
        assert found.code == code
        assert [one.key for one in found.slower] == ([row.key] if code else [])


def test_large_rows_compare_by_busbw_and_small_ones_by_median() -> None:
    assert TINY.size < SMALL <= LARGE.size
    mean_only, median_only = {"median": False}, {"mean": False}
    assert compare(BASE, changed(LARGE, lambda one: scaled(one, 0.9, **mean_only))).code == Exit.BELOW
    assert compare(BASE, changed(LARGE, lambda one: scaled(one, 0.9, **median_only))).code == Exit.OK
    assert compare(BASE, changed(TINY, lambda one: scaled(one, 0.9, **mean_only))).code == Exit.OK
    found = compare(BASE, changed(TINY, lambda one: scaled(one, 0.9, **median_only)))
    assert found.code == Exit.BELOW
    assert found.slower[0].figure == "latency"
    assert found.slower[0].percent == pytest.approx(-10)
    assert found.slower[0].percent_by_mean == pytest.approx(0)


def test_latency_mode_compares_by_median_at_any_size() -> None:
    row = LARGE.model_copy(update={"mode": "latency"})
    base = BASE.model_copy(update={"rows": [row]})
    assert compare(base, changed(row, lambda one: scaled(one, 0.9, median=False), base)).code == Exit.OK
    assert compare(base, changed(row, lambda one: scaled(one, 0.9, mean=False), base)).code == Exit.BELOW


def test_the_reason_names_the_slowest_row_first() -> None:
    once = changed(LARGE, lambda one: scaled(one, 0.8))
    twice = changed(TINY, lambda one: scaled(one, 0.9), once)
    found = compare(BASE, twice)
    assert [one.key for one in found.slower] == [LARGE.key, TINY.key]
    assert "2 of" in found.reason
    assert "all_gather fp32 8 GiB (-20.0 %)" in found.reason


def test_a_missing_row_fails_and_an_added_one_does_not() -> None:
    less = changed(LARGE, lambda _: None)
    found = compare(BASE, less)
    assert (found.code, found.missing) == (Exit.BELOW, [LARGE.key])
    assert "missing in B: all_gather fp32 8 GiB" in found.reason
    more = compare(less, BASE)
    assert (more.code, more.added) == (Exit.OK, [LARGE.key])


@pytest.mark.parametrize("side", ["A", "B"])
@pytest.mark.parametrize("how", ["rows", "code"])
def test_wrong_data_in_either_run_takes_precedence(side: str, how: str) -> None:
    slow = changed(LARGE, lambda one: scaled(one, 0.5))
    if how == "rows":
        row = slow.rows[0]
        bad = changed(row, lambda one: one.model_copy(update={"wrong": 1}), slow)
    else:
        bad = slow.model_copy(update={"exit_code": 3})
    found = compare(bad, BASE) if side == "A" else compare(BASE, bad)
    assert found.code == Exit.WRONG_DATA
    assert f"wrong data in {side}" in found.reason


def test_incomparable_runs_need_anyway() -> None:
    with pytest.raises(WorkloadError, match=r"do not compare: backend nccl in A, gloo in B.*--anyway") as refused:
        compare(BASE, functional())
    assert "ranks per node 8 in A, 2 in B" in str(refused.value)
    half = BASE.model_copy(update={"rows": [row.model_copy(update={"dtype": "bf16"}) for row in BASE.rows]})
    with pytest.raises(WorkloadError, match="type fp32 in A, bf16 in B"):
        compare(BASE, half)
    forced = compare(BASE, half, anyway=True)
    assert (forced.code, len(forced.rows), forced.missing) == (Exit.OK, len(BASE.rows), [])
    assert "type fp32 in A, bf16 in B" in forced.remarks


def test_another_machine_is_incomparable_and_an_unjudged_run_is_not() -> None:
    ultra = BASE.model_copy(update={"verdict": passed()})
    other = BASE.model_copy(update={"verdict": passed().model_copy(update={"machine": "p5en.48xlarge"})})
    with pytest.raises(WorkloadError, match=r"machine a3-ultragpu-8g in A, p5en\.48xlarge in B"):
        compare(ultra, other)
    assert compare(ultra, BASE).code == Exit.OK


def test_compare_rejects_empty_repeated_and_zero_rows() -> None:
    empty = BASE.model_copy(update={"rows": []})
    with pytest.raises(WorkloadError, match="A has no rows"):
        compare(empty, empty, anyway=True)
    double = BASE.model_copy(update={"rows": [*BASE.rows, BASE.rows[0]]})
    with pytest.raises(WorkloadError, match=r"B has the row .* twice"):
        compare(BASE, double)
    with pytest.raises(WorkloadError, match="0 cannot have been measured"):
        compare(BASE, changed(LARGE, lambda one: one.model_copy(update={"busbw": 0.0})))


def test_remarks_name_different_versions_variables_and_faults() -> None:
    assert BASE.versions
    update = {"versions": BASE.versions | {"nccl": "2.31.0"}, "environment": {}, "injected_fault": "corrupt:1"}
    remarks = compare(BASE, BASE.model_copy(update=update)).remarks
    assert "version of nccl: 2.30.7 in A, 2.31.0 in B" in remarks
    assert "variable NCCL_NET: gIB in A, none in B" in remarks
    assert any("fault injected" in text for text in remarks)
    assert any("functional proof" in text for text in compare(functional(), functional()).remarks)


def write(path: Path, result: Result) -> str:
    path.write_text(result.as_json())
    return str(path)


def test_compare_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = write(tmp_path / "a.json", BASE)
    b = write(tmp_path / "b.json", changed(LARGE, lambda one: scaled(one, 0.9)))
    assert main(["bench", "compare", a, a]) == Exit.OK
    assert "none slower by more than 5 %" in capsys.readouterr().out
    assert main(["bench", "compare", a, b]) == Exit.BELOW
    assert "-10.0 %" in capsys.readouterr().out
    assert main(["bench", "compare", a, b, "--threshold", "12"]) == Exit.OK
    assert main(["bench", "compare", a, write(tmp_path / "c.json", functional())]) == Exit.ERROR
    assert main(["bench", "compare", a, str(tmp_path / "none")]) == Exit.ERROR
    wrong = write(tmp_path / "w.json", BASE.model_copy(update={"exit_code": 3}))
    assert main(["bench", "compare", wrong, a]) == Exit.WRONG_DATA
    capsys.readouterr()
    assert main(["bench", "compare", a, b, "--json"]) == Exit.BELOW
    found = json.loads(capsys.readouterr().out)
    assert found["code"] == 2
    (moved,) = [row for row in found["rows"] if row["moved"] != "no"]
    assert (moved["op"], moved["size"], moved["percent"]) == ("all_gather", SWEEP[-1], pytest.approx(-10))
