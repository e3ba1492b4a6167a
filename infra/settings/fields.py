"""Types of settings, the messages for values that they reject, and the list of a model's settings.

Pulumi delivers top-level values as text ("true", "4") and objects as JSON; YAML has real types. Both are read. A value
that only looks convertible ("yes" for true, 2.60 for a version) is rejected: it is usually a slip.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from ipaddress import IPv4Network
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, TypeAdapter, ValidationError
from pydantic import GetCoreSchemaHandler as Handler
from pydantic import WithJsonSchema as Schema
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from infra.catalog.pins import RAY, RAY_IN
from infra.settings.problems import HIDDEN, Finding, InvalidSettingError, Rule, shown

KUBERAY = "ray-project/kuberay: ray-operator/controllers/ray/utils/validation.go, v1.7.0"
RAY_WITH_TOKENS = (2, 52, 0)


class Section(BaseModel):
    """Part of a stack file: frozen, and strict about names and types.

    A field that replaces a base's field keeps that one's title and description.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, alias_generator=to_camel, populate_by_name=True, ignored_types=(Rule,)
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        for base in (base for base in cls.__mro__[1:] if issubclass(base, Section)):
            for name, info in base.model_fields.items():
                cls.model_fields[name].title = cls.model_fields[name].title or info.title
                cls.model_fields[name].description = cls.model_fields[name].description or info.description


@dataclass(frozen=True)
class Derived:
    """Annotates a field whose default follows from other settings, by their paths; `words` describe it."""

    of: Callable[[Mapping[str, Any]], Any]
    words: str


@dataclass(frozen=True)
class OneOf:
    """Annotates text that names an entry of a catalog."""

    names: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: Handler) -> CoreSchema:
        return core_schema.literal_schema(list(self.names))


@dataclass(frozen=True)
class ValuesHidden:
    """Annotates a list of NAME=VALUE whose values messages never show: one may be a secret by mistake."""


def rejected(message: str, fix: str, source: str = "") -> PydanticCustomError:
    """Return the error of a validator that rejects a value, with its message and fix."""
    return PydanticCustomError("rejected", "{finding}", {"finding": Finding(message, fix, source)})


def _from_text(value: Any) -> Any:
    if isinstance(value, str) and value in ("true", "false"):
        return value == "true"
    return int(value) if isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,18}", value) else value


def _decimal(value: Any) -> Any:
    return float(value) if isinstance(value, str) and re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value) else value


