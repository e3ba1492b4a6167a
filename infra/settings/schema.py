"""Schemas of stack files for Pulumi and for editors, generated from the models.

`python -m infra.settings.schema` writes the `config:` section of Pulumi.yaml, and nothing else of it, and the JSON
Schema of stack files.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infra.settings.load import MODELS, NAMESPACE, OFF, PATHS, SECTIONS, SETTINGS
from infra.settings.problems import shown

ROOT = Path(__file__).resolve().parents[2]
PROJECT = ROOT / "Pulumi.yaml"
SCHEMA = ROOT / "schema" / "rdma-ray-stack.schema.json"

KEYS = tuple(dict.fromkeys(path.partition(".")[0] for path in PATHS))

BEGIN = "# Generated from infra/settings: python -m infra.settings.schema"


def described(path: str) -> str:
    """Return a setting's description with its defaults by target."""
    return f"{description(path)} Default: {defaults(path)}."


def description(path: str) -> str:
    """Return the meaning of a setting."""
    return next(filter(None, (one.info.description for one in SETTINGS[path].values())))


def defaults(path: str) -> str:
    """Return the defaults of a setting, by target where they differ."""
    settings = SETTINGS[path]
    words: dict[str, list[str]] = {}
    for target, setting in settings.items():
        word = "none, it must be set" if setting.required else shown(setting.info.default).strip("()")
        words.setdefault(setting.derived.words if setting.derived else word, []).append(target)
    if len(words) == 1 and len(settings) in (1, len(MODELS)):
        return next(iter(words))
    return "; ".join(f"{', '.join(targets)}: {word}" for word, targets in words.items())


def project_config() -> str:
    """Return the `config:` section of Pulumi.yaml.

    The engine requires a value for each key that is declared there without a default, and has no defaults that depend
    on another key. Keys whose default depends on the target are only in the JSON Schema and in `parse`.
    """
    lines = ["config:", f"  {BEGIN}"]
    for key, kind, default, text in _declared():
        lines += [f"  {key}:", f"    type: {kind}"]
        items = next(iter(SETTINGS[key].values())).schema["items"]["type"] if kind == "array" else None
        lines += ["    items:", f"      type: {items}"] if items else []
        lines += ["    description: >-"]
        lines += textwrap.wrap(text, 112, initial_indent=" " * 6, subsequent_indent=" " * 6, break_on_hyphens=False)
        if default is not None:
            lines.append(f"    default: {json.dumps(default)}")
    return "\n".join(lines) + "\n"


def _declared() -> Iterator[tuple[str, str, Any, str]]:
    """Yield key, type, default (or None) and description of each setting that Pulumi.yaml can declare."""
    for key in KEYS:
        if key in SECTIONS:
            description = section_described(key)
            yield key, "object", {}, f"{description} Settings: {', '.join(SECTIONS[key])}."
            continue
        settings = SETTINGS[key]
        defaults = {None if setting.required else setting.info.default for setting in settings.values()}
        everywhere = len(settings) == len(MODELS)
        if len(defaults) == 1 and (everywhere or not {shown(default) for default in defaults}.isdisjoint(OFF)):
            yield key, next(iter(settings.values())).schema["type"], defaults.pop(), described(key)


def section_described(key: str) -> str | None:
    """Return the description of a section, which the first target with one has."""
    fields = [info for model in MODELS.values() for info in model.model_fields.values() if info.alias == key]
    return next(info.description for info in fields if info.description)


def with_config(project: str) -> str:
    """Return a Pulumi.yaml with its `config:` section replaced, or added at the end; every other line as it was."""
    section = project_config()
    match = re.search(r"^config:.*\n(?:(?:[ \t].*|#.*(?=\n[ \t])|)\n)*", project, flags=re.MULTILINE)
    before, rest = (project[: match.start()], project[match.end() :]) if match else (project.rstrip("\n") + "\n", "")
    return before + section + ("\n" if rest else "") + rest


def stack_schema() -> dict[str, Any]:
    """Return the JSON Schema of a Pulumi.<stack>.yaml of this project."""
    settings: dict[str, Any] = {}
    for key in KEYS:
        if key in SECTIONS:
            values = {name: _value(f"{key}.{name}") for name in SECTIONS[key]}
            description = section_described(key)
            settings[f"{NAMESPACE}:{key}"] = {"description": description, **_object(values)}
        else:
            settings[f"{NAMESPACE}:{key}"] = _value(key)
    config = _object(settings, f"{NAMESPACE}:target")
    # The providers describe their own keys, such as gcp:project.
    config["patternProperties"] = {f"^(?!{NAMESPACE}:)[^:]+:": {}}
    text = {name: {"type": "string"} for name in ("secretsprovider", "encryptedkey", "encryptionsalt")}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A stack file of rdma-ray",
        "description": "Pulumi.<stack>.yaml. " + BEGIN.removeprefix("# "),
        **_object({**text, "environment": {"type": ["array", "object", "string"]}, "config": config}, "config"),
    }


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    needs = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties, **needs, "additionalProperties": False}


def _value(path: str) -> dict[str, Any]:
    """Return the schema of a setting's values on every target that has it."""
    settings = list(SETTINGS[path].values())
    shape = dict(settings[0].schema)
    names = [name for setting in settings for name in setting.every_name]
    if settings[0].secret:
        shape = _object({"secure": {"type": "string", "minLength": 1}}, "secure")
    elif names:
        shape = {"type": "string", "enum": list(dict.fromkeys(names))}
    elif shape["type"] == "boolean":
        # `pulumi config set` writes a boolean at the top level as text.
        shape = {"enum": [True, False, "true", "false"]}
    return {"description": described(path), **shape}


def outputs() -> dict[Path, str]:
    """Return every generated file with its text."""
    return {
        PROJECT: with_config(PROJECT.read_text(encoding="utf-8")),
        SCHEMA: json.dumps(stack_schema(), indent=2, ensure_ascii=False) + "\n",
    }


def main() -> None:
    """Write the generated files."""
    for path, text in outputs().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
