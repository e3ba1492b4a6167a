"""Removal of secrets from the recorded state of a cluster: Kubernetes objects, Ray's state, logs, settings.

Text goes through the rules that the cluster also has (`workloads.secrecy`), and through detectors of detect-secrets.
Objects have structure that text lacks: a variable's name and its value are two fields, and a flag and its value two
elements of a command.
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
from urllib.parse import unquote

import yaml
from detect_secrets.plugins.artifactory import ArtifactoryDetector
from detect_secrets.plugins.aws import AWSKeyDetector
from detect_secrets.plugins.discord import DiscordBotTokenDetector
from detect_secrets.plugins.github_token import GitHubTokenDetector
from detect_secrets.plugins.mailchimp import MailchimpDetector
from detect_secrets.plugins.npm import NpmDetector
from detect_secrets.plugins.sendgrid import SendGridDetector
from detect_secrets.plugins.slack import SlackDetector
from detect_secrets.plugins.square_oauth import SquareOAuthDetector
from detect_secrets.plugins.stripe import StripeDetector
from detect_secrets.plugins.twilio import TwilioKeyDetector

from infra.outputs import Outputs
from workloads.secrecy import (
    REDACTED,
    SHORTEST_VALUE,
    Masker,
    is_secret_option,
    known_secrets,
    redacted,
    sounds_secret,
    without,
)

VARIABLES = ("env_vars", "environment")
"""Fields that map names of variables to values: Ray's runtime_env, and the options of this package's jobs."""
OMITTED_FIELDS = ("managedFields", "kubectl.kubernetes.io/last-applied-configuration")
"""Fields that repeat an object or say who wrote it."""
_SECRET_FIELD = re.compile(
    r"(?i)(?:token|secret|passw(?:or)?d|passphrase|credentials?|authorization|cookie|(?:key|certificate)[_-]?data"
    r"|(?:private|api)[_-]?key|^auth)$"
)
_END_OF_KEY = re.compile(r"-----END [A-Z ]{0,40}PRIVATE KEY-----")
_KEY_LINE = re.compile(
    r"""(\b[A-Z][A-Z0-9_]{0,64}KEY[A-Z0-9_]{0,64}+["']?\s{0,4}[=:]\s{0,4})("[^"\n]*"|'[^'\n]*'|[^\s,}]+)"""
)


# Formats of tokens that detect-secrets maintains (the fork of Checkov, which has releases: Yelp's last is of May 2024).
# Its scanner reads 0.1 MB/s of NCCL's logs and takes `INFO` for a secret; these patterns alone read more than 10 MB/s.
# Left out: keywords, entropy and 64 bytes in base64, which would remove GUIDs, digests and container ids from logs,
# what `workloads.secrecy` has, and slow patterns (Artifactory's second, JWT).
_DETECTED = tuple(
    pattern
    for patterns in (
        [*ArtifactoryDetector.denylist][:1],
        [*AWSKeyDetector.denylist][:1],
        DiscordBotTokenDetector.denylist,
        GitHubTokenDetector.denylist,
        MailchimpDetector.denylist,
        NpmDetector.denylist,
        SendGridDetector.denylist,
        SlackDetector.denylist,
        SquareOAuthDetector.denylist,
        StripeDetector.denylist,
        TwilioKeyDetector.denylist,
    )
    for pattern in patterns
)
_CREDENTIALS = re.compile(r"://([^\s/:@\"'<>]{0,256}):([^\s/@\"'<>]{1,1024})@")
_SIGNATURE = re.compile(r"(?i)[?&](?:X-(?:Amz|Goog)-(?:Signature|Security-Token)|Signature|sig)=([^&\s\"'<>]{1,4096})")
SHORT = 200  # characters of a text whose result is kept
MOST_LEARNED = 100
"""Maximum of secrets learned from a cluster. Anyone with its token may add some, and each one slows every redaction."""


class Redactor:
    """Removes secrets from text and from JSON values: values that look like one, and known ones.

    Args:
        known: Secret values, which are removed wherever they are.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self.known = Masker(known)
        self.learned: set[str] = set()
        self._short: dict[str, str] = {}

    @classmethod
    def of(cls, outputs: Outputs, environment: Mapping[str, str] | None = None) -> Redactor:
        """Return the redactor of a stack: its token, its kubeconfig's credentials, and this process's own secrets."""
        redactor = cls(known_secrets(os.environ if environment is None else environment))
        redactor.add(outputs.ray.token.get_secret_value())
        redactor.add(outputs.ray.serve_token.get_secret_value() if outputs.ray.serve_token else "")
        if outputs.kubeconfig is not None:
            with suppress(yaml.YAMLError):  # of which JSON is a part
                for value in _secrets(yaml.safe_load(outputs.kubeconfig.get_secret_value())):
                    redactor.add(value)
        return redactor

    def add(self, value: str) -> None:
        """Add a secret to the known ones."""
        if value.strip() != REDACTED:
            self.known.add(value)
            self._short.clear()

    def learn(self, value: Any) -> None:
        """Learn up to MOST_LEARNED secrets of JSON values: of variables, secret fields and URLs, and their parts.

        Text may be JSON itself, and base64 of it, as in a Secret.
        """
        with suppress(RecursionError):  # of nested JSON
            for secret in _secrets(value):
                if len(self.learned) >= MOST_LEARNED:
                    return
                if len(secret) >= SHORTEST_VALUE and secret not in self.learned:
                    self.learned.add(secret)
                    self.add(secret)

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        if len(text) > SHORT:
            return self._text(text)
        # A state repeats names and values many times, and a text of ten characters takes 0.3 ms (100 secrets, 2026-11).
        if text not in self._short:
            self._short[text] = self._text(text)
        return self._short[text]

    def _text(self, text: str) -> str:
        text = redacted(text, self.known)
        text = without(text, (_span(match) for pattern in _DETECTED for match in pattern.finditer(text)))
        text = _KEY_LINE.sub(rf"\1{REDACTED}", text)
        *_, last = [None, *_END_OF_KEY.finditer(text)]
        # The last lines of a log may begin within a key.
        return text if last is None else REDACTED + text[last.end() :]

    def value(self, value: Any) -> Any:
        """Return a JSON value without secrets. Names and references of secrets stay."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [
                REDACTED if at and is_secret_option(value[at - 1]) and isinstance(each, str) else self.value(each)
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


def _span(match: re.Match[str]) -> tuple[int, int]:
    """Return the span of a token without the quotes and white space that some detectors match around it."""
    found = match[0]
    return match.end() - len(found.lstrip(" \t\r\n=:\"'")), match.start() + len(found.rstrip(" \t\r\n\"'"))


def _secrets(value: Any) -> Iterator[str]:
    """Yield the secrets in a JSON value, and what they hold."""
    for name, text in _named(value):
        yield from (unquote(password) for _, password in _CREDENTIALS.findall(text))
        yield from (unquote(signature) for signature in _SIGNATURE.findall(text))
        if _is_secret(name):
            yield text
            inner = _decoded(text)
            if inner != text:
                yield inner
                yield inner.partition(":")[2] if name.lower() == "auth" else ""  # of a registry: user and password
            yield from _secrets(_parsed(inner))
        elif text[:1] in ("{", "["):
            yield from _secrets(_parsed(text))


def _decoded(text: str) -> str:
    """Return the text that base64 holds, otherwise the text itself."""
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError:
        return text


def _parsed(text: str) -> Any:
    try:
        return json.loads(text) if text[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        return None


def _named(value: Any) -> Iterator[tuple[str, str]]:
    """Yield each text in a JSON value with its name: its field, or with `=` its variable's."""
    if isinstance(value, list):
        for at, each in enumerate(value):
            if isinstance(each, str):
                yield "token" if at and is_secret_option(value[at - 1]) else "", each
            yield from _named(each)
    elif isinstance(value, dict):
        if isinstance(value.get("name"), str) and isinstance(value.get("value"), str):
            yield f"{value['name']}=", value["value"]
        for name, inner in value.items():
            if name in ("data", "stringData") and value.get("kind") == "Secret" and isinstance(inner, dict):
                yield from (("token", text) for text in inner.values() if isinstance(text, str))
            elif name in VARIABLES and isinstance(inner, dict):
                yield from ((f"{each}=", text) for each, text in inner.items() if isinstance(text, str))
            elif isinstance(inner, str):
                yield name, inner
                if name == "entrypoint":
                    with suppress(ValueError):  # an open quote
                        yield from _named(shlex.split(inner))
            else:
                yield from _named(inner)


def _is_secret(name: str) -> bool:
    """Return whether a field, or with `=` a variable, of this name holds a secret."""
    return sounds_secret(name[:-1]) if name.endswith("=") else _SECRET_FIELD.search(name) is not None


def _hides(name: str, value: Any) -> bool:
    return isinstance(value, str) and _SECRET_FIELD.search(name) is not None
