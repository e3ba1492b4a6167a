"""Removal of secrets from what is recorded of a cluster: Kubernetes objects, Ray's state, logs, settings.

Text goes through the rules of NCCL's logs (`workloads.nccl.evidence.raw_log`). Objects have structure that text lacks:
a variable's name and its value are two fields, and a flag and its value two elements of a command.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from infra.outputs import Outputs
from workloads.secrecy import REDACTED, SHORTEST_VALUE, known_secrets, redacted, sounds_secret

VARIABLES = ("env_vars", "environment")
"""Fields that map names of variables to values: Ray's runtime_env, and the options of this package's jobs."""
OMITTED_FIELDS = ("managedFields", "kubectl.kubernetes.io/last-applied-configuration")
"""Fields that repeat an object or say who wrote it."""
_FLAG = re.compile(r"--?[\w.-]+")
_SECRET_FIELD = re.compile(
    r"(?i)(?:token|secret|passw(?:or)?d|passphrase|credentials?|authorization|cookie|[_-]?key[_-]?data)$"
)
_END_OF_KEY = re.compile(r"-----END [A-Z ]{0,40}PRIVATE KEY-----")
_KEY_LINE = re.compile(r"""(\b[A-Z][A-Z0-9_]*KEY[A-Z0-9_]*["']?\s{0,4}[=:]\s{0,4})("[^"\n]*"|'[^'\n]*'|[^\s,}]+)""")


class Redactor:
    """Removes secrets from text and from JSON values: what looks like one, and known values.

    Args:
        known: Secret values, which are removed wherever they are.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self.known: set[str] = set()
        for value in known:
            self.add(value)

    @classmethod
    def of(cls, outputs: Outputs, environment: Mapping[str, str] | None = None) -> Redactor:
        """Return the redactor of a stack: its token, its kubeconfig's credentials, and this process's own secrets."""
        found = cls(known_secrets(os.environ if environment is None else environment))
        found.add(outputs.ray.token.get_secret_value())
        if outputs.kubeconfig is not None:
            config = outputs.kubeconfig.get_secret_value()
            found.add(config)
            with suppress(ValueError):  # not JSON: the whole text is a known value
                found.learn(json.loads(config))
        return found

    def add(self, value: str) -> None:
        """Know a secret, and its form in a Secret's data. Values of five characters may be ordinary words."""
        if len(value := value.strip()) >= SHORTEST_VALUE and value != REDACTED:
            self.known |= {value, base64.b64encode(value.encode()).decode()}

    def learn(self, value: Any) -> None:
        """Know every secret in a JSON value: values of variables and of fields with a secret's name."""
        for name, secret in _named(value):
            if _is_secret(name):
                self.add(secret)

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        text = _KEY_LINE.sub(rf"\1{REDACTED}", redacted(text, self.known))
        *_, last = [None, *_END_OF_KEY.finditer(text)]
        # The last lines of a log may begin within a key.
        return text if last is None else REDACTED + text[last.end() :]

    def value(self, value: Any) -> Any:
        """Return a JSON value without secrets. Names and references of secrets stay."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [
                REDACTED if at and _is_flag(value[at - 1]) and isinstance(each, str) else self.value(each)
                for at, each in enumerate(value)
            ]
        if not isinstance(value, dict):
            return value
        found = {
            self.text(name): REDACTED if _hides(name, inner) else self.value(inner)
            for name, inner in value.items()
            if name not in OMITTED_FIELDS
        }
        if isinstance(value.get("value"), str) and sounds_secret(str(value.get("name") or "")):
            found["value"] = REDACTED
        for field in VARIABLES:
            if isinstance(value.get(field), dict):
                found[field] = {
                    name: REDACTED if sounds_secret(name) else self.value(inner) for name, inner in value[field].items()
                }
        return found


def _named(value: Any) -> Iterator[tuple[str, str]]:
    """Yield each text in a JSON value with its name: its field, or its variable's. Commands may contain JSON."""
    if isinstance(value, list):
        for at, each in enumerate(value):
            if isinstance(each, str) and at and _is_flag(value[at - 1]):
                yield "token", each
            yield from _named(each)
    elif isinstance(value, dict):
        if isinstance(value.get("name"), str) and isinstance(value.get("value"), str):
            yield f"{value['name']}=", value["value"]
        for name, inner in value.items():
            if name in VARIABLES and isinstance(inner, dict):
                yield from ((f"{each}=", text) for each, text in inner.items() if isinstance(text, str))
            elif name == "entrypoint" and isinstance(inner, str):
                yield from _of_command(inner)
            elif isinstance(inner, str):
                yield name, inner
            else:
                yield from _named(inner)


def _of_command(line: str) -> Iterator[tuple[str, str]]:
    try:
        words = shlex.split(line)
    except ValueError:
        return
    yield from _named(words)
    for word in words:
        try:
            yield from _named(json.loads(word)) if word[:1] in "{[" else ()
        except (ValueError, RecursionError):
            continue


def _is_secret(name: str) -> bool:
    """Return whether a field, or with `=` a variable, of this name holds a secret."""
    return sounds_secret(name[:-1]) if name.endswith("=") else _SECRET_FIELD.search(name) is not None


def _hides(name: str, value: Any) -> bool:
    return isinstance(value, str) and _SECRET_FIELD.search(name) is not None


def _is_flag(word: Any) -> bool:
    """Return whether a word of a command is a flag whose value, the next word, is secret."""
    return isinstance(word, str) and _FLAG.fullmatch(word) is not None and sounds_secret(word)
