"""Shapes of built-in kinds, read from the classes of the Pulumi SDK that the program uses.

The SDK is generated from Kubernetes' OpenAPI description (pulumi-kubernetes 4.34.2, read 2026-11).
"""

from __future__ import annotations

import importlib
import inspect
import types
import typing
from collections.abc import Awaitable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any

from rehearsal.clouds.kubernetes.identity import Api
from rehearsal.clouds.kubernetes.shapes import ANY, BOOLEAN, EITHER, INTEGER, NUMBER, TEXT, Shape

_AMOUNTS = ("limits", "requests", "capacity", "hard", "overhead")
_PLAIN: Mapping[Any, Shape] = {str: TEXT, int: INTEGER, bool: BOOLEAN, float: NUMBER}


@cache
def built_in(api: Api) -> Shape | None:
    """Return the shape of a built-in kind; None if Kubernetes (in the SDK's version) has no such kind."""
    if api.group and "." in api.group and not api.group.endswith(".k8s.io"):
        return None
    package = f"pulumi_kubernetes.{(api.group or 'core').split('.')[0]}.{api.version}"
    try:
        module = importlib.import_module(f"{package}._inputs")
    except ModuleNotFoundError:
        return None
    arguments = getattr(module, f"{api.kind}Args", None)
    if not isinstance(arguments, type):
        return None
    own = {"apiVersion", "kind", "metadata"} & _reflection().input_type_types(arguments).keys()
    return _of_class(arguments) if len(own) == 3 else None


def part(module: str, name: str) -> Shape:
    """Return the shape of a part of built-in kinds: part("core.v1", "PodTemplateSpec")."""
    return _of_class(getattr(importlib.import_module(f"pulumi_kubernetes.{module}._inputs"), f"{name}Args"))


def _reflection() -> Any:
    # Invariants use the names of this package's kinds without the SDK, which takes a second to import.
    from pulumi import _types

    return _types


@cache
def _of_class(arguments: type) -> Shape:
    return Shape(
        "object",
        below=lambda: {name: _of_field(name, hint) for name, hint in _reflection().input_type_types(arguments).items()},
        required=_required(arguments),
    )


def _of_field(name: str, hint: Any) -> Shape:
    shape = _of_hint(hint)
    if name == "sizeLimit":
        return ANY
    # The SDK types quantities as text; the API accepts numbers, too. Their format is a separate rule.
    return Shape("map", item=ANY) if name in _AMOUNTS and shape.sort == "map" else shape


def _required(arguments: type) -> frozenset[str]:
    names = _reflection().input_type_py_to_pulumi_names(arguments)
    parameters = inspect.signature(arguments).parameters.values()
    return frozenset(names[each.name] for each in parameters if each.default is inspect.Parameter.empty)


def _of_hint(hint: Any) -> Shape:
    choices = [choice for choice in _choices(hint) if choice is not type(None)]
    plain = {_PLAIN[choice] for choice in choices if choice in _PLAIN}
    if plain == {TEXT, INTEGER}:
        return EITHER
    if plain:
        # An enumeration also accepts plain text, so that values of later releases pass.
        return plain.pop()
    for choice in choices:
        origin, arguments = typing.get_origin(choice), typing.get_args(choice)
        if isinstance(choice, type) and _reflection().is_input_type(choice):
            return _of_class(choice)
        if isinstance(choice, type) and issubclass(choice, Enum):
            return TEXT
        if origin is Sequence:
            return Shape("list", item=_of_hint(arguments[0]))
        if origin is Mapping:
            return Shape("map", item=_of_hint(arguments[1]))
    return ANY


def _choices(hint: Any) -> list[Any]:
    """Return the alternatives of a type, without the awaitable values that the SDK accepts everywhere."""
    origin = typing.get_origin(hint)
    if origin is typing.Union or origin is types.UnionType:
        return [below for argument in typing.get_args(hint) for below in _choices(argument)]
    from pulumi import Output

    return [] if origin in (Awaitable, Output) else [hint]
