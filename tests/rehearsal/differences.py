"""Differences of a golden list from that of another stack, which a reviewer reads instead of the whole list.

    everywhere: vpc-1 → vpc-2              every value of resources of both that is vpc-1 there is vpc-2 here
    - type name                            resource of the other list alone
    + type name                            resource of this list alone, with all its lines
    type name                              resource of both
      spec.size: 3 → 4                     changed value
      + spec.zones[1]: us-east-2b          added value, at its place in this list
      - spec.zones[0]: us-east-2a          removed value, at its place in the other list

Together with the other list they determine this one, so no change of a resource leaves them as they are.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any

import yaml

WIDTH = 120
WAITS = "waits for (ordering)"
"""What the list has a line of for each resource that another one waits for."""
_NONE = object()
Pair = tuple[str, Any, Any]
"""A path, its value in the other list and in this one; `_NONE` where there is none."""


def differences(before: str, after: str) -> Iterator[str]:
    """Yield the lines that tell one golden list from another, which it resembles."""
    old, new = _resources(before), _resources(after)
    both = {name: list(_pairs("", _fields(old[name]), _fields(new[name]))) for name in old.keys() & new.keys()}
    everywhere = _everywhere(pair for pairs in both.values() for pair in pairs)
    yield from (f"everywhere: {value} → {other}" for value, other in sorted(everywhere))
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"- {name}"
        elif name not in old:
            yield f"+ {name}"
            yield from (f"+ {line}".rstrip() for line in new[name])
        elif lines := [line for pair in both[name] if pair[1:] not in everywhere for line in _lines(*pair)]:
            yield name
            yield from (f"  {line}" for line in lines)


def _resources(text: str) -> dict[str, list[str]]:
    """Return the lines of each resource."""
    blocks = [block.split("\n") for block in re.split(r"\n\n(?=\S)", text.rstrip("\n"))]
    found = {name: lines for name, *lines in blocks}
    assert len(found) == len(blocks)
    return found


def _fields(lines: list[str]) -> dict[str, Any]:
    """Return the inputs of a resource, and what the list says of it besides."""
    at = lines.index("  inputs:") if "  inputs:" in lines else len(lines)
    fields: dict[str, Any] = {WAITS: []}
    for line in lines[:at]:
        key, _, value = line.strip().partition(": ")
        if key == WAITS:
            fields[WAITS].append(value)
        else:
            fields[key] = value or True
    inputs = yaml.safe_load("\n".join(lines[at + 1 :])) or {}
    assert not fields.keys() & inputs.keys()
    return fields | inputs


def _pairs(path: str, old: Any, new: Any) -> Iterator[Pair]:
    """Yield every value of two resources, also those that are equal. Items of lists keep their names elsewhere."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted(old.keys() | new.keys()):
            below = f'{path}["{key}"]' if "." in key else f"{path}.{key}".lstrip(".")
            yield from _pairs(below, old.get(key, _NONE), new.get(key, _NONE))
    elif isinstance(old, list) and isinstance(new, list):
        steps = SequenceMatcher(None, [_name(item) for item in old], [_name(item) for item in new], autojunk=False)
        for step, start, end, new_start, new_end in steps.get_opcodes():
            paired = end - start if step == "equal" or end - start == new_end - new_start else 0
            for at in range(paired):
                yield from _pairs(_item(path, new_start + at, new), old[start + at], new[new_start + at])
            yield from ((_item(path, at, old), old[at], _NONE) for at in range(start + paired, end))
            yield from ((_item(path, at, new), _NONE, new[at]) for at in range(new_start + paired, new_end))
    else:
        yield path, old, new


def _everywhere(pairs: Iterable[Pair]) -> list[tuple[str, str]]:
    """Return the names that are replaced by one other name wherever they are, which is at two places or more."""
    found: dict[str, list[Any]] = defaultdict(list)
    for _, old, new in pairs:
        if isinstance(old, str) and old[:1].isalpha() and new is not _NONE:
            found[old].append(new)
    return [
        (old, news[0])
        for old, news in found.items()
        if len(news) > 1 and isinstance(news[0], str) and news[0] != old and all(new == news[0] for new in news)
    ]


def _lines(path: str, old: Any, new: Any) -> Iterator[str]:
    """Yield the lines of a changed, added or removed value. A removed one is in the other list, if it is long."""
    if old is _NONE:
        line = f"+ {path}: {_inline(new)}"
        yield from [line] if len(line) <= WIDTH else [f"+ {path}:", *(f"+   {each}" for each in _block(new))]
    elif new is _NONE:
        line = f"- {path}: {_inline(old)}"
        yield line if len(line) <= WIDTH else f"- {path}"
    elif isinstance(old, str) and isinstance(new, str) and old != new and "\n" in old + new:
        yield f"{path}:"
        yield from (line for pair in _pairs("", old.split("\n"), new.split("\n")) for line in _lines(*pair))
    elif _inline(old) != _inline(new):
        line = f"{path}: {_inline(old)} → {_inline(new)}"
        sides = (f"{sign} {each}" for sign, value in (("-", old), ("+", new)) for each in _block(value))
        yield from [line] if len(line) <= WIDTH else [f"{path}:", *sides]


def _name(item: Any) -> str:
    return str(item["name"]) if isinstance(item, Mapping) and "name" in item else _inline(item)


def _item(path: str, at: int, items: list[Any]) -> str:
    named = isinstance(items[at], Mapping) and "name" in items[at]
    return f"{path}[{at} {items[at]['name']}]" if named else f"{path}[{at}]"


def _inline(value: Any) -> str:
    text = yaml.safe_dump(value, allow_unicode=True, default_flow_style=True, width=math.inf)
    return text.removesuffix("...\n").rstrip("\n")


def _block(value: Any) -> list[str]:
    return yaml.safe_dump(value, allow_unicode=True, width=WIDTH - 10).removesuffix("...\n").splitlines()
