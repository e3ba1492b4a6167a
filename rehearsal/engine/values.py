"""Property values on the wire and in Python: conversion, differences and merges of inputs and live values.

Numbers are floating point on the wire; whole ones are integers here. An unknown value is `UNKNOWN`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterator, Mapping
from ipaddress import IPv4Network
from typing import Any

from google.protobuf import json_format, struct_pb2

from rehearsal.engine.kind import Call, Json, values_at

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""A value that is unknown during a preview, as the protocol writes it (pulumi: sdk/go/common/resource/plugin)."""


def from_wire(struct: struct_pb2.Struct) -> dict[str, Any]:
    """Convert a protocol struct to Python."""
    plain: dict[str, Any] = _whole(json_format.MessageToDict(struct))
    return {key: value for key, value in plain.items() if value is not None}


def to_wire(values: Mapping[str, Any]) -> struct_pb2.Struct:
    """Convert values to a protocol struct."""
    struct = struct_pb2.Struct()
    json_format.ParseDict(dict(values), struct)
    return struct


def unknown(value: Any) -> bool:
    """Return whether a value contains an unknown of a preview."""
    if isinstance(value, Mapping):
        return any(unknown(item) for item in value.values())
    if isinstance(value, list):
        return any(unknown(item) for item in value)
    return bool(value == UNKNOWN)


Path = tuple[str | int, ...]


def differences(before: Any, now: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield the differences of two versions of the inputs: (path of keys and indexes, "add", "delete" or "update")."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted(before.keys() | now.keys()):
            below = (*path, key)
            if key not in before:
                yield below, "add"
            elif key not in now:
                yield below, "delete"
            else:
                yield from differences(before[key], now[key], below)
    elif isinstance(before, list) and isinstance(now, list):
        for index in range(max(len(before), len(now))):
            below = (*path, index)
            if index >= len(before):
                yield below, "add"
            elif index >= len(now):
                yield below, "delete"
            else:
                yield from differences(before[index], now[index], below)
    elif before != now:
        yield path, "update"


def covers(paths: frozenset[str], changed: Path) -> bool:
    """Return whether a changed path equals or is below one of the dotted `paths`; its list indexes do not count."""
    names = [part for part in changed if isinstance(part, str)]
    return any(".".join(names[: length + 1]) in paths for length in range(len(names)))


def reaches_into(paths: frozenset[str], changed: Path, block: Any) -> bool:
    """Return whether one of the dotted `paths` is given in a block at a changed path; an unknown block may give any."""
    above = ".".join(part for part in changed if isinstance(part, str)) + "."
    below = (path.removeprefix(above) for path in paths if path.startswith(above))
    return any(block == UNKNOWN or any(True for _ in values_at(block, path)) for path in below)


def as_asked(asked: Any, live: Any, maps: frozenset[str], path: str = "") -> Any:
    """Return the live values of the properties that the program sets, which a refresh compares with the program.

    Other properties are hidden, except new keys of free-form `maps` and new items of lists.
    """
    if isinstance(asked, Mapping) and isinstance(live, Mapping):
        free = path in maps
        return {
            key: as_asked(asked[key], live[key], maps, f"{path}.{key}" if path else key) if key in asked else live[key]
            for key in live
            if key in asked or free
        }
    if isinstance(asked, list) and isinstance(live, list):
        return [
            as_asked(asked[index], value, maps, path) if index < len(asked) else value
            for index, value in enumerate(live)
        ]
    return live


def applied(live: Any, before: Any, now: Any) -> Any:
    """Return the live value after an update without the removed inputs, but with additions by others."""
    if isinstance(now, Mapping) and isinstance(live, Mapping):
        old = before if isinstance(before, Mapping) else {}
        kept = {key: value for key, value in live.items() if key not in old or key in now}
        return {**kept, **{key: applied(live.get(key), old.get(key), value) for key, value in now.items()}}
    if isinstance(now, list) and isinstance(live, list) and isinstance(before, list) and len(now) == len(live):
        olds = [*before, *[None] * (len(now) - len(before))]
        return [applied(*three) for three in zip(live, olds, now, strict=False)]
    return now


def merged(live: Any, changes: Any) -> Any:
    """Merge `changes` into `live`: maps by key, lists item by item; everything else is replaced."""
    if isinstance(live, Mapping) and isinstance(changes, Mapping):
        return {**live, **{key: merged(live.get(key), value) for key, value in changes.items()}}
    if isinstance(live, list) and isinstance(changes, list):
        longer = [*changes, *live[len(changes) :]]
        return [merged(live[i], value) if i < min(len(live), len(changes)) else value for i, value in enumerate(longer)]
    return changes


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return value


def listed(live: Json, maps: Container[str]) -> Json:
    """Return a live value as a data source does: each block is a list with a plural name, but not those in `maps`."""
    found: Json = {}
    for name, value in live.items():
        if isinstance(value, dict) and name not in maps:
            plural = f"{name[:-1]}ies" if name.endswith("y") else f"{name}{'es' if name.endswith('s') else 's'}"
            found[plural] = [listed(value, maps)]
        elif isinstance(value, list):
            found[name] = [listed(each, maps) if isinstance(each, dict) else each for each in value]
        else:
            found[name] = value
    return found


def digest(text: str, length: int = 8) -> str:
    """Return hexadecimal digits that depend only on the text."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def number(text: str, digits: int) -> str:
    """Return decimal digits that depend only on the text; the first is not zero."""
    return str(int(digest(text, 32), 16) % (9 * 10 ** (digits - 1)) + 10 ** (digits - 1))


def last(reference: object) -> str:
    """Return the last part of a path or ARN: the name."""
    return str(reference).rstrip("/").rsplit("/", 1)[-1]


def cidr(text: object) -> IPv4Network | None:
    """Parse an address range; None if the text is not one or has host bits set."""
    try:
        return IPv4Network(str(text)) if "/" in str(text) else None
    except ValueError:
        return None


def kept(call: Call, defaults: Json) -> Json:
    """Return outputs that are fixed at creation: live values stay, unless the program sets the key itself."""
    return {key: call.live.get(key, value) for key, value in defaults.items() if key not in call.inputs}


def blocks(call: Call, defaults: Json) -> Json:
    """Return nested blocks of set and computed values: at creation, the inputs merged over the defaults.

    On update the provider keeps what the cloud added to a set block; a block that is no longer set stays unchanged.
    """
    if call.verb == "create":
        return {key: merged(value, call.inputs.get(key) or {}) for key, value in defaults.items()}
    return kept(call, defaults)
