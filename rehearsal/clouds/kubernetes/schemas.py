"""JSON schemas of Kubernetes objects and their strict validation, in the API server's words.

Schemas are generated from the pinned Go modules (`tools/kubernetes/modules`) on first use and kept in the user's cache:
those of built-in kinds from the OpenAPI description of the Kubernetes release that the tests run, those of custom kinds
from their CRDs. The Pulumi SDK has other fields: version 4.34 those of Kubernetes 1.37 and removed ones such as
`Service.spec.topologyKeys` (pulumi-kubernetes #4570, 2026-08-27). Without Go, fields are not checked: see `unchecked`.
Two of GKE's CRDs are in this folder: ComputeClass is in no module that can be pinned, and PodMonitoring is small.

The real provider asks for strict validation only when it updates; on creation, the API server drops unknown fields with
a warning (pulumi-kubernetes: provider/pkg/await/await.go, 94977969, 2026-07-01). The rehearsal does not let that pass.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

from rehearsal.clouds.kubernetes.identity import ObjectApi, api
from rehearsal.engine.kind import Failure, Json
from rehearsal.engine.values import UNKNOWN
from tools import go_build

WRITTEN = {
    "cloud.google.com": Path(__file__).with_name("compute_class.yaml"),
    "monitoring.googleapis.com": Path(__file__).with_name("google_prometheus.yaml"),
    "monitoring.coreos.com": Path(__file__).with_name("prometheus_operator.yaml"),
}
"""CRDs in this folder, by group: those of GKE, and of the Prometheus Operator."""
_MANIFESTS = Path(go_build.__file__).with_name("kubernetes") / "modules"
_CRDS = {
    "ray.io": ("github.com/ray-project/kuberay/ray-operator", "config/crd/bases"),
    "kueue.x-k8s.io": ("sigs.k8s.io/kueue", "config/components/crd/bases"),
    "networking.gke.io": ("github.com/GoogleCloudPlatform/gke-networking-api", "config/crds"),
}
"""Folder of the CRDs by group: Go module, path in it."""
_OPENAPI = ("k8s.io/kubernetes", "api/openapi-spec/v3")
"""Folder of the OpenAPI description of built-in kinds, one file for each group and version."""

_MACHINERY = "io.k8s.apimachinery.pkg"
_META = f"{_MACHINERY}.apis.meta.v1.ObjectMeta"
_SCALARS: Mapping[str, Json] = {
    f"{_MACHINERY}.api.resource.Quantity": {
        "type": ["string", "number"],
        "pattern": r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$",
    },
    f"{_MACHINERY}.util.intstr.IntOrString": {"type": ["string", "integer"]},
}
"""Types that the description states without a pattern (Kubernetes: apimachinery/pkg/api/resource, read 2026-11), or as
alternatives, so that an error could name none of them."""
_LIMITS = [f"{bound}{what}" for bound in ("min", "max") for what in ("imum", "Length", "Items", "Properties")]
_KEPT = ("type", "enum", "default", "anyOf", "allOf", "oneOf", "not", *_LIMITS)


def failures(type_: str, inputs: Json) -> Iterator[Failure]:
    """Yield the API server's refusals of an object's fields. Values that are unknown in a preview pass."""
    kind = api(type_)
    validator = _validator(kind)
    if validator is None:
        return
    failures_by_path: dict[str, Failure] = {}
    # Of built-in kinds, null is the same as nothing; of custom ones, it has the wrong type.
    for error in validator.iter_errors(inputs if kind.custom else _without_null(inputs)):
        if error.instance != UNKNOWN:
            failures_by_path |= {failure.path: failure for failure in _worded(error)}
    yield from failures_by_path.values()


def defaulted(type_: str, value: Json) -> Json:
    """Return an object with the defaults of its CRD."""
    found: Json = _defaulted(schema(api(type_)) or {}, value)
    return found


def unchecked() -> str | None:
    """Return why the fields of objects are not checked on this machine, or None. It may download Go modules."""
    try:
        for module, _ in (_OPENAPI, *_CRDS.values()):
            go_build.module_folder(_MANIFESTS, module)
    except go_build.GoError as problem:
        return f"Fields of Kubernetes objects were NOT checked: {problem}"
    return None


def unknown(kind: ObjectApi) -> bool:
    """Return whether the modules have no such kind. False without the modules: then nothing is known of any kind."""
    return schema(kind) is None and unchecked() is None


@cache
def schema(kind: ObjectApi) -> Json | None:
    """Return the schema of a kind; None if there is none, or without Go modules."""
    path = _folder() / f"{kind.group or 'core'}_{kind.version}_{kind.kind}.json"
    if path.exists():
        found: Json | None = json.loads(path.read_text())
        return found
    try:
        generated = _custom(kind) if kind.custom else _built_in(kind)
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
    content = b"".join(path.read_bytes() for path in pins)
    return go_build.cache() / f"kubernetes-schemas-{hashlib.sha256(content).hexdigest()[:16]}"


@cache
def _validator(kind: ObjectApi) -> Draft202012Validator | None:
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


def _custom(kind: ObjectApi) -> Json | None:
    if kind.group in WRITTEN:
        path = WRITTEN[kind.group]
    elif kind.group in _CRDS:
        module, folder = _CRDS[kind.group]
        path = go_build.module_folder(_MANIFESTS, module) / folder / f"{kind.group}_{kind.plural}.yaml"
    else:
        return None
    if not path.exists():
        return None
    definitions = yaml.load_all(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    for definition in (each for each in definitions if each and each["spec"]["names"]["kind"] == kind.kind):
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
    """Return an object's schema with Kubernetes metadata, of which the name is required."""
    metadata = _reference(_META, _published("", "v1"), definitions)
    named: Json = {"allOf": [metadata, {"required": ["name"]}]}
    properties = {**shape["properties"], "metadata": named}
    return {**shape, "properties": properties, "required": [*shape["required"], "metadata"], "$defs": definitions}


