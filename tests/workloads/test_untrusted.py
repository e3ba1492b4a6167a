"""What comes from a cluster: names stay in their folder and apart, numbers are finite, copies are bounded."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.hostile import bounded_time
from workloads.untrusted import LONGEST_NAME, Limit, file_name, number, read

NAMES = ["", ".", "..", "/", "a/b", "a\\b", "CON", "con", "nul.txt", "lpt1", "-rf", ".ssh", "a.", "a ", "ü", "\ud800"]
NAMES += ["A", "a", "a~b", "a" * 80, "a" * 81, "\0", "x\ny", "\u202ex", "~root", "*", "run-1", "raysubmit_aB"]


def anything() -> st.SearchStrategy[str]:
    return st.sampled_from(NAMES) | st.text(alphabet=st.characters(), max_size=120)


@given(anything())
@example("../../../etc/passwd")
def test_a_name_is_one_portable_part_of_a_path(text: str) -> None:
    name = file_name(text)
    assert os.path.normpath(f"/folder/{name}.log") == f"/folder/{name}.log"
    assert Path(name).name == name
    assert name.isascii()
    assert name.isprintable()
    assert not set(name) & set('/\\:*?"<>| ')
    assert name[0] not in ".-~"
    assert name[-1] != "."
    assert len(name) <= LONGEST_NAME + 17
    assert name.partition(".")[0].lower() not in ("con", "prn", "aux", "nul", "com1", "lpt1")


@given(anything(), anything())
@example("A", "a")
@example("a/b", "a-b")
@example("x" * 500, "x" * 501)
@example("a/b", file_name("a/b"))
def test_different_texts_have_different_names_on_every_file_system(one: str, other: str) -> None:
    assert (file_name(one).lower() == file_name(other).lower()) == (one == other)


def test_an_ordinary_id_is_its_name() -> None:
    for text in ("nccl-20261121-130501-a1b2c3", "gke-ray-head-x7k2p", "10.0.0.2", "host_1"):
        assert file_name(text) == text


@pytest.mark.parametrize(
    "value", ["nan", "-inf", "1e999", 10**400, math.nan, math.inf, None, True, [], {}, "x", "", b"1"]
)
def test_what_is_no_finite_number_is_none(value: object) -> None:
    assert number(value) is None


@pytest.mark.parametrize(("value", "found"), [(3, 3), ("2.5", 2.5), (-1, 0), (1e300, 10), ("9" * 300, 10), (0.0, 0)])
def test_a_number_is_moved_into_its_limits(value: object, found: float) -> None:
    assert number(value, 0, 10) == found


def test_a_value_that_no_json_has_does_not_hide_the_others() -> None:
    text = (
        '{"a": NaN, "b": -Infinity, "c": 1e999, "d": %s, "e": "\\ud800", "\\udfff": 1, "f": "\\ud83d\\ude00", "g": 7}'
    )
    found = read(text % ("9" * 5000))
    assert found == {"a": None, "b": None, "c": None, "d": None, "e": "?", "?": 1, "f": "\U0001f600", "g": 7}
    assert read(b'["\xff"]') == ["\ufffd"]


@pytest.mark.parametrize("levels", [900, 5000])
def test_levels_beyond_those_of_the_interpreter_are_read(levels: int) -> None:
    assert Limit(2**20).value(read("[" * levels + "]" * levels))[0][0]


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "x", '{"a": 01}', "\x00"])
def test_what_is_not_json_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(text)


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | anything(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(anything(), inner, max_size=6),
    max_leaves=60,
)


@given(DOCUMENTS)
def test_a_copy_within_the_limits_is_equal(value: Any) -> None:
    limit = Limit(2**20)
    assert limit.value(value) == value
    assert limit.cut == 0


@given(st.lists(DOCUMENTS, max_size=20), st.integers(0, 2000))
def test_copies_have_the_size_that_was_left(values: list[Any], size: int) -> None:
    limit = Limit(size)
    kept = limit.list_of(values, 10, size)
    assert kept == values[: len(kept)] or limit.cut
    assert len(json.dumps(kept, indent=1)) <= size + 4 or not kept
    assert len(kept) <= 10
    assert limit.cut >= len(values) - len(kept)


BIG: list[Any] = [
    ["x" * 2**16] * 10_000,
    {str(number): "x" for number in range(200_000)},
    [[[0] * 2000] * 2000] * 2000,
    "x" * 2**24,
]


@pytest.mark.parametrize("value", BIG, ids=["texts", "names", "lists", "text"])
def test_a_large_value_is_copied_in_time(value: Any) -> None:
    with bounded_time():
        limit = Limit(2**20)
        assert len(json.dumps(limit.value(value))) <= 2**20 + 2**17
    assert limit.cut