def _ray_release(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        fix = 'write all three parts in quotes, such as "2.60.0"'
        raise rejected("YAML reads this as a number and drops trailing zeros, so 2.60 would become 2.6.", fix)
    if not isinstance(value, str) or value != value.strip() or not value:
        return value
    if not re.fullmatch(r"\d+\.\d+\.\d+", value):
        raise rejected(f"{value} is not a full version.", 'write all three parts, such as "2.60.0"')
    if tuple(map(int, value.split("."))) < RAY_WITH_TOKENS:
        fix, source = 'set ray.version to "2.52.0" or later', f"{KUBERAY}; CVE-2023-48022"
        raise rejected(
            f"Ray {value} does not support tokens: anyone who reaches its dashboard can run code on all nodes.",
            fix,
            source,
        )
    return value


def _minute(value: Any) -> str:
    fix = 'write it in UTC and in quotes, such as "2026-12-03T11:30:00Z"'
    if not isinstance(value, str):
        raise rejected("This setting must be a time in quotes, but YAML does not read this value as a string.", fix)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise rejected("This is not a time.", fix) from None
    if moment.tzinfo is None or moment.utcoffset():
        raise rejected("This time is not in UTC or has no time zone.", fix)
    if moment.second or moment.microsecond:
        raise rejected("This time includes seconds; the setting is precise to the minute.", fix)
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _cidr(value: Any) -> str:
    if not isinstance(value, str) or "/" not in value:
        raise rejected(
            "This setting must be a range of IPv4 addresses.", "write it with its prefix, such as 10.64.0.0/14"
        )
    try:
        return str(IPv4Network(value))
    except ValueError as error:
        try:
            fix = f"write {IPv4Network(value, strict=False)}, the range that contains this address"
        except ValueError:
            fix = "write an IPv4 address and a prefix from 0 to 32, such as 10.64.0.0/14"
        raise rejected(f"This is not a range of IPv4 addresses: {error}.", fix) from None


def _unique(value: Any) -> Any:
    if isinstance(value, tuple) and any(value.count(item) > 1 for item in value):
        raise rejected("The list contains a duplicate value.", "remove the duplicate")
    return value


def _token(value: Any) -> Any:
    if not isinstance(value, str | SecretStr):
        raise rejected(
            "This setting must be a secret string (a token), but this value is not a string.", "set it as a string"
        )
    if isinstance(value, str) and not re.fullmatch(r"[!-~]+", value):
        fix = "use letters, digits and punctuation only, for example 32 random bytes in base64"
        raise rejected(
            "An HTTP header cannot carry this token: it is empty, or contains spaces or non-ASCII characters.", fix
        )
    return value


FromText = BeforeValidator(_from_text)
Flag = Annotated[bool, FromText]
Number = Annotated[int, FromText]
Decimal = Annotated[float, BeforeValidator(_decimal)]
Text = Annotated[str, Field(pattern=r"^\S([\s\S]*\S)?$")]
RayRelease = Annotated[Text, BeforeValidator(_ray_release), Schema({"type": "string", "pattern": r"^\d+\.\d+\.\d+$"})]
_WORDS = f"{RAY}, or the Ray of AWS' image if that is used"
ReleaseInImage = Annotated[RayRelease, Derived(lambda values: RAY_IN.get(values["ray.image"], RAY), _WORDS)]
"""`ray.version` of a target on which AWS' image may be the default."""
MINUTE = r"^\d{4}-\d\d-\d\dT\d\d:\d\d(:00)?(Z|\+00:00)$"
Minute = Annotated[str, BeforeValidator(_minute), Schema({"type": "string", "pattern": MINUTE})]
"""A minute in UTC, as a string such as 2026-12-03T11:30:00Z."""
CIDR = r"^\d+\.\d+\.\d+\.\d+/\d+$"
Cidr = Annotated[str, BeforeValidator(_cidr), Schema({"type": "string", "pattern": CIDR})]
TEXTS = {"type": "array", "items": {"type": "string", "minLength": 1}, "uniqueItems": True}
Texts = Annotated[tuple[Text, ...], BeforeValidator(_unique), Schema(TEXTS)]
Assignments = Annotated[Texts, ValuesHidden()]
"""A list of NAME=VALUE."""
Token = Annotated[SecretStr, BeforeValidator(_token)]


@dataclass(frozen=True)
class Setting:
    """Declaration of one setting of a target."""

    info: FieldInfo

    @cached_property
    def derived(self) -> Derived | None:
        """How its default follows from other settings."""
        return next((item for item in self.info.metadata if isinstance(item, Derived)), None)

    @cached_property
    def required(self) -> bool:
        """Whether the stack file has to set it."""
        return self.info.is_required() and self.derived is None

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of its values, null aside."""
        schema = self._adapter.json_schema()
        return dict(next(iter(schema.get("anyOf", [schema]))))

    @cached_property
    def secret(self) -> bool:
        """Whether messages hide its value."""
        return bool(self.schema.get("writeOnly"))

    def text(self, value: Any) -> str:
        """Return a value as messages show it."""
        if self.secret:
            return HIDDEN
        if any(isinstance(item, ValuesHidden) for item in self.info.metadata):
            entries = value if isinstance(value, list | tuple | dict) else [value]
            return shown([f"{str(entry).partition('=')[0]}=…" for entry in entries])
        return shown(value)

    @cached_property
    def every_name(self) -> list[str]:
        """The accepted names; empty if the setting does not take names."""
        return [self.schema["const"]] if "const" in self.schema else self.schema.get("enum", [])

    @property
    def names(self) -> list[str]:
        """The names that messages recommend: the field's examples, if any, otherwise all names."""
        return (self.info.examples or self.every_name) if self.every_name else []

    def read(self, value: Any) -> Any:
        """Return the value with its own type, or the reason why it is rejected as a `Finding`."""
        try:
            return self._adapter.validate_python(tuple(value) if isinstance(value, list) else value)
        except ValidationError as error:
            detail = error.errors(include_url=False)[0]
        if detail["type"] == "rejected":
            return detail["ctx"]["finding"]
        return Finding(*self._explain(value if isinstance(value, str) else detail["input"], detail["type"]))

    def _explain(self, value: Any, error: str) -> tuple[str, str]:
        what, kind = self.info.title, self.schema["type"]
        if self.names:
            near = nearest(value, self.names) if isinstance(value, str) else None
            fix = f"did you mean {near}? The accepted names are " if near else "write one of "
            fix = "write, in quotes, one of " if isinstance(value, float) else fix
            return "This value is not one of the names that this setting accepts.", fix + ", ".join(self.names)
        if kind == "boolean":
            return "This setting must be a boolean, true or false.", "write true or false, without quotes"
        if kind == "integer":
            fix = f"write a whole number from {self.schema['minimum']} to {self.schema['maximum']}"
            return (
                f"This setting must be a whole number ({what})."
                if error == "int_type"
                else f"{value} is out of range ({what}).",
                fix,
            )
        if error == "tuple_type":
            return (
                f"This setting must be a list ({what}).",
                f'write a list, such as ["{(self.info.examples or [""])[0]}"]',
            )
        if isinstance(value, list | tuple | dict):
            return f"This setting must be a string ({what}), but this value is a list or map.", "write one string"
        if not isinstance(value, str):
            return (
                f"This setting must be a string ({what}), but YAML does not read this value as a string.",
                "put it in quotes",
            )
        if not value.strip():
            return f"This setting must be a nonempty string ({what}).", "write a value, or remove the key"
        return "The value begins or ends with a space.", "remove the space"

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        kind: Any = Annotated[(self.info.annotation, *self.info.metadata, None)]  # It demands metadata; None is none.
        return TypeAdapter(kind, config=ConfigDict(strict=True))


@cache
def settings_of(model: type[Section]) -> Mapping[str, Setting]:
    """Return every setting of a model by its dotted path, in the model's order."""
    settings: dict[str, Setting] = {}
    for info in model.model_fields.values():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Section):
            settings |= {f"{info.alias}.{path}": one for path, one in settings_of(info.annotation).items()}
        else:
            settings[str(info.alias)] = Setting(info)
    return settings


