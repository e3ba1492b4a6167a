"""Mistakes planted into an object, one at a time, at every place that it has: a typo, and a value of a wrong type."""

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
"""Maps whose keys are the user's own: no server can know a typo there."""


class Plant(NamedTuple):
    """`body` with one mistake at `place` ("spec.workerGroupSpecs.0.replicas"), whose field is called `name`."""

    place: str
    name: str
    body: Json


def typos(body: Json) -> Iterator[Plant]:
    """In every map whose keys are fields, a second spelling of its first field beside it."""
    for path, value in _places(body):
        if isinstance(value, dict) and value and not _is_free(body, path):
            name = f"{next(iter(value))}s"
            changed = copy.deepcopy(body)
            _at(changed, path)[name] = "planted"
            yield Plant(".".join(map(str, (*path, name))), name, changed)


def wrong_types(body: Json) -> Iterator[Plant]:
    """For every field, text in the place of a map or a list, and a map in the place of text, number or yes and no.

    Not for what says which object it is: without that there is no request.
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
    # Elsewhere a selector is a structure.
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
