"""Rules of the API server for fields: unknown, of the wrong type, missing, or with an unsupported value."""

from __future__ import annotations

from collections.abc import Iterator

from rehearsal.clouds.kind import Call, Refusal
from rehearsal.clouds.kubernetes.custom_shapes import custom
from rehearsal.clouds.kubernetes.identity import api, name
from rehearsal.clouds.kubernetes.sdk_shapes import built_in
from rehearsal.clouds.kubernetes.shapes import Misfit, misfits

STRICT = (
    "Kubernetes API reference, field validation (strict); wording unverified, 2026-11. The provider asks for warnings "
    "only when it creates (pulumi-kubernetes: provider/pkg/await/await.go, 94977969, 2026-07-01), so that the field "
    "would be dropped; the rehearsal does not let that pass"
)
TYPES = "Kubernetes API server, decoding of objects; wording unverified, 2026-11"
VALIDATION = "Kubernetes API server, validation of objects; wording unverified, 2026-11"


def unknown_field(call: Call) -> Refusal | None:
    """A field exists in the kind."""
    for misfit in _misfits(call, "unknown"):
        kind = api(call.type)
        return Refusal(
            "400 BadRequest",
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
            f'strict decoding error: unknown field "{misfit.path}"',
            _source(call, STRICT),
        )
    return None


def wrong_type(call: Call) -> Refusal | None:
    """A value has the type of its field."""
    for misfit in _misfits(call, "type"):
        kind = api(call.type)
        return Refusal(
            "400 BadRequest",
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: json: cannot unmarshal '
            f"{misfit.got} into field {misfit.path} of type {misfit.wanted}",
            _source(call, TYPES),
        )
    return None


def required_field(call: Call) -> Refusal | None:
    """A required field is set."""
    for misfit in _misfits(call, "missing"):
        return invalid(call, f"{misfit.path}: Required value", _source(call, VALIDATION))
    return None


def choice_not_offered(call: Call) -> Refusal | None:
    """A value of an enumeration is one of the supported ones."""
    for misfit in _misfits(call, "choice"):
        words = f'{misfit.path}: Unsupported value: "{misfit.got}": supported values: {misfit.wanted}'
        return invalid(call, words, _source(call, VALIDATION))
    return None


def invalid(call: Call, words: str, source: str) -> Refusal:
    """Return the refusal of an object that is decoded but not valid."""
    kind = api(call.type)
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    return Refusal("422 Invalid", f'{qualified} "{name(call.inputs)}" is invalid: {words}', source)


def _misfits(call: Call, how: str) -> Iterator[Misfit]:
    if call.verb == "delete":
        return
    kind = api(call.type)
    table = custom(kind)
    shape = table[0] if table is not None else built_in(kind)
    if shape is not None:
        yield from (misfit for misfit in misfits(shape, call.inputs) if misfit.how == how)


def _source(call: Call, general: str) -> str:
    table = custom(api(call.type))
    return general if table is None else f"{table[1]}; {general}"


RULES = (unknown_field, wrong_type, required_field, choice_not_offered)
