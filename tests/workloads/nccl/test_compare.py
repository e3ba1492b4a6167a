"""`rdma-ray bench compare`: changed and missing rows, and runs that are not comparable."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.nccl.results import SWEEP, fabric, functional
from workloads.cli import main
from workloads.exits import Exit, WorkloadError
from workloads.nccl.page.compare import SMALL, Compared, compare
from workloads.nccl.result import BenchResult, Row, RowKey

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


def changed(row: Row, change: Callable[[Row], Row | None]) -> BenchResult:
    """Return BASE with one row changed, or without it if the change is None."""
    rows = [(change(one) if one is row else one) for one in BASE.rows]
    return BASE.model_copy(update={"rows": [one for one in rows if one is not None]})


def moved(found: Compared, how: str) -> list[RowKey]:
    return [one.key for one in found.rows if one.moved == how]


@pytest.mark.parametrize("result", [BASE, functional()])
def test_a_run_equals_itself(result: BenchResult) -> None:
    found = compare(result, result, 0.0)
    assert found.code == Exit.OK
    assert len(found.rows) == len(result.rows)
    assert [*moved(found, "slower"), *moved(found, "faster"), *found.missing, *found.added] == []


@settings(deadline=None, max_examples=60)
@given(st.floats(0.5, 1.5), st.integers(0, len(BASE.rows) - 1), st.floats(0.5, 20))
def test_a_single_row_changes_and_swapping_the_runs_swaps_the_sign(speed: float, index: int, threshold: float) -> None:
    row = BASE.rows[index]
    other = changed(row, lambda one: scaled(one, speed))
    there, back = compare(BASE, other, threshold), compare(other, BASE, threshold)
    assert moved(there, "slower") == moved(back, "faster")
    assert moved(there, "faster") == moved(back, "slower")
    assert {*moved(there, "slower"), *moved(there, "faster")} <= {row.key}
    if abs(speed - (1 - threshold / 100)) > 1e-9:
        assert there.code == (Exit.BELOW if speed < 1 - threshold / 100 else Exit.OK)


@pytest.mark.parametrize(("speed", "code"), [(0.951, Exit.OK), (0.949, Exit.BELOW), (1.2, Exit.OK)])
def test_five_percent_is_the_limit(speed: float, code: Exit) -> None:
    for row in (LARGE, TINY):
        found = compare(BASE, changed(row, lambda one: scaled(one, speed)))
        assert found.code == code
        assert moved(found, "slower") == ([row.key] if code else [])


def test_large_rows_compare_by_busbw_and_small_ones_by_median() -> None:
    assert TINY.size < SMALL <= LARGE.size
    assert compare(BASE, changed(LARGE, lambda one: scaled(one, 0.9, median=False))).code == Exit.BELOW
    assert compare(BASE, changed(LARGE, lambda one: scaled(one, 0.9, mean=False))).code == Exit.OK
    assert compare(BASE, changed(TINY, lambda one: scaled(one, 0.9, median=False))).code == Exit.OK
    found = compare(BASE, changed(TINY, lambda one: scaled(one, 0.9, mean=False)))
    assert found.code == Exit.BELOW
    [slower] = found.slower
    assert slower.figure == "latency"
    assert (slower.percent, slower.percent_by_mean) == pytest.approx((-10, 0))


def test_a_missing_row_fails_and_an_added_one_does_not() -> None:
    less = changed(LARGE, lambda _: None)
    found = compare(BASE, less)
    assert (found.code, found.missing) == (Exit.BELOW, [LARGE.key])
    assert "missing in B: all_gather fp32 8 GiB" in found.reason
    more = compare(less, BASE)
    assert (more.code, more.added) == (Exit.OK, [LARGE.key])


@pytest.mark.parametrize(
    "bad",
    [
        changed(LARGE, lambda one: scaled(one, 0.5).model_copy(update={"wrong": 1})),
        changed(LARGE, lambda one: scaled(one, 0.5)).model_copy(update={"exit_code": 3}),
    ],
    ids=["rows", "code"],
)
def test_wrong_data_in_either_run_takes_precedence(bad: BenchResult) -> None:
    for side, found in (("A", compare(bad, BASE)), ("B", compare(BASE, bad))):
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


def write(path: Path, result: BenchResult) -> str:
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
    (slower,) = [row for row in found["rows"] if row["moved"] != "no"]
    assert (slower["op"], slower["size"], slower["percent"]) == ("all_gather", SWEEP[-1], pytest.approx(-10))
