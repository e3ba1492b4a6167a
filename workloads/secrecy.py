"""Removal of secrets from text: known values in every encoding, and what looks like a secret by name or shape.

Runs on the cluster too, where images have just Ray and PyTorch: standard library only.
"""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote, quote_plus

REDACTED = "***"
SHORTEST_VALUE = 6  # characters: a shorter known value may be part of an ordinary word
LONGEST_TOKEN_FILE = 4096

_NAME = (
    r"(?:TOKEN|SECRET|PASSW(?:OR)?D|PASSPHRASE|CREDENTIALS?|AUTHORIZATION|COOKIE"
    r"|(?:API|ACCESS|PRIVATE|AUTH|SIGNING|ENCRYPTION|ACCOUNT|SSH|LICENSE)[_-]?KEY)"
)
# Environment variables with these names are omitted. In a log, KEY alone is too common a word.
_SECRET_VARIABLE = re.compile(rf"(?i)KEY|{_NAME}")
_VALUE = r"""(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|["'][^\n]*|[^\s]+)"""
# Each pattern starts with a fixed word: text without it costs one pass.
_RULES = (
    (
        re.compile(r"(?s)-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)"),
        REDACTED,
    ),
    (re.compile(r"(?i)(Authorization[\"']?\s{0,8}[:=]\s{0,8})[^\r\n]+"), rf"\1{REDACTED}"),
    (re.compile(r"(?i)\b(Bearer|Basic)(\s{1,8}|%20|\+)[^\s\"']+"), rf"\1\2{REDACTED}"),
    (re.compile(r"(://)[^\s\"'<>]{1,1024}@"), rf"\1{REDACTED}@"),
    (
        re.compile(
            rf"(?i)({_NAME}[\w.-]{{0,64}}[\"']?"
            r"(?:\s{0,8}(?:=>|[=:](?!>))\s{0,8}|\s{1,8}set by environment to\s{1,8}))"
            rf"(?!{re.escape(REDACTED)}(?:[\s,;\"']|\Z)){_VALUE}"
        ),
        rf"\1{REDACTED}",
    ),
    (re.compile(rf"(?i)(?<![\w-])(--[\w-]{{0,64}}{_NAME}[\w-]{{0,64}}\s{{1,8}}){_VALUE}"), rf"\1{REDACTED}"),
    # Token formats of AWS, GitHub, GitLab, Hugging Face, Slack, Google, and JWT.
    (
        re.compile(
            r"(?:A[KS]IA[0-9A-Z]{16}|gh[pousr]_\w{20,255}|github_pat_\w{20,255}|glpat-[\w-]{20,64}|hf_\w{20,64}"
            r"|xox[abprs]-[\w-]{10,255}|AIza[\w-]{35}|ya29\.[\w-]{20,1024}|eyJ[\w-]{10,2048}\.[\w-]{10,4096}\.[\w-]*)"
        ),
        REDACTED,
    ),
)


class Masker:
    """Removes known secrets from text, in every encoding of `encodings`."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known: set[str] = set()
        for value in known:
            self.add(value)

    def add(self, value: str) -> None:
        """Know a secret. Values shorter than SHORTEST_VALUE are ignored, and REDACTED is none."""
        if len(value := value.strip()) >= SHORTEST_VALUE:
            self._known |= encodings(value)

    def __bool__(self) -> bool:
        """Return whether a secret is known."""
        return bool(self._known)

    def text(self, text: str) -> str:
        """Return the text without the known values."""
        for value in sorted(self._known, key=len, reverse=True):
            text = text.replace(value, REDACTED)
        return text


def encodings(value: str) -> set[str]:
    """Return the encodings of a value that are found in text."""
    data = value.encode("utf-8", "surrogatepass")
    return {
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        shlex.quote(value),
        quote(data, safe=""),
        quote_plus(data),
        html.escape(value),
        data.hex(),
        base64.b64encode(data).decode(),
        base64.urlsafe_b64encode(data).decode(),
    }


def redacted(text: str, known: Iterable[str] = ()) -> str:
    """Return the text without what looks like a secret and without the `known` values."""
    text = Masker(known).text(text)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def sounds_secret(variable: str) -> bool:
    """Return whether an environment variable of this name may hold a secret."""
    return _SECRET_VARIABLE.search(variable) is not None


def known_secrets(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets that this process could leak: values of its variables, and Ray's token from its file.

    Ray reads its token from RAY_AUTH_TOKEN, else from the file RAY_AUTH_TOKEN_PATH, else from ~/.ray/auth_token
    (Ray 2.60).
    """
    found = {value.strip() for name, value in environment.items() if sounds_secret(name) and not name.endswith("_PATH")}
    for path in (environment.get("RAY_AUTH_TOKEN_PATH"), f"{environment.get('HOME', '')}/.ray/auth_token"):
        try:
            with Path(path or "").open(encoding="utf-8", errors="replace") as file:
                found.add(file.read(LONGEST_TOKEN_FILE).strip())
        except (OSError, ValueError):
            continue  # no such file, so no secret
    return tuple(sorted(value for value in found if len(value) >= SHORTEST_VALUE))
