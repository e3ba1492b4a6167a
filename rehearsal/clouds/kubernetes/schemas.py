"""JSON schemas of Kubernetes objects and their strict validation, in the API server's words.

Schemas of built-in kinds are generated from the Pulumi SDK, which is generated from Kubernetes' OpenAPI description;
those of custom kinds from the CRDs in the pinned Go modules (`tools/kubernetes/modules`). Both are generated on first
use and kept in the user's cache. Without Go, custom kinds are not checked: see `unchecked`. Two of GKE's are in this
folder: ComputeClass is in no module that can be pinned, and PodMonitoring is small.

The real provider asks for strict validation only when it updates; on creation, the API server drops unknown fields with
a warning (pulumi-kubernetes: provider/pkg/await/await.go, 94977969, 2026-07-01). The rehearsal does not let that pass.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import os
import threading
import types
import typing
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

from rehearsal.clouds.kubernetes.identity import Api, api
from rehearsal.engine.kind import Failure, Json
from rehearsal.engine.values import UNKNOWN
from tools import go_build

WRITTEN = {
    "cloud.google.com": Path(__file__).with_name("compute_class.yaml"),
    "monitoring.googleapis.com": Path(__file__).with_name("pod_monitoring.yaml"),
}
"""CRDs of GKE in this folder, by group: ComputeClass and PodMonitoring."""
_MANIFESTS = Path(go_build.__file__).with_name("kubernetes") / "modules"
_CRDS = {
    "ray.io": ("github.com/ray-project/kuberay/ray-operator", "config/crd/bases"),
    "kueue.x-k8s.io": ("sigs.k8s.io/kueue", "config/components/crd/bases"),
    "networking.gke.io": ("github.com/GoogleCloudPlatform/gke-networking-api", "config/crds"),
}
"""Folder of the CRDs by group: Go module, path in it."""

QUANTITY: Json = {
    "type": ["string", "number"],
    "pattern": r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$",
}
"""Quantities, which the SDK types as text (Kubernetes: apimachinery/pkg/api/resource, read 2026-11)."""
_TEXT: Json = {"type": ["string"]}
_TEXTS: Json = {"type": "object", "additionalProperties": _TEXT}
_AMOUNTS = ("limits", "requests", "capacity", "hard", "overhead")
_QUANTITIES = {(name, str(_TEXTS)): {**_TEXTS, "additionalProperties": QUANTITY} for name in _AMOUNTS}
_QUANTITIES["sizeLimit", str(_TEXT)] = QUANTITY
_PLAIN: Mapping[Any, str] = {str: "string", int: "integer", bool: "boolean", float: "number"}
_LIMITS = [f"{bound}{what}" for bound in ("min", "max") for what in ("imum", "Length", "Items", "Properties")]
_KEPT = ("type", "enum", "default", "anyOf", "allOf", "oneOf", "not", *_LIMITS)


def failures(type_: str, inputs: Json) -> Iterator[Failure]:
    """Yield what the API server refuses in the fields of an object. Values that are unknown in a preview pass."""
    kind = api(type_)
    validator = _validator(kind)
    if validator is None:
        return
    found: dict[str, Failure] = {}
    # Of built-in kinds, null is the same as nothing; of custom ones, it has the wrong type.
    for error in validator.iter_errors(inputs if kind.custom else _without_null(inputs)):
        if error.instance != UNKNOWN:
            found |= {failure.path: failure for failure in _worded(error)}
    yield from found.values()


def defaulted(type_: str, value: Json) -> Json:
    """Return an object with the defaults of its CRD."""
    found: Json = _defaulted(schema(api(type_)) or {}, value)
    return found


def unchecked() -> str | None:
    """Return why the fields of custom kinds are not checked on this machine, or None. It may download Go modules."""
    try:
        for module, _ in _CRDS.values():
            go_build.module_folder(_MANIFESTS, module)
    except go_build.GoError as problem:
        return f"Fields of RayClusters, queues and GKE's networks were NOT checked: {problem}"
    return None


@cache
def schema(kind: Api) -> Json | None:
    """Return the schema of a kind; None if there is none."""
    path = _folder() / f"{kind.group or 'core'}_{kind.version}_{kind.kind}.json"
    if path.exists():
        found: Json | None = json.loads(path.read_text())
        return found
    try:
        generated = _custom(kind)
    except go_build.GoError:
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    # Other threads and processes may generate the same.
    partial = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    partial.write_text(json.dumps(generated))
    partial.replace(path)
    return generated


@cache
def _folder() -> Path:
    pins = [Path(__file__), *WRITTEN.values(), *sorted(_MANIFESTS.glob("*/go.mod"))]
    content = b"".join(path.read_bytes() for path in pins) + version("pulumi-kubernetes").encode()
    return go_build.cache() / f"kubernetes-schemas-{hashlib.sha256(content).hexdigest()[:16]}"


@cache
def _validator(kind: Api) -> Draft202012Validator | None:
    found = schema(kind)
    return None if found is None else Draft202012Validator(found)


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(item) for key, item in value.items() if item is not None}
    return [_without_null(item) for item in value] if isinstance(value, list) else value


def _worded(error: Any) -> Iterator[Failure]:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)[1:]
    instance, wanted = error.instance, error.validator_value
    if error.validator == "additionalProperties":
        for key in instance.keys() - error.schema.get("properties", {}).keys():
            below = f"{path}.{key}".removeprefix(".")
            yield Failure(below, f'strict decoding error: unknown field "{below}"')
    elif error.validator == "required":
        for key in set(wanted) - instance.keys():
            below = f"{path}.{key}".removeprefix(".")
            yield Failure(below, f"{below}: Required value")
    elif error.validator == "enum":
        offered = ", ".join(f'"{one}"' for one in wanted)
        yield Failure(path, f'{path}: Unsupported value: "{instance}": supported values: {offered}')
    elif error.validator == "type":
        yield Failure(path, f"{path}: Invalid value: must be of type {wanted}, not {type(instance).__name__}")
    else:
        yield Failure(path, f"{path}: Invalid value: {str(instance)[:80]!r}: {error.validator} {str(wanted)[:120]}")


def _defaulted(shape: Json, value: Any) -> Any:
    if isinstance(value, list):
        return [_defaulted(shape.get("items") or {}, item) for item in value]
    if not isinstance(value, Mapping):
        return value
    properties: Json = shape.get("properties") or {}
    defaults = {key: below["default"] for key, below in properties.items() if "default" in below}
    return {key: _defaulted(properties.get(key) or {}, item) for key, item in {**defaults, **value}.items()}


# Custom kinds: from their CRDs


def _custom(kind: Api) -> Json | None:
    if kind.group in WRITTEN:
        path = WRITTEN[kind.group]
    elif kind.group in _CRDS:
        module, folder = _CRDS[kind.group]
        path = go_build.module_folder(_MANIFESTS, module) / folder / f"{kind.group}_{kind.plural}.yaml"
    else:
        return _built_in(kind)
    if not path.exists():
        return None
    definition: Json = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    if definition["spec"]["names"]["kind"] != kind.kind:
        return None
    for served in definition["spec"]["versions"]:
        if served["name"] == kind.version and served["served"]:
            return _root(_strict(served["schema"]["openAPIV3Schema"]), {})
    return None


def _strict(shape: Json) -> Json:
    """Return a CRD's schema in which unknown fields are errors, and fields with a default are not required."""
    properties: Json = {key: _strict(below) for key, below in (shape.get("properties") or {}).items()}
    strict = {key: shape[key] for key in _KEPT if key in shape}
    strict["required"] = [key for key in shape.get("required") or () if "default" not in properties.get(key, {})]
    if properties:
        strict["properties"] = properties
    if "pattern" in shape:
        # Go allows flags after an anchor; Python does not.
        strict["pattern"] = shape["pattern"].replace("^(?i)", "(?i)^")
    if "items" in shape:
        strict["items"] = _strict(shape["items"])
    if isinstance(shape.get("additionalProperties"), dict):
        strict["additionalProperties"] = _strict(shape["additionalProperties"])
    elif shape.get("type") == "object" and not shape.get("x-kubernetes-preserve-unknown-fields"):
        strict["additionalProperties"] = False
    return strict


