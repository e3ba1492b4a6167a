"""Differences of a golden list from that of another stack, which a reviewer reads instead of the whole list.

    - type name                          resource of the other list alone
    + type name                          resource of this list alone, with all its lines
    type name                            resource of both
      spec.size: 3 → 4                   changed value
      + spec.zones[1]: us-east-2b        added value, at its place in this list
      - spec.zones[0]: us-east-2a        removed value, at its place in the other list

Together with the other list they determine this one, so no change of a resource leaves them as they are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any

import yaml

WIDTH = 120
WAITS = "waits for (ordering)"
"""What the list has a line of for each resource that another one waits for."""


def differences(before: str, after: str) -> Iterator[str]:
    """Yield the lines that tell one golden list from another, which it resembles."""
    old, new = _resources(before), _resources(after)
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"- {name}"
        elif name not in old:
            yield f"+ {name}"
            yield from (f"+ {line}".rstrip() for line in new[name])
        elif old[name] != new[name]:
            yield name
            yield from (f"  {line}" for line in _changes("", _fields(old[name]), _fields(new[name])))


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


def _changes(path: str, old: Any, new: Any) -> Iterator[str]:
    if _inline(old) == _inline(new):
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted(old.keys() | new.keys()):
            below = f'{path}["{key}"]' if "." in key else f"{path}.{key}".lstrip(".")
            if key not in new:
                yield _removed(below, old[key])
            elif key not in old:
                yield from _added(below, new[key])
            else:
                yield from _changes(below, old[key], new[key])
    elif isinstance(old, list) and isinstance(new, list):
        yield from _items(path, old, new)
    elif isinstance(old, str) and isinstance(new, str) and "\n" in old + new:
        yield f"{path}:"
        yield from _items("", old.split("\n"), new.split("\n"))
    elif len(line := f"{path}: {_inline(old)} → {_inline(new)}") <= WIDTH:
        yield line
    else:
        yield f"{path}:"
        yield from (f"- {line}" for line in _block(old))
        yield from (f"+ {line}" for line in _block(new))


def _items(path: str, old: list[Any], new: list[Any]) -> Iterator[str]:
    """Yield the changes of a list, whose items keep their names at other places."""
    steps = SequenceMatcher(None, [_name(item) for item in old], [_name(item) for item in new], autojunk=False)
    for step, start, end, new_start, new_end in steps.get_opcodes():
        paired = end - start if step == "equal" or end - start == new_end - new_start else 0
        for at in range(paired):
            yield from _changes(_item(path, new_start + at, new), old[start + at], new[new_start + at])
        for at in range(start + paired, end):
            yield _removed(_item(path, at, old), old[at])
        for at in range(new_start + paired, new_end):
            yield from _added(_item(path, at, new), new[at])


def _name(item: Any) -> str:
    return str(item["name"]) if isinstance(item, Mapping) and "name" in item else _inline(item)


def _item(path: str, at: int, items: list[Any]) -> str:
    item = items[at]
    return f"{path}[{at} {item['name']}]" if isinstance(item, Mapping) and "name" in item else f"{path}[{at}]"


def _removed(path: str, value: Any) -> str:
    """Return the line of a value, without it if that is long: the other list has it."""
    line = f"- {path}: {_inline(value)}"
    return line if len(line) <= WIDTH else f"- {path}"


def _added(path: str, value: Any) -> Iterator[str]:
    if len(line := f"+ {path}: {_inline(value)}") <= WIDTH:
        yield line
    else:
        yield f"+ {path}:"
        yield from (f"+   {line}" for line in _block(value))


def _inline(value: Any) -> str:
    text = yaml.safe_dump(value, allow_unicode=True, default_flow_style=True, width=math.inf)
    return text.removesuffix("...\n").rstrip("\n")


def _block(value: Any) -> list[str]:
    return yaml.safe_dump(value, allow_unicode=True, width=WIDTH - 10).removesuffix("...\n").splitlines()
