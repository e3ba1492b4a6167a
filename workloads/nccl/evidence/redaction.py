"""Secrets taken out of text: of logs, of warnings, of the environment that a result keeps. Pure but for known_secrets.

Two nets: what looks like a secret by its name or its shape, and the very values that this process knows to be secret.
Too much is taken rather than too little.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

REDACTED = "***"
SHORTEST_VALUE = 6  # a known value below this many characters would stand in ordinary words
LONGEST_TOKEN_FILE = 4096

_NAME = (
    r"(?:TOKEN|SECRET|PASSW(?:OR)?D|PASSPHRASE|CREDENTIALS?|AUTHORIZATION|COOKIE"
    r"|(?:API|ACCESS|PRIVATE|AUTH|SIGNING|ENCRYPTION|ACCOUNT|SSH|LICENSE)[_-]?KEY)"
)
# Whole variables whose names say so are left out of an environment: KEY alone is too common a word in a log.
_SECRET_VARIABLE = re.compile(rf"(?i)KEY|{_NAME}")
_VALUE = r"""(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|["'][^\n]*|[^\s]+)"""
# Each pattern begins with a fixed word, so that text without one costs one pass.
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
    # Shapes that their makers chose so that they can be found: AWS, GitHub, GitLab, Hugging Face, Slack, Google, JWT.
    (
        re.compile(
            r"(?:A[KS]IA[0-9A-Z]{16}|gh[pousr]_\w{20,255}|github_pat_\w{20,255}|glpat-[\w-]{20,64}|hf_\w{20,64}"
            r"|xox[abprs]-[\w-]{10,255}|AIza[\w-]{35}|ya29\.[\w-]{20,1024}|eyJ[\w-]{10,2048}\.[\w-]{10,4096}\.[\w-]*)"
        ),
        REDACTED,
    ),
)


def redacted(text: str, known: Iterable[str] = ()) -> str:
    """The text without what looks like a secret, and without the `known` values, wherever they stand."""
    for value in sorted(set(known), key=len, reverse=True):
        if len(value) >= SHORTEST_VALUE:
            text = text.replace(value, REDACTED)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def sounds_secret(variable: str) -> bool:
    """Whether an environment variable of this name may hold a secret."""
    return _SECRET_VARIABLE.search(variable) is not None


def redacted_environment(
    environment: Mapping[str, str], starts: tuple[str, ...], known: Iterable[str]
) -> dict[str, str]:
    """The variables whose names begin with one of `starts`, sorted, without those that sound like a secret."""
    return {
        name: redacted(value, known)
        for name, value in sorted(environment.items())
        if name.startswith(starts) and not sounds_secret(name)
    }


def known_secrets(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The secret values that this process itself could leak: those of its variables, and Ray's token from its file.

    Ray reads its token from RAY_AUTH_TOKEN, else from the file that RAY_AUTH_TOKEN_PATH names, else from
    ~/.ray/auth_token (Ray 2.60).
    """
    found = {value.strip() for name, value in environment.items() if sounds_secret(name) and not name.endswith("_PATH")}
    for path in (environment.get("RAY_AUTH_TOKEN_PATH"), f"{environment.get('HOME', '')}/.ray/auth_token"):
        try:
            with Path(path or "").open(encoding="utf-8", errors="replace") as file:
                found.add(file.read(LONGEST_TOKEN_FILE).strip())
        except (OSError, ValueError):
            continue  # no such file: then it holds no secret
    return tuple(sorted(value for value in found if len(value) >= SHORTEST_VALUE))