def _root(shape: Json, definitions: Json) -> Json:
    """Return an object's schema with Kubernetes' metadata, of which the name is required."""
    metadata = _of_class(importlib.import_module("pulumi_kubernetes.meta.v1._inputs").ObjectMetaArgs, definitions)
    named: Json = {"allOf": [metadata, {"required": ["name"]}]}
    properties = {**shape["properties"], "metadata": named}
    return {**shape, "properties": properties, "required": [*shape["required"], "metadata"], "$defs": definitions}


# Built-in kinds: from the SDK


def _built_in(kind: Api) -> Json | None:
    if "." in kind.group and not kind.group.endswith(".k8s.io"):
        return None
    package = f"pulumi_kubernetes.{(kind.group or 'core').split('.')[0]}.{kind.version}"
    try:
        module = importlib.import_module(f"{package}._inputs")
    except ModuleNotFoundError:
        return None
    arguments = getattr(module, f"{kind.kind}Args", None)
    if not isinstance(arguments, type):
        return None
    definitions: Json = {}
    _of_class(arguments, definitions)
    shape: Json = definitions[_name(arguments)]
    return _root(shape, definitions) if {"apiVersion", "kind", "metadata"} <= shape["properties"].keys() else None


def _name(arguments: type) -> str:
    return f"{arguments.__module__}.{arguments.__name__}"


