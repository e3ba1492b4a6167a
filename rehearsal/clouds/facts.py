"""Facts from the clouds' real providers and APIs about inputs and machines, and the checks that follow from them."""

from __future__ import annotations

import difflib
import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from rehearsal.engine.kind import Failure, Json, values_at
from rehearsal.engine.values import UNKNOWN


@dataclass(frozen=True)
class Shape:
    """Inputs of a resource type: facts by dotted path, in which lists are transparent; "" is the resource itself.

    A fact has a "type" ("string", "integer", "number", "boolean", "json", "object", "list<…>", "map<…>"), and where
    they are stated: "required", "readOnly", "immutable", "computed" (the cloud fills it in); limits
    of the value ("enum", "pattern", "format", "min", "max", "minItems", "maxItems"); paths that it "conflicts" with or
    needs ("with"); of an object, groups of fields of which "exactlyOne" or "atLeastOne" is given; "api": limits that
    only the API checks.
    """

    facts: Mapping[str, Json]

    @cached_property
    def immutable(self) -> frozenset[str]:
        """Paths whose change replaces the resource."""
        return frozenset(path for path, fact in self.facts.items() if fact.get("immutable"))

    @cached_property
    def computed(self) -> frozenset[str]:
        """Paths that the cloud fills in where the program gives nothing."""
        return frozenset(path for path, fact in self.facts.items() if fact.get("computed"))

    def check(self, inputs: Json) -> Iterator[Failure]:
        """Yield the real provider's refusals before any request, with its messages."""
        for place, path, value in self._objects(inputs):
            yield from self._misfits(place, path, value)
            for name, fact, given in self._given(path, value):
                here = _join(place, name)
                if fact.get("readOnly"):
                    yield Failure(here, "Computed attributes cannot be set, but a value was set")
                elif not _fits(fact["type"], given):
                    yield Failure(here, f"expected type '{fact['type']}', got {_named(given)}")
                else:
                    for reason in (*_beyond(fact, name, given, re.search), *_beside(fact, inputs)):
                        yield Failure(here, reason)

    def refused(self, inputs: Json) -> str | None:
        """Return the API's refusal of a request that the provider accepts, or None."""
        for place, path, value in self._objects(inputs):
            for name, fact, given in self._given(path, value):
                for reason in _beyond(fact.get("api", {}), name, given, re.fullmatch):
                    return f"Invalid value at '{_join(place, name)}': {reason}"
        return None

    def planned(self, value: Any, path: str = "") -> Any:
        """Return inputs as the preview of a creation has them: the cloud's additions to a given block are unknown.

        The SDK treats an output that is missing at the top as unknown, but a missing one in a block as null
        (pulumi 3.259: sdk/python/lib/pulumi/runtime/rpc.py, resolve_outputs).
        """
        if isinstance(value, list):
            return [self.planned(item, path) for item in value]
        if not isinstance(value, Mapping) or path not in self._fields:
            return value
        # At the top, the outputs of a preview are the inputs, and the SDK takes what is missing for unknown.
        fields = self._fields[path].items() if path else ()
        added = (name for name, fact in fields if fact.get("readOnly") or fact.get("computed"))
        given = {name: self.planned(item, _join(path, name)) for name, item in value.items()}
        return {**dict.fromkeys(added, UNKNOWN), **given}

    @cached_property
    def _fields(self) -> Mapping[str, dict[str, Json]]:
        """The facts of each object's fields, by its path and their names."""
        fields: dict[str, dict[str, Json]] = {}
        for path in filter(None, self.facts):
            above, _, name = path.rpartition(".")
            fields.setdefault(above, {})[name] = self.facts[path]
        return fields

    @cached_property
    def _required(self) -> Mapping[str, list[str]]:
        return {
            above: [name for name, fact in fields.items() if fact.get("required")]
            for above, fields in self._fields.items()
        }

    def _objects(self, value: Any, place: str = "", path: str = "") -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """Yield every object of the inputs that has fields of its own, as (place with indexes, path, object)."""
        for number, item in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(item, Mapping) and path in self._fields:
                here = f"{place}[{number}]" if isinstance(value, list) else place
                yield here, path, item
                for name, _, given in self._given(path, item):
                    yield from self._objects(given, _join(here, name), _join(path, name))

    def _given(self, path: str, value: Mapping[str, Any]) -> Iterator[tuple[str, Json, Any]]:
        """Yield an object's known fields that have a known value, as (name, fact, value)."""
        fields = self._fields[path]
        for name, given in value.items():
            if name in fields and _known(given):
                yield name, fields[name], given

    def _misfits(self, place: str, path: str, value: Mapping[str, Any]) -> Iterator[Failure]:
        """Yield which fields of an object are unknown, missing, or too many or too few of a group."""
        names, fact = self._fields[path], self.facts.get(path, {})
        for name in value:
            if name not in names and not name.startswith("__"):
                near = difflib.get_close_matches(name, names, n=1)
                hint = f'. Did you mean "{near[0]}"?' if near else ""
                yield Failure(_join(place, name), f'An unexpected argument "{name}" was provided{hint}')
        for name in self._required[path]:
            if value.get(name) is None:
                yield Failure(_join(place, name), f'Missing required argument: the argument "{name}" is required')
        for group in (*fact.get("exactlyOne", ()), *fact.get("atLeastOne", ())):
            given, every = [name for name in group if _known(value.get(name))], ",".join(group)
            if not given and not any(value.get(name) == UNKNOWN for name in group):
                yield Failure(place, f"one of `{every}` must be specified")
            elif len(given) > 1 and group in fact.get("exactlyOne", ()):
                yield Failure(place, f"only one of `{every}` can be specified, but `{','.join(given)}` were specified")


