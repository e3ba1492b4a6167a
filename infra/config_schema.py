"""What Pulumi and editors may know about stack files, generated from the settings' own types.

`python -m infra.config_schema --write` writes the `config:` section of Pulumi.yaml and the JSON Schema of stack files;
`--check` says whether they are stale. It rewrites nothing else in Pulumi.yaml.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infra.defaults import REQUIRED, Derived, Fixed
from infra.problems import shown
from infra.readers import Secret
from infra.settings import NAMESPACE, TARGETS, Leaf, Settings, leaves, sections

ROOT = Path(__file__).resolve().parent.parent
PROJECT = ROOT / "Pulumi.yaml"
SCHEMA = ROOT / "schema" / "rdma-ray-stack.schema.json"

BEGIN = "# Generated from infra/settings.py: python -m infra.config_schema --write"


def described(leaf: Leaf) -> str:
    """A setting's description with its defaults, target by target."""
    words: dict[str, list[str]] = {}
    for target in TARGETS:
        word = _default(leaf.defaults.on(target))
        if word is not None:
            words.setdefault(word, []).append(target)
    if not words:
        return str(leaf.info.description)
    if len(words) == 1 and len(next(iter(words.values()))) == len(TARGETS):
        return f"{leaf.info.description} Default: {next(iter(words))}."
    told = "; ".join(f"{', '.join(targets)}: {word}" for word, targets in words.items())
    return f"{leaf.info.description} Default: {told}."


def _default(default: Any) -> str | None:
    """A default in words; None where the target leaves nothing open."""
    if default is REQUIRED:
        return "none, it must be set"
    if isinstance(default, Fixed):
        return None
    return default.words if isinstance(default, Derived) else shown(default).strip("()")


def project_config() -> str:
    """The `config:` section of Pulumi.yaml.

    The engine demands a value for each key that is declared there without a default, and knows no defaults that depend
    on another key. So a setting whose default depends on the target is left to the JSON Schema and to `parse`.
    """
    lines = ["config:", f"  {BEGIN}"]
    for key, kind, default, text in _top_level():
        lines += [f"  {key}:", f"    type: {kind}", "    description: >-"]
        lines += textwrap.wrap(text, 112, initial_indent=" " * 6, subsequent_indent=" " * 6, break_on_hyphens=False)
        if default is not REQUIRED:
            lines.append(f"    default: {json.dumps(default)}")
    return "\n".join(lines) + "\n"


def _top_level() -> Iterator[tuple[str, str, Any, str]]:
    """Key, type, default and description of what Pulumi.yaml can declare."""
    grouped = sections()
    by_path = {leaf.path: leaf for leaf in leaves()}
    for info in Settings.model_fields.values():
        key = str(info.alias)
        if key in grouped:
            names = ", ".join(str(inner.alias) for inner in grouped[key].model_fields.values())
            yield key, "object", {}, f"{info.description} Settings: {names}."
            continue
        leaf = by_path[key]
        defaults = [default.value if isinstance(default, Fixed) else default for default in _defaults(leaf)]
        if defaults[0] is not None and all(default == defaults[0] for default in defaults):
            yield key, leaf.reader.schema()["type"], defaults[0], described(leaf)


def _defaults(leaf: Leaf) -> list[Any]:
    return [leaf.defaults.on(target) for target in TARGETS]


def with_config(project: str) -> str:
    """A Pulumi.yaml with its `config:` section replaced, or added at the end; every other line as it was."""
    section = project_config()
    found = re.search(r"^config:.*\n(?:(?:[ \t].*|#.*(?=\n[ \t])|)\n)*", project, flags=re.MULTILINE)
    if found is None:
        return project.rstrip("\n") + "\n" + section
    rest = project[found.end() :]
    return project[: found.start()] + section + ("\n" if rest else "") + rest


def stack_schema() -> dict[str, Any]:
    """The JSON Schema of a Pulumi.<stack>.yaml of this project."""
    settings: dict[str, Any] = {}
    grouped = sections()
    by_path = {leaf.path: leaf for leaf in leaves()}
    for info in Settings.model_fields.values():
        key = str(info.alias)
        name = f"{NAMESPACE}:{key}"
        if key in grouped:
            inner = {leaf.path.partition(".")[2]: _value(leaf) for leaf in leaves() if leaf.path.startswith(key + ".")}
            settings[name] = {
                "description": info.description,
                "type": "object",
                "properties": inner,
                "additionalProperties": False,
            }
        else:
            settings[name] = _value(by_path[key])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A stack file of rdma-ray",
        "description": "Pulumi.<stack>.yaml. " + BEGIN.removeprefix("# "),
        "type": "object",
        "properties": {
            "secretsprovider": {"type": "string"},
            "encryptedkey": {"type": "string"},
            "encryptionsalt": {"type": "string"},
            "environment": {"type": ["array", "object", "string"]},
            "config": {
                "type": "object",
                "properties": settings,
                "required": [f"{NAMESPACE}:target"],
                # Keys of providers, such as gcp:project, are theirs to describe.
                "patternProperties": {f"^(?!{NAMESPACE}:)[^:]+:": {}},
                "additionalProperties": False,
            },
        },
        "required": ["config"],
        "additionalProperties": False,
    }


def _value(leaf: Leaf) -> dict[str, Any]:
    if isinstance(leaf.reader, Secret):
        encrypted = {"secure": {"type": "string", "minLength": 1}}
        shape: dict[str, Any] = {"type": "object", "properties": encrypted, "required": ["secure"]}
        return {"description": described(leaf), **shape, "additionalProperties": False}
    shape = leaf.reader.schema()
    if shape["type"] == "boolean":
        # `pulumi config set` writes a boolean at the top level as text.
        shape = {"enum": [True, False, "true", "false"]}
    return {"description": described(leaf), **shape}


def outputs() -> dict[Path, str]:
    """Every generated file with the text it should have."""
    return {
        PROJECT: with_config(PROJECT.read_text(encoding="utf-8")),
        SCHEMA: json.dumps(stack_schema(), indent=2, ensure_ascii=False) + "\n",
    }


def stale() -> list[Path]:
    """The generated files that differ from what they should be."""
    return [path for path, text in outputs().items() if not path.exists() or path.read_text(encoding="utf-8") != text]


def main(arguments: list[str]) -> int:
    """Write or check the generated files; the exit status is 1 if a check finds one stale."""
    parser = argparse.ArgumentParser(prog="python -m infra.config_schema", description=__doc__)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true", help="write Pulumi.yaml's config section and the JSON Schema")
    mode.add_argument("--check", action="store_true", help="fail if either is stale")
    asked = parser.parse_args(arguments)
    old = stale()
    for path in old:
        print(f"{path.relative_to(ROOT)}: {'written' if asked.write else 'stale'}")
    if asked.check and old:
        print("fix: python -m infra.config_schema --write")
        return 1
    if asked.write:
        texts = outputs()
        for path in old:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