def _of_class(arguments: type, definitions: Json) -> Json:
    """Return a reference to the schema of a class of the SDK, and add that to `definitions`."""
    from pulumi import _types  # Only to generate: it takes a second.

    if _name(arguments) not in definitions:
        shape: Json = {"type": "object", "additionalProperties": False}
        # Before its fields: classes may be recursive.
        definitions[_name(arguments)] = shape
        names = _types.input_type_py_to_pulumi_names(arguments)
        parameters = inspect.signature(arguments).parameters.values()
        shape["required"] = [names[each.name] for each in parameters if each.default is inspect.Parameter.empty]
        shape["properties"] = {
            name: _QUANTITIES.get((name, str(own)), own)
            for name, hint in _types.input_type_types(arguments).items()
            for own in (_of_hint(hint, definitions),)
        }
    return {"$ref": f"#/$defs/{_name(arguments)}"}


def _of_hint(hint: Any, definitions: Json) -> Json:
    from pulumi import _types

    choices = [choice for choice in _choices(hint) if choice is not type(None)]
    plain = [_PLAIN[choice] for choice in choices if choice in _PLAIN]
    if plain:
        # An enumeration also accepts plain text, so that values of later releases pass.
        return {"type": plain}
    for choice in choices:
        origin, arguments = typing.get_origin(choice), typing.get_args(choice)
        if isinstance(choice, type) and _types.is_input_type(choice):
            return _of_class(choice, definitions)
        if isinstance(choice, type) and issubclass(choice, Enum):
            return _TEXT
        if origin is Sequence:
            return {"type": "array", "items": _of_hint(arguments[0], definitions)}
        if origin is Mapping:
            return {"type": "object", "additionalProperties": _of_hint(arguments[1], definitions)}
    return {}


def _choices(hint: Any) -> list[Any]:
    """Return the alternatives of a type, without the awaitable values that the SDK accepts everywhere."""
    from pulumi import Output

    origin = typing.get_origin(hint)
    if origin is typing.Union or origin is types.UnionType:
        return [below for argument in typing.get_args(hint) for below in _choices(argument)]
    return [] if origin in (Awaitable, Output) else [hint]
