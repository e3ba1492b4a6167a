"""A Pulumi.<stack>.yaml read without Pulumi. Encrypted values stay unknown: only Pulumi has the key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import SecretStr

from infra.problems import Problem
from infra.settings import NAMESPACE

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = "Pulumi docs, concepts/config: the stack settings file (read 2026-11)"


def read_stack_file(path: Path) -> tuple[dict[str, Any], frozenset[str], tuple[Problem, ...]]:
    """The namespace's keys as YAML has them, the paths that are encrypted, and what cannot be read at all.

    Raises `OSError` if the file cannot be read.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        return {}, frozenset(), (_problem(f"This is not YAML{where}.", "check quotes, colons and indentation there"),)
    config = (document or {}).get("config") if isinstance(document or {}, Mapping) else None
    if not isinstance(config, Mapping):
        return {}, frozenset(), (_problem("There is no map `config:` in this file.", "begin it with `config:`"),)
    prefix = f"{NAMESPACE}:"
    raw = {str(key).removeprefix(prefix): value for key, value in config.items() if str(key).startswith(prefix)}
    encrypted = frozenset(_encrypted(raw, ""))
    return {key: _opened(value) for key, value in raw.items()}, encrypted, ()


def _encrypted(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        if set(value) == {"secure"}:
            yield path
        else:
            for key, inner in value.items():
                yield from _encrypted(inner, f"{path}.{key}" if path else str(key))


def _opened(value: Any) -> Any:
    """The value with an empty secret in the place of each encrypted one."""
    if isinstance(value, Mapping):
        return SecretStr("") if set(value) == {"secure"} else {key: _opened(inner) for key, inner in value.items()}
    return value


def _problem(says: str, fix: str) -> Problem:
    return Problem(settings=("config",), says=says, fix=fix, source=SOURCE)
