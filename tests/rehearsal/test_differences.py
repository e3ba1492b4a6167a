"""Differences of golden lists: what they say, and that two lists never have the same ones."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.rehearsal.differences import differences

NAMED = st.fixed_dictionaries({"name": st.sampled_from("xy"), "size": st.integers(0, 2)})
KEYS = st.sampled_from(["k", "l", "m.n"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.booleans() | st.integers(0, 2) | st.sampled_from(["a", "b", "1", "true", "a\nb\n"]),
    lambda below: st.lists(below, max_size=4) | st.lists(NAMED, max_size=3) | st.dictionaries(KEYS, below, max_size=3),
    max_leaves=8,
)
LISTS = st.lists(st.dictionaries(KEYS, VALUES, max_size=3), min_size=1, max_size=2)


def written(*resources: dict[str, Any], waits: str = "") -> str:
    blocks = []
    for number, inputs in enumerate(resources):
        text = yaml.safe_dump(inputs) if inputs else ""
        lines = [f"type {number}", *([f"  waits for (ordering): {waits}"] if waits else [])]
        lines += ["  inputs:", *(f"    {line}" if line else "" for line in text.splitlines())] if inputs else []
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


@given(LISTS, LISTS, LISTS)
def test_lists_that_differ_have_other_differences(like: Any, one: Any, other: Any) -> None:
    texts = [list(differences(written(*like), written(*each))) for each in (one, other)]
    assert (texts[0] == texts[1]) is (yaml.safe_dump(one) == yaml.safe_dump(other))
    assert (texts[0] == []) is (yaml.safe_dump(one) == yaml.safe_dump(like))


def test_differences_say_what_and_where() -> None:
    like = {"name": "gke", "size": 3, "zones": ["a", "b"], "env": [{"name": "A", "value": "1"}], "of": "gke"}
    this = {"name": "dws", "size": 4, "zones": ["b"], "env": [{"name": "A", "value": "2"}], "of": "dws", "spot": True}
    said = list(differences(written(like, like), written(this, waits="pool 1")))
    assert said == [
        "everywhere: gke → dws",
        "type 0",
        "  env[0 A].value: '1' → '2'",
        "  size: 3 → 4",
        "  + spot: true",
        "  + waits for (ordering)[0]: pool 1",
        "  - zones[0]: a",
        "- type 1",
    ]
