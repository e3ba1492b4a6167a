"""Foundations of the simulated clouds: values in three versions, the shared state, and fault injection."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rehearsal.engine import faults
from rehearsal.engine.faults import Fault, FaultError
from rehearsal.engine.state import State
from rehearsal.engine.values import applied, as_asked, covers, differences, from_wire, merged, to_wire

SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("abcde"), below, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from("abcde"), VALUES, max_size=4)
NO_MAPS: frozenset[str] = frozenset()


# Values


@given(VALUES, VALUES)
def test_equal_values_have_no_difference(before: Any, now: Any) -> None:
    assert bool(list(differences(before, now))) == (before != now)


@given(OBJECTS)
def test_values_round_trip_over_the_wire(values: dict[str, Any]) -> None:
    assert from_wire(to_wire(values)) == {key: value for key, value in values.items() if value is not None}


@given(OBJECTS)
def test_unchanged_inputs_show_as_written(asked: dict[str, Any]) -> None:
    assert as_asked(asked, asked, NO_MAPS) == asked


@given(OBJECTS, OBJECTS)
def test_additions_by_others_are_hidden(asked: dict[str, Any], others: dict[str, Any]) -> None:
    added = {key: value for key, value in others.items() if key not in asked}
    assert as_asked(asked, {**asked, **added}, NO_MAPS) == asked
    free = as_asked({"tags": asked}, {"tags": {**asked, **added}}, frozenset({"tags"}))
    assert free == {"tags": {**asked, **added}}


@given(OBJECTS, OBJECTS, OBJECTS)
def test_update_applies_all_inputs(live: dict[str, Any], before: dict[str, Any], now: dict[str, Any]) -> None:
    assert as_asked(now, applied(live, before, now), NO_MAPS) == now


@given(OBJECTS, OBJECTS, OBJECTS)
def test_update_removes_old_inputs_and_keeps_additions(
    others: dict[str, Any], before: dict[str, Any], now: dict[str, Any]
) -> None:
    after = applied({**others, **before}, before, now)
    assert after.keys() == now.keys() | (others.keys() - before.keys())


@given(OBJECTS)
def test_update_without_changes_is_a_no_op(values: dict[str, Any]) -> None:
    live = {**values, "computed": {"id": 1}}
    assert applied(live, values, values) == live


@given(OBJECTS, OBJECTS)
def test_merge_contains_all_changes(live: dict[str, Any], changes: dict[str, Any]) -> None:
    after = merged(live, changes)
    assert after.keys() == live.keys() | changes.keys()
    assert merged(after, changes) == after


def test_appended_list_items_show() -> None:
    asked, live = {"l": [{"a": 1}]}, {"l": [{"a": 1, "own": 2}, {"b": 3}]}
    assert as_asked(asked, live, NO_MAPS) == {"l": [{"a": 1}, {"b": 3}]}
    assert merged({"l": [{"a": 1}, 2]}, {"l": [{"b": 1}]}) == {"l": [{"a": 1, "b": 1}, 2]}


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        ({}, {"a": 1}, [(("a",), "add")]),
        ({"a": {"b": 1}}, {"a": {}}, [(("a", "b"), "delete")]),
        ({"a": [1, 2]}, {"a": [1]}, [(("a", 1), "delete")]),
        ({"a": [1]}, {"a": [2, 3]}, [(("a", 0), "update"), (("a", 1), "add")]),
        ({"a": {}}, {"a": []}, [(("a",), "update")]),
    ],
)
def test_difference_has_path_and_kind(before: Any, now: Any, found: Any) -> None:
    assert list(differences(before, now)) == found


def test_path_covers_descendants() -> None:
    paths = frozenset({"nodeConfig.machineType", "name"})
    assert covers(paths, ("name",))
    assert covers(paths, ("nodeConfig", 0, "machineType", "x"))
    assert not covers(paths, ("nodeConfig",))
    assert not covers(paths, ("nodeConfig", "machineTypes"))


def test_whole_numbers_are_integers_and_nulls_are_dropped() -> None:
    assert from_wire(to_wire({"a": 2.0, "b": 1.5, "c": None, "d": {"e": None}})) == {"a": 2, "b": 1.5, "d": {"e": None}}


# State


def test_two_connections_share_the_state(tmp_path: Path) -> None:
    one, two = State(tmp_path / "w"), State(tmp_path / "w")
    with one.transaction() as view:
        view.put("t", "b", {"n": 1})
        view.put("t", "a", {"n": 2})
        view.put("u", "a", {})
        view.set("command", "up")
    with two.transaction() as view:
        assert view.get("t", "a") == {"n": 2}
        assert view.get("t", "c") is None
        assert [(type_, id_) for type_, id_, _ in view.all()] == [("t", "a"), ("t", "b"), ("u", "a")]
        assert [id_ for _, id_, _ in view.all("t")] == ["a", "b"]
        assert view.setting("command") == "up"
        assert view.setting("quota", 3) == 3
        view.remove("t", "a")
    with one.transaction() as view:
        assert view.get("t", "a") is None


def test_failed_transaction_rolls_back(tmp_path: Path) -> None:
    state = State(tmp_path / "w")

    def fail() -> None:
        with state.transaction() as view:
            view.put("t", "a", {})
            view.set("command", "up")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    with state.transaction() as view:
        assert list(view.all()) == []
        assert view.setting("command") is None


def test_concurrent_transactions_lose_nothing(tmp_path: Path) -> None:
    state = State(tmp_path / "w")

    def count() -> None:
        own = State(tmp_path / "w")
        for _ in range(10):
            with own.transaction() as view:
                view.set("n", view.setting("n", 0) + 1)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with state.transaction() as view:
        assert view.setting("n") == 40


def test_steps_count_from_one_in_every_command(tmp_path: Path) -> None:
    with State(tmp_path / "w").transaction() as view:
        view.set("command", "up")
        assert [view.begin_step("create", "t", urn) for urn in ("a", "b")] == [1, 2]
        view.end_step("a", "done")
        view.set("command", "destroy")
        assert view.begin_step("delete", "t", "a") == 1
        view.end_step("a", "gone wrong")
        assert [(step.number, step.urn, step.outcome) for step in view.steps("up")] == [(1, "a", "done"), (2, "b", "")]
        assert [(step.verb, step.outcome) for step in view.steps("destroy")] == [("delete", "gone wrong")]


# Faults


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "gcp:container/nodePool:NodePool create stockout",
            Fault("stockout", "gcp:container/nodePool:NodePool", "create"),
        ),
        ("kubernetes:* * 500", Fault("500", "kubernetes:*", "*")),
        ("  step   3 kill-after ", Fault("kill-after", step=3)),
    ],
)
def test_fault_round_trips_through_text(text: str, fault: Fault) -> None:
    assert Fault.parse(text) == fault


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "write"),
        ("x create", "write"),
        ("x create stockout now", "write"),
        ("x create explosion", "HOW is one of stockout, quota"),
        ("x make stockout", "make is not create"),
        ("step 0 stockout", "steps count from 1"),
        ("step -1 stockout", "-1 is not a step number"),
        ("step two stockout", "two is not a step number"),
    ],
)
def test_invalid_fault_is_explained(text: str, says: str) -> None:
    with pytest.raises(FaultError, match=says) as problem:
        Fault.parse(text)
    assert f'--fault "{text}"' in str(problem.value)


def test_faults_are_injected_once_and_in_order(tmp_path: Path) -> None:
    with State(tmp_path / "w").transaction() as view:
        faults.schedule(
            view, [Fault.parse("a:* create quota"), Fault.parse("step 2 500"), Fault.parse("a:* create 429")]
        )
        assert faults.inject(view, "b:c", "create", 1) is None
        assert faults.inject(view, "a:c", "delete", 1) is None
        assert faults.inject(view, "b:c", "delete", 2) == "500"
        assert faults.inject(view, "b:c", "delete", 2) is None
        assert faults.inject(view, "a:c", "create", 3) == "quota"
        assert faults.inject(view, "a:c", "create", 4) == "429"
        assert faults.inject(view, "a:c", "create", 5) is None
        assert faults.pending(view) == []