# Built-in kinds: from Kubernetes' OpenAPI description


def _built_in(kind: ObjectApi) -> Json | None:
    definitions: Json = {}
    identity = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    published = _published(kind.group, kind.version)
    for name, shape in published.items():
        if identity in shape.get("x-kubernetes-group-version-kind", ()) and "metadata" in shape["properties"]:
            _reference(name, published, definitions)
            return _root(definitions[name], definitions)
    return None


@cache
def _published(group: str, version: str) -> Json:
    """Return the schemas by type that a group's version serves; {} if the API server does not have it."""
    module, folder = _OPENAPI
    file = f"apis__{group}__{version}_openapi.json" if group else f"api__{version}_openapi.json"
    path = go_build.module_folder(_MANIFESTS, module) / folder / file
    found: Json = json.loads(path.read_text())["components"]["schemas"] if path.exists() else {}
    return found


def _reference(name: str, published: Json, definitions: Json) -> Json:
    """Return a reference to a type, and add that and those that it refers to to `definitions`."""
    if name not in definitions:
        # Before its fields: types may be recursive.
        shape: Json = definitions.setdefault(name, {})
        shape |= _SCALARS.get(name) or _described(published[name], published, definitions)
    return {"$ref": f"#/$defs/{name}"}


def _described(shape: Json, published: Json, definitions: Json) -> Json:
    """Return a schema in which unknown fields are errors. Its defaults are the zero values of Go's types."""
    for part in (shape, *shape.get("allOf", ())):
        if "$ref" in part:
            return _reference(part["$ref"].rpartition("/")[2], published, definitions)
    strict: Json = {"type": shape["type"]} if "type" in shape else {}
    if "properties" in shape:
        properties = {key: _described(below, published, definitions) for key, below in shape["properties"].items()}
        strict |= {"properties": properties, "required": shape.get("required", []), "additionalProperties": False}
    for below in ("items", "additionalProperties"):
        if below in shape:
            strict[below] = _described(shape[below], published, definitions)
    return strict
