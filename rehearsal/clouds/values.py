"""Property values on the wire and in Python, and how three versions of them relate: asked before, asked now, and live.

Numbers travel as floating point; whole ones are integers here. An unknown value is `UNKNOWN`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf import json_format, struct_pb2

from rehearsal.clouds.kind import Call, Json

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""A value that is not known during a preview, as the protocol writes it (pulumi: sdk/go/common/resource/plugin)."""


def from_wire(struct: struct_pb2.Struct) -> dict[str, Any]:
    """A protocol struct in Python."""
    plain: dict[str, Any] = _whole(json_format.MessageToDict(struct))
    return {key: value for key, value in plain.items() if value is not None}


def to_wire(values: Mapping[str, Any]) -> struct_pb2.Struct:
    """Values as a protocol struct."""
    struct = struct_pb2.Struct()
    json_format.ParseDict(dict(values), struct)
    return struct


Path = tuple[str | int, ...]


def differences(before: Any, now: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """What changed between two versions of the inputs: (path of keys and indexes, "add", "delete" or "update")."""
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
    """Whether a changed path is one of the dotted `paths` or lies below one; list indexes in it do not count."""
    names = [part for part in changed if isinstance(part, str)]
    return any(".".join(names[: length + 1]) in paths for length in range(len(names)))


def reaches_into(paths: frozenset[str], changed: Path) -> bool:
    """Whether one of the dotted `paths` lies below a changed path."""
    above = ".".join(part for part in changed if isinstance(part, str)) + "."
    return any(path.startswith(above) for path in paths)


def at_path(value: Any, path: Path) -> Any:
    """What lies at a path of keys and indexes; None if nothing does."""
    for part in path:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return None
    return value


def as_asked(asked: Any, live: Any, maps: frozenset[str], path: str = "") -> Any:
    """The live values of what was asked for, which is what a refresh compares with the program.

    What nobody asked for does not show, except new keys of free-form `maps` and new items of lists.
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
    """The live value after an update: what was asked before and no longer is goes, what others added stays."""
    if isinstance(now, Mapping) and isinstance(live, Mapping):
        old = before if isinstance(before, Mapping) else {}
        kept = {key: value for key, value in live.items() if key not in old or key in now}
        return {**kept, **{key: applied(live.get(key), old.get(key), value) for key, value in now.items()}}
    if isinstance(now, list) and isinstance(live, list) and isinstance(before, list) and len(now) == len(live):
        olds = [*before, *[None] * (len(now) - len(before))]
        return [applied(*three) for three in zip(live, olds, now, strict=False)]
    return now


def merged(live: Any, changes: Any) -> Any:
    """`live` with `changes` laid over it: maps are merged, lists item by item, everything else is replaced."""
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


def digest(text: str, length: int = 8) -> str:
    """Hexadecimal digits that look random and depend on the text alone."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def number(text: str, digits: int) -> str:
    """Decimal digits that look random and depend on the text alone; the first is no zero."""
    return str(int(digest(text, 32), 16) % (9 * 10 ** (digits - 1)) + 10 ** (digits - 1))


def kept(call: Call, defaults: Json) -> Json:
    """Outputs that are settled at creation: later what is live stays, unless the program asks for the key itself."""
    return {key: call.live.get(key, value) for key, value in defaults.items() if key not in call.inputs}


def blocks(call: Call, defaults: Json) -> Json:
    """Nested blocks that hold asked and computed values: at creation what is asked lies over the defaults.

    On update an asked block is left to the core, which keeps what the cloud added to it; one that is no longer asked
    for stays as it was.
    """
    if call.verb == "create":
        return {key: merged(value, call.inputs.get(key) or {}) for key, value in defaults.items()}
    return kept(call, defaults)