def shapes(path: Path) -> Mapping[str, Shape]:
    """Return the shape of each type of a cloud by Pulumi's type token."""
    return {token: Shape(facts) for token, facts in _read(path)["shapes"].items()}


def machines(path: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return a cloud's machine types by name; `tools.facts.machines` states the fields and their units."""
    rows: Mapping[str, Mapping[str, Any]] = _read(path)["machines"]
    return rows


def zones(path: Path) -> Mapping[str, str]:
    """Return the letters of the zones of each region, where the facts have them."""
    found: Mapping[str, str] = _read(path).get("zones", {})
    return found


@cache
def _read(path: Path) -> Json:
    found: Json = json.loads(path.read_text(encoding="utf-8"))
    return found


def _known(value: Any) -> bool:
    return value is not None and value != UNKNOWN


def _beside(fact: Json, inputs: Json) -> Iterator[str]:
    """Yield the conflicts of an input with others, and the others that it needs."""
    for path in fact.get("conflicts", ()):
        if any(map(_known, values_at(inputs, path))):
            yield f"Conflicting configuration arguments: conflicts with {path}"
    for path in fact.get("with", ()):
        if not any(True for _ in values_at(inputs, path)):
            yield f"all of `{','.join(fact['with'])}` must be specified"


def _join(above: str, name: str) -> str:
    return f"{above}.{name}" if above else name


def _fits(type_: str, value: Any) -> bool:
    """Return whether a value has a type, or Pulumi converts it: numbers and booleans from and to strings."""
    if value == UNKNOWN:
        return True
    outer, _, inner = type_.rstrip(">").partition("<") if "<" in type_ else (type_, "", "")
    if outer == "list":
        return isinstance(value, list) and all(_fits(inner, item) for item in value)
    if outer in ("map", "object"):
        return isinstance(value, Mapping) and (not inner or all(_fits(inner, item) for item in value.values()))
    if outer == "boolean":
        return isinstance(value, bool) or value in ("true", "false")
    if outer in ("integer", "number"):
        if isinstance(value, str):
            return re.fullmatch(r"-?\d+(\.\d+)?" if outer == "number" else r"-?\d+", value) is not None
        return isinstance(value, int if outer == "integer" else int | float) and not isinstance(value, bool)
    return isinstance(value, str | int | float) or (outer == "json" and isinstance(value, Mapping))


def _named(value: Any) -> str:
    return "a list" if isinstance(value, list) else "an object" if isinstance(value, Mapping) else repr(value)


def _beyond(limits: Json, name: str, value: Any, match: Callable[[str, str], Any]) -> Iterator[str]:
    """Yield the limits that a value, or an item of a list, is beyond."""
    if isinstance(value, list):
        least, most = limits.get("minItems", 0), limits.get("maxItems", len(value))
        if not least <= len(value) <= most:
            bound = f"at least {least}" if len(value) < least else f"at most {most}"
            yield f"Attribute {name} requires {bound} item(s), but config has {len(value)} declared"
    for item in _scalars(value):
        if "enum" in limits and item not in limits["enum"]:
            wanted = " ".join(json.dumps(each) for each in limits["enum"])
            yield f"expected {name} to be one of [{wanted}], got {item}"
        if "pattern" in limits and not match(limits["pattern"], str(item)):
            yield f"\"{name}\" ('{item}') doesn't match regexp '{limits['pattern']}'"
        if "format" in limits and not _formatted(limits["format"], str(item)):
            yield f"expected {name} to be a valid {limits['format']}, got {item}"
        for bounds, size in ((("min", "max"), item), (("minLength", "maxLength"), len(str(item)))):
            least, most = (limits.get(bound) for bound in bounds)
            if (least is not None and float(size) < least) or (most is not None and float(size) > most):
                what = "length of " if "Length" in bounds[0] else ""
                yield f"expected {what}{name} to be in the range ({least} - {most}), got {item}"


def _scalars(value: Any) -> Iterator[Any]:
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, str | int | float) and each != UNKNOWN:
            yield each


def _formatted(format_: str, text: str) -> bool:
    """Return whether a text is a "cidr" (an address and its prefix), a "network" (without host bits), or a time.

    The provider's RFC 3339 time is "HH:mm" (google-beta 93c65b2d, verify/validation.go, ValidateRFC3339Time).
    """
    if format_ == "rfc3339":
        return re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", text) is not None
    if format_ not in ("cidr", "network"):
        return True
    try:
        ipaddress.ip_network(text, strict=format_ == "network")
    except ValueError:
        return False
    return "/" in text
