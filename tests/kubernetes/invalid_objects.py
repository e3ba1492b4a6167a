"""Invalid variants of an object: a typo, and a value of a wrong type, at every path."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

from tools.kubernetes.api import Json

Path = tuple[str | int, ...]

FREE = frozenset(
    {
        *("labels", "annotations", "matchLabels", "nodeSelector", "nodeLabels"),
        *("data", "stringData", "parameters", "volumeAttributes", "rayStartParams", "requests", "limits", "capacity"),
    }
)
"""Maps with user-defined keys: a server cannot detect a typo there."""


class Plant(NamedTuple):
    """`body` with one mistake at `place` ("spec.workerGroupSpecs.0.replicas"), in the field `name`."""

    place: str
    name: str
    body: Json


def typos(body: Json) -> Iterator[Plant]:
    """Yield, for every map with fields, an object with a misspelled copy of its first field."""
    for path, value in _places(body):
        if isinstance(value, dict) and value and not _is_free(body, path):
            name = f"{next(iter(value))}s"
            changed = copy.deepcopy(body)
            _at(changed, path)[name] = "planted"
            yield Plant(".".join(map(str, (*path, name))), name, changed)


def wrong_types(body: Json) -> Iterator[Plant]:
    """Yield, for every field, text instead of a map or a list, and a map instead of text, number or boolean.

    Fields that identify the object are skipped: without them there is no request.
    """
    for path, value in _places(body):
        if not path or path[0] in ("apiVersion", "kind") or path in (("metadata",), ("metadata", "name")):
            continue
        if path == ("metadata", "namespace"):
            continue
        changed = copy.deepcopy(body)
        _at(changed, path[:-1])[path[-1]] = "planted" if isinstance(value, dict | list) else {"planted": "planted"}
        name = next(part for part in reversed(path) if isinstance(part, str))
        yield Plant(".".join(map(str, path)), name, changed)


def _is_free(body: Json, path: Path) -> bool:
    # In other kinds a selector is a structure.
    return bool(path) and (path[-1] in FREE or (body["kind"] == "Service" and path == ("spec", "selector")))


def _places(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    yield path, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _places(inner, (*path, index))


def _at(value: Any, path: Path) -> Any:
    for part in path:
        value = value[part]
    return value
