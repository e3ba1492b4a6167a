"""Statements of packages about a resource type's inputs: facts by dotted path, in which lists are transparent.

The facts are those of `facts.json`: those outside "api" are checks of the provider at preview.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from botocore.session import Session
from pulumi import _types

Json = dict[str, Any]
# Returns what a source states of a value, and the fields that the value or its items have.
Read = Callable[[Any], tuple[Json, Mapping[str, Any]]]

_SCALARS = {str: "string", bool: "boolean", int: "integer", float: "number"}
_UNITS = {"string": "Length", "list": "Items"}
# Longer enums (instance types) are older than what the APIs accept; `machines` has those that exist.
_MOST_VALUES = 60


def sdk_inputs(token: str) -> dict[str, Json]:
    """Return every input of Pulumi's SDK: its type, and whether it is required.

    A type is that of one value, with a prefix: "string", "integer", "number", "boolean", "object", "json" (a string or
    an object), "list<object>", "map<string>".
    """
    package, module, name = token.split(":")
    imported = importlib.import_module(f"pulumi_{package}.{module.partition('/')[0]}")
    return dict(_flat(_argument, _arguments(getattr(imported, f"{name}Args"))))


def published(source: str, packages: Path) -> dict[str, Json]:
    """Return the facts in a schema of a discovery document, CloudFormation or botocore.

    They are "compute.v1:Network", "EKS::Cluster" or, for one of its properties, "EKS::Cluster.Name", and
    "eks:CreateCluster" or, for one of its structures, "ec2:CreateLaunchTemplate.LaunchTemplateData".
    """
    document, _, name = source.partition(":")
    name, _, part = name.partition(".")
    if name.startswith(":"):
        folder = packages / "cfnlint" / "data" / "schemas"
        file = _json(folder / "providers" / "us-east-1.json")[f"AWS::{document}:{name}"]
        schema = _json(folder / "resources" / f"{file}.json")
        paths = {path for path, _ in _flat(_document(schema.get("definitions", {})), schema["properties"])}
        once = {path.removeprefix("/properties/").replace("/", ".") for path in schema.get("createOnlyProperties", ())}
        return {path: {"immutable": path in once and part in ("", path)} for path in sorted(paths | once)}
    if re.search(r"\.v\d", document):
        schemas = _json(packages / "googleapiclient" / "discovery_cache" / "documents" / f"{document}.json")["schemas"]
        return dict(_flat(_document(schemas), schemas[name]["properties"]))
    members = Session().get_service_model(document).operation_model(name).input_shape.members
    return dict(_flat(_shape, members[part].members if part else members))


def _flat(read: Read, fields: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Json]]:
    for name, field in fields.items():
        fact, below = read(field)
        yield above + name, fact
        yield from _flat(read, below, f"{above}{name}.")


def _argument(argument: tuple[Any, bool]) -> tuple[Json, Mapping[str, Any]]:
    """Read an argument of the SDK: a type hint, and whether it is required."""
    hint, required = argument
    type_, args = _described(hint)
    return {"type": type_, **({"required": True} if required else {})}, _arguments(args) if args else {}


def _arguments(args: type) -> dict[str, tuple[Any, bool]]:
    parameters, hints = inspect.signature(args).parameters, _types.input_type_types(args)
    return {
        name: (hints[name], parameters[python].default is inspect.Parameter.empty)
        for python, name in _types.input_type_py_to_pulumi_names(args).items()
    }


def _described(hint: Any) -> tuple[str, type | None]:
    """Return the name of a type, and the class of its fields if it is or has an object."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (list, Sequence):
        inner, fields = _described(_types.unwrap_type(arguments[0]))
        return f"list<{inner}>", fields
    if origin in (dict, Mapping):
        return f"map<{_described(_types.unwrap_type(arguments[1]))[0]}>", None
    if origin is typing.Union:  # an enum or a policy document, each of which may be a string
        return ("json" if any("PolicyDocument" in str(each) for each in arguments) else "string"), None
    return ("object", hint) if _types.is_input_type(hint) else (_SCALARS[hint], None)


def _shape(shape: Any) -> tuple[Json, Mapping[str, Any]]:
    """Read a shape of botocore. The provider takes its enums from the same models and checks them at preview."""
    item = shape.member if shape.type_name == "list" else shape
    limits = {"pattern": item.metadata.get("pattern")}
    for each in (item, shape):
        limits |= {f"{end}{_UNITS.get(each.type_name, '')}": each.metadata.get(end) for end in ("min", "max")}
    enum = getattr(item, "enum", ())
    fact = {"enum": list(enum)} if 0 < len(enum) <= _MOST_VALUES else {}
    return {**fact, "api": _given(limits)}, item.members if item.type_name == "structure" else {}


def _document(named: Json) -> Read:
    """Return how to read a JSON schema whose definitions are `named`."""

    def read(node: Json) -> tuple[Json, Mapping[str, Any]]:
        while "$ref" in node or node.get("type") == "array":
            node = named[node["$ref"].rpartition("/")[2]] if "$ref" in node else node["items"]
        return {"api": _given({key: node.get(key) for key in ("enum", "pattern")})}, node.get("properties", {})

    return read


def _given(limits: Json) -> Json:
    return {key: value for key, value in limits.items() if value is not None}


def _json(path: Path) -> Json:
    found: Json = json.loads(path.read_text(encoding="utf-8"))
    return found