@cache
def _fields_of(model: type[Section]) -> Mapping[str, tuple[str, type[Section] | None]]:
    """Return alias and section of each field, None for a setting: to ask Pydantic each time takes most of a check."""
    fields = {}
    for name, info in model.model_fields.items():
        section = (
            info.annotation if isinstance(info.annotation, type) and issubclass(info.annotation, Section) else None
        )
        fields[name] = str(info.alias), section
    return fields


class PartialSettings:
    """The valid settings of a stack file, as attributes with the names and properties of the model.

    Reading a setting without a valid value raises `InvalidSettingError`; a name that the model lacks, AttributeError.
    """

    def __init__(self, model: type[Section], values: Mapping[str, Any], prefix: str = "") -> None:
        self._model, self._values, self._prefix = model, values, prefix

    def __getattr__(self, name: str) -> Any:
        if (field := _fields_of(self._model).get(name)) is None:
            member = getattr(self._model, name)
            return member.__get__(self) if isinstance(member, property) else member
        alias, section = field
        path = f"{self._prefix}{alias}"
        if section is not None:
            return PartialSettings(section, self._values, f"{path}.")
        if path not in self._values:
            raise InvalidSettingError(path)
        return self._values[path]


def rules_of(model: type[Section]) -> list[Rule]:
    """Return the rules of a model, its own before those of its bases."""
    return [item for owner in model.__mro__ for item in vars(owner).values() if isinstance(item, Rule)]


def nearest(word: str, names: Iterable[str]) -> str | None:
    """Return the name that `word` was probably meant to be, or None. snake_case and kebab-case count as camelCase."""

    def plain(name: str) -> str:
        return re.sub(r"[-_ .]", "", name).lower()

    known = {plain(name): name for name in names}
    return next((known[name] for name in difflib.get_close_matches(plain(word), known, n=1, cutoff=0.7)), None)
