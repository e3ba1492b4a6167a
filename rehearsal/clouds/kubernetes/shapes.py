"""Shapes of objects: fields, types and allowed values, and where a value does not match.

Null, and a value that is unknown in a preview, match every shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from rehearsal.clouds.values import UNKNOWN

Sort = Literal["text", "integer", "number", "boolean", "integer or text", "object", "list", "map", "any"]


@dataclass(frozen=True)
class Shape:
    """Shape of a value.

    Args:
        sort: its type.
        below: function that returns the fields of an object, because shapes may be recursive.
        item: shape of the values of a list or a map.
        required: required fields.
        offered: the values of an enumeration.
    """

    sort: Sort
    below: Callable[[], Mapping[str, Shape]] = dict
    item: Shape | None = None
    required: frozenset[str] = frozenset()
    offered: tuple[str, ...] = field(default=())

    @cached_property
    def fields(self) -> Mapping[str, Shape]:
        """The fields of an object."""
        return self.below()


@dataclass(frozen=True)
class Misfit:
    """Path at which a value does not match, as the API server writes it, and the reason."""

    path: str
    how: Literal["unknown", "type", "missing", "choice"]
    wanted: str = ""
    got: str = ""


TEXT = Shape("text")
INTEGER = Shape("integer")
NUMBER = Shape("number")
BOOLEAN = Shape("boolean")
EITHER = Shape("integer or text")
ANY = Shape("any")
TEXTS = Shape("list", item=TEXT)
TEXT_MAP = Shape("map", item=TEXT)


def thing(*required: str, **fields: Shape) -> Shape:
    """Return the shape of an object with these fields. A field that is a Python keyword has a trailing underscore."""
    named = {key.rstrip("_"): shape for key, shape in fields.items()}
    return Shape("object", below=lambda: named, required=frozenset(required))


def listed(item: Shape) -> Shape:
    """Return the shape of a list of such values."""
    return Shape("list", item=item)


def one_of(*texts: str) -> Shape:
    """Return the shape of an enumeration."""
    return Shape("text", offered=texts)


_GO = {"text": "string", "integer": "integer", "number": "number", "boolean": "boolean", "list": "array"}


def misfits(shape: Shape, value: Any, path: str = "") -> Iterator[Misfit]:
    """Yield every path at which a value does not match its shape."""
    if value is None or value == UNKNOWN or shape.sort == "any":
        return
    if not _fits(shape.sort, value):
        yield Misfit(path, "type", _GO.get(shape.sort, shape.sort), _called(value))
    elif shape.sort == "object":
        for key, below in value.items():
            if key not in shape.fields:
                yield Misfit(_under(path, key), "unknown")
            else:
                yield from misfits(shape.fields[key], below, _under(path, key))
        for key in sorted(shape.required):
            if value.get(key) is None:
                yield Misfit(_under(path, key), "missing")
    elif shape.sort == "list" and shape.item is not None:
        for index, below in enumerate(value):
            yield from misfits(shape.item, below, f"{path}[{index}]")
    elif shape.sort == "map" and shape.item is not None:
        for key, below in value.items():
            yield from misfits(shape.item, below, _under(path, key))
    elif shape.offered and value not in shape.offered:
        yield Misfit(path, "choice", ", ".join(f'"{text}"' for text in shape.offered), str(value))


def _fits(sort: Sort, value: Any) -> bool:
    if sort in ("object", "map"):
        return isinstance(value, Mapping)
    if sort == "list":
        return isinstance(value, list)
    if sort == "boolean":
        return isinstance(value, bool)
    if sort == "text":
        return isinstance(value, str)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if sort == "integer":
        return whole
    return whole or isinstance(value, float if sort == "number" else str)


def _called(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "number"
    return "array" if isinstance(value, list) else "object"


def _under(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
