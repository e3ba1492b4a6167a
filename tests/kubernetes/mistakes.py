"""Mistakes in the fields of Kubernetes objects."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from tools.kubernetes.api import Json

Path = tuple[str | int, ...]
Mistakes = Iterator[tuple[Path, Json]]
FREE = frozenset(
    {
        *("labels", "annotations", "matchLabels", "nodeSelector", "nodeLabels"),
        *("data", "stringData", "parameters", "volumeAttributes", "rayStartParams", "requests", "limits", "capacity"),
    }
)
"""Maps with user-defined keys: a server cannot detect a typo there."""


def typos(body: Json) -> Mistakes:
    """Yield, for every map with fields, an object with a misspelled copy of its first field."""
    for path, value in places(body):
        # In other kinds a selector is a structure.
        free = path and (path[-1] in FREE or (body["kind"] == "Service" and path == ("spec", "selector")))
        if isinstance(value, dict) and value and not free:
            # Not an s: a Service has clusterIP and clusterIPs.
            place = (*path, f"{next(iter(value))}x")
            yield place, changed(body, place, "planted")


def places(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every value of an object with its path."""
    yield path, value
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in parts:
        yield from places(inner, (*path, key))


def changed(body: Json, path: Path, value: Any) -> Json:
    """Return an object with another value at a path."""
    place: Any = (made := copy.deepcopy(body))
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return made
