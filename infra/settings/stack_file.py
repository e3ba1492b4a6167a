"""Reader of stack files. It accepts a subset of the engine's YAML and bounds the cost of a broken or hostile file."""

from __future__ import annotations

import os
import stat
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from infra.settings.problems import Problem, SettingsError, shown
from infra.terminal import UNPRINTABLE

SOURCE = "Pulumi docs, concepts/config: the stack settings file (read 2026-11)"
# The engine gives the configuration to the program in one environment variable, which Linux limits to 128 KiB
# (MAX_ARG_STRLEN, include/uapi/linux/binfmts.h).
LARGEST = 2**17
DEEPEST, MOST_VALUES = 16, 2000
LONGEST_NUMBER = 40  # characters; from 4,300 digits on, Python refuses to print an integer


def read_config(path: Path) -> Mapping[str, Any]:
    """Return the map `config` of a stack file. Raises `SettingsError` for a file without one."""
    text = _text(path)
    try:
        document = yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        if isinstance(error, _RefusedError):
            raise _unusable(path, f"{error.problem}{where}.", error.note or "") from None
        raise _unusable(path, f"This is not YAML{where}.", "check quotes, colons and indentation there") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _unusable(
            path, f"The character {error.character:#x} on line {line} is not allowed in YAML.", "remove it"
        ) from None
    except (ValueError, OverflowError):  # an escape such as "\U00110000"
        raise _unusable(
            path, "This is not YAML: an escape sequence does not stand for a character.", "check the backslashes"
        ) from None
    config = document.get("config") if isinstance(document, Mapping) else None
    if not isinstance(config, Mapping):
        raise _unusable(path, "This file has no map `config:`.", "begin the file with `config:`")
    return config


def _text(path: Path) -> str:
    try:
        # Without O_NONBLOCK, opening a named pipe without a writer blocks forever.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            data = file.read(LARGEST + 1) if regular else b""
    except OSError as error:
        raise _unusable(path, f"This file cannot be read: {error.strerror}.", f"check {path}") from None
    if not regular:
        raise _unusable(path, "This is not a regular file.", "choose a YAML file")
    if len(data) > LARGEST:
        fix = "remove everything but configuration"
        raise _unusable(path, f"This file is larger than {LARGEST // 1024} KiB, more than the engine can pass on.", fix)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        byte, line, fix = data[error.start], data.count(b"\n", 0, error.start) + 1, "save it as UTF-8"
        raise _unusable(path, f"This file is not UTF-8: byte {byte:#x} on line {line} is invalid.", fix) from None


def _unusable(path: Path, message: str, fix: str) -> SettingsError:
    return SettingsError([Problem(settings=("config",), message=message, fix=fix, source=SOURCE)], origin=path.name)


class _RefusedError(yaml.MarkedYAMLError):
    """Valid YAML that no stack file needs. The problem is its first sentence, the note is the fix."""

    def __init__(self, mark: yaml.Mark, message: str, fix: str) -> None:
        super().__init__(problem=message, problem_mark=mark, note=fix)


class _Loader(yaml.SafeLoader):
    depth = values = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # types-PyYAML
        if self.check_event(yaml.AliasEvent):
            raise _RefusedError(mark, "This file has an alias (*) of another value", "write the value out")
        if self.depth == DEEPEST or self.values == MOST_VALUES:
            fix = "remove everything but configuration"
            raise _RefusedError(
                mark, f"This file has more than {DEEPEST} levels or more than {MOST_VALUES} values", fix
            )
        self.depth += 1
        self.values += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            if len(node.value) > LONGEST_NUMBER and node.tag.endswith((":int", ":float")):
                raise ValueError
            value = super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):  # 2024-13-45, !!bool 7
            kind = node.tag.rpartition(":")[2]
            fix = "put it in quotes, or correct it"
            # Without the value, which may be a token.
            raise _RefusedError(node.start_mark, f"YAML reads this value as {kind}, but it is not valid", fix) from None
        if isinstance(value, str) and (match := UNPRINTABLE.search(value)):
            raise _RefusedError(node.start_mark, f"A string contains the character {match[0]!a}", "remove it")
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[tuple[str, str]] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in seen:
                fix = "remove one of them"
                raise _RefusedError(key.start_mark, f"The key {shown(key.value)} appears twice in the same map", fix)
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)
