"""How one value of a stack file is read: what is accepted, and what a refusal says.

Pulumi hands over top-level values as text ("true", "4") and objects as JSON; an editor's YAML has real types. Both are
read. What merely looks convertible ("yes" for true, 2.60 for a version) is refused: it is usually a slip.
This module knows no setting.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import GetCoreSchemaHandler, SecretStr
from pydantic_core import CoreSchema, core_schema


class RefusedError(ValueError):
    """A value that cannot be read: what is wrong with it (`says`) and what to write instead (`fix`)."""

    def __init__(self, says: str, fix: str) -> None:
        super().__init__(says)
        self.says = says
        self.fix = fix


class Reader:
    """Annotates a pydantic field with how its value is read and what an editor may be told about it."""

    def read(self, value: Any) -> Any:
        """The value with its own type. Raises `RefusedError`."""
        raise TypeError(f"{type(self).__name__} does not say how it reads a {type(value).__name__}")

    def schema(self) -> dict[str, Any]:
        """The value's JSON Schema."""
        raise TypeError(f"{type(self).__name__} does not say how its values look")

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: Any) -> Any:
            return None if value is None else self.read(value)

        return core_schema.no_info_before_validator_function(read, handler(source))


@dataclass(frozen=True)
class Flag(Reader):
    """true or false."""

    def read(self, value: Any) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value in ("true", "false"):
            return value == "true"
        raise RefusedError(
            "This setting is a boolean; only true and false are read.", "write true or false, without quotes"
        )

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Whole(Reader):
    """A whole number between `least` and `most` (both included) of `unit`."""

    least: int
    most: int
    unit: str

    def read(self, value: Any) -> int:
        number = value
        if isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,18}", value):
            number = int(value)
        if isinstance(number, bool) or not isinstance(number, int):
            raise RefusedError(f"This setting is a whole number ({self.unit}).", f"write {self._range()}")
        if not self.least <= number <= self.most:
            raise RefusedError(f"{number} is out of range ({self.unit}).", f"write {self._range()}")
        return number

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}

    def _range(self) -> str:
        return f"a whole number from {self.least} to {self.most}"


@dataclass(frozen=True)
class Choice(Reader):
    """One of a few names."""

    names: tuple[str, ...]

    def read(self, value: Any) -> str:
        if isinstance(value, str) and value in self.names:
            return value
        near = nearest(value, self.names) if isinstance(value, str) else None
        choices = ", ".join(self.names)
        fix = f"did you mean {near}? The names are {choices}" if near else f"write one of {choices}"
        raise RefusedError("This setting takes one of a few names, and this is not one of them.", fix)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.names)}


@dataclass(frozen=True)
class Text(Reader):
    """Text that is not empty; `what` says of what."""

    what: str

    def read(self, value: Any) -> str:
        if isinstance(value, list | tuple | dict):
            raise RefusedError(
                f"This setting is one text ({self.what}), and this is several.", "write one line of text"
            )
        if not isinstance(value, str):
            raise RefusedError(
                f"This setting is text ({self.what}), and YAML does not read this as text.", "put it in quotes"
            )
        if not value.strip():
            raise RefusedError(
                f"This setting is text ({self.what}), and it is empty.", "write a value or leave the key out"
            )
        if value != value.strip():
            raise RefusedError("The value begins or ends with a blank.", "remove the blank")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True)
class Version(Text):
    """A release such as 2.60.0."""

    def read(self, value: Any) -> str:
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise RefusedError(
                "YAML reads this as a number and drops trailing zeros, so 2.60 would become 2.6.",
                'write all three parts in quotes, such as "2.60.0"',
            )
        text = super().read(value)
        if not re.fullmatch(r"\d+\.\d+\.\d+", text):
            raise RefusedError(
                f"{text} is not a full version ({self.what}).", 'write all three parts, such as "2.60.0"'
            )
        return text

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"}


@dataclass(frozen=True)
class Moment(Reader):
    """A minute in UTC, such as 2026-12-03T11:30:00Z; `what` says of what. Read as text in that form."""

    what: str

    def read(self, value: Any) -> str:
        fix = f'write {self.what} in UTC and in quotes, such as "2026-12-03T11:30:00Z"'
        if not isinstance(value, str):
            raise RefusedError("This setting is a time, and YAML does not read this as text.", fix)
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise RefusedError("This is not a time.", fix) from None
        if moment.tzinfo is None or moment.utcoffset():
            raise RefusedError("This time is not in UTC, or does not say where it is.", fix)
        if moment.second or moment.microsecond:
            raise RefusedError("This time has seconds, and nothing here happens between two minutes.", fix)
        return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d(:00)?(Z|\+00:00)$"}


@dataclass(frozen=True)
class Cidr(Reader):
    """A range of IPv4 addresses such as 10.64.0.0/14."""

    def read(self, value: Any) -> str:
        if not isinstance(value, str) or "/" not in value:
            raise RefusedError(
                "This setting is a range of IPv4 addresses.", "write it with its prefix, such as 10.64.0.0/14"
            )
        try:
            return str(ipaddress.IPv4Network(value))
        except ValueError as error:
            raise RefusedError(f"This is not a range of IPv4 addresses: {error}.", _cidr_fix(value)) from None

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": r"^\d+\.\d+\.\d+\.\d+/\d+$"}


@dataclass(frozen=True)
class Cidrs(Reader):
    """A list of IPv4 ranges."""

    def read(self, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list | tuple):
            raise RefusedError("This setting is a list of IPv4 ranges.", 'write a list, such as ["203.0.113.7/32"]')
        return tuple(Cidr().read(item) for item in value)

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": Cidr().schema()}


@dataclass(frozen=True)
class Texts(Reader):
    """A list of texts, none of them twice; `what` says of what, `example` shows one."""

    what: str
    example: str

    def read(self, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list | tuple):
            raise RefusedError(f"This setting is a list ({self.what}).", f'write a list, such as ["{self.example}"]')
        texts = tuple(Text(self.what).read(item) for item in value)
        if len(set(texts)) != len(texts):
            raise RefusedError(f"The list ({self.what}) names something twice.", "name each once")
        return texts

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": Text(self.what).schema(), "uniqueItems": True}


@dataclass(frozen=True)
class Secret(Reader):
    """Text that no message may repeat."""

    what: str

    def read(self, value: Any) -> SecretStr:
        if isinstance(value, SecretStr):
            return value
        if not isinstance(value, str):
            raise RefusedError(f"This setting is secret text ({self.what}), and this is not text.", "set it as text")
        if not re.fullmatch(r"[!-~]+", value):
            raise RefusedError(
                f"The {self.what} is empty or has blanks or letters outside ASCII; it travels in an HTTP header.",
                "use letters, digits and punctuation only, for example 32 random bytes in base64",
            )
        return SecretStr(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The name that `word` was probably meant to be, or None. snake_case and kebab-case count as camelCase."""
    names = tuple(names)
    plain = {_plain(name): name for name in names}
    return plain.get(_plain(word)) or next(
        (plain[match] for match in difflib.get_close_matches(_plain(word), plain, n=1, cutoff=0.7)), None
    )


def _plain(word: str) -> str:
    return re.sub(r"[-_ .]", "", word).lower()


def _cidr_fix(value: str) -> str:
    try:
        return f"the range that holds this address is {ipaddress.IPv4Network(value, strict=False)}"
    except ValueError:
        return "write an IPv4 address and a prefix from 0 to 32, such as 10.64.0.0/14"
