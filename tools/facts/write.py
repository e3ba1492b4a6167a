"""Write `facts.json` of both clouds: statements of their real providers and APIs about inputs and machines.

    python -m tools.facts.write --providers FOLDER

FOLDER has `gcp.json` and `aws.json`: the schemas that the clouds' Terraform providers publish. The other
sources are installed packages and, in a temporary folder, `packages`, which clash with the locked environment.
`fact_tables.yaml` states which schemas have the facts of a type, and where names and behavior differ.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from tools.facts.machines import aws_machines, aws_zones, gcp_machines
from tools.facts.published import Json, published, sdk_inputs

TABLES: Json = yaml.safe_load(Path(__file__).with_name("fact_tables.yaml").read_text(encoding="utf-8"))
IGNORED: Json = TABLES["ignored"]
CLOUDS = Path(__file__).parents[2] / "rehearsal" / "clouds"
# What a provider states of an input together with others, and the fact that it is here.
TOGETHER = {"conflictsWith": "conflicts", "requiredWith": "with"}
GROUPS = {"exactlyOneOf": "exactlyOne", "atLeastOneOf": "atLeastOne"}


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--providers", type=Path, required=True, help="folder of gcp.json and aws.json")
    folder = parser.parse_args().providers
    with tempfile.TemporaryDirectory() as packages:
        install = [sys.executable, "-m", "uv", "pip", "install", "-q", "--no-deps", "--target", packages]
        subprocess.run([*install, *TABLES["packages"].values()], check=True)
        for cloud in ("gcp", "aws"):
            provider = json.loads((folder / f"{cloud}.json").read_text(encoding="utf-8"))
            _write(cloud, facts(cloud, provider, Path(packages)))


def facts(cloud: str, provider: Mapping[str, Any], packages: Path) -> Json:
    """Return the content of a cloud's `facts.json`."""
    versions = {name: version(name) for name in ("pulumi_gcp", "pulumi_aws", "botocore", "moto")}
    stated = {**versions, **TABLES["packages"], "provider": provider["_source"]}
    sources = {
        key: text.format(**stated) if isinstance(text, str) else text for key, text in TABLES[cloud]["sources"].items()
    }
    document = {"sources": sources, "shapes": shapes(cloud, provider, packages)}
    if cloud == "gcp":
        return {**document, "machines": gcp_machines(TABLES["gcp"]["machines"])}
    zones = aws_zones()
    return {**document, "zones": zones[""], "machines": aws_machines(zones)}


def shapes(cloud: str, provider: Mapping[str, Any], packages: Path) -> Json:
    """Return the facts of a cloud's types; each source adds facts that the earlier ones lack."""
    shapes_by_type = {}
    for name, schemas in TABLES[cloud]["types"].items():
        token, aliases = f"{cloud}:{name}", TABLES["aliases"].get(name, {})
        facts = shapes_by_type[token] = sdk_inputs(token)
        for schema in schemas:
            if schema in provider:
                _add_provider(facts, schema, provider[schema])
            else:
                _add_published(facts, schema, published(schema, packages), aliases)
        for path, stated in TABLES["stated"].get(name, {}).items():
            facts[path] |= stated
        if cloud == "aws":
            _add_regions_and_prefixes(facts)
    return shapes_by_type


def matched(facts: Mapping[str, Json], stated: Mapping[str, Json], aliases: Mapping[str, str]) -> dict[str, str]:
    """Return the inputs that a source also has, with their paths there."""
    places: dict[str, dict[str, str]] = defaultdict(dict)
    for place in stated:
        above, _, name = place.rpartition(".")
        places[above][_plain(name)] = place
    pairs = {"": ""}
    for path in facts:
        above, _, name = path.rpartition(".")
        if path and above in pairs:
            names = [*map(_plain, aliases.get(path, "").split()), *_numbers(_plain(name))]
            below = places[pairs[above]]
            if name := next(filter(below.__contains__, names), ""):
                pairs[path] = below[name]
    return pairs


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _numbers(name: str) -> Iterator[str]:
    """Yield a name, its plurals and its singulars: Pulumi names lists in the plural."""
    yield from (name, f"{name}s", f"{name}es")
    for end, other in (("y", "ies"), ("ies", "y"), ("es", ""), ("s", "")):
        if name.endswith(end):
            yield name.removesuffix(end) + other


def _add_provider(facts: dict[str, Json], terraform: str, stated: Mapping[str, Json]) -> None:
    """Add what the real provider states of its inputs; an input that the SDK does not have is an error."""
    inputs = {place: path for path, place in matched(facts, stated, {}).items()}
    for place, fact in stated.items():
        above, _, name = place.rpartition(".")
        own = f"{terraform}.{place}"
        known = fact.get("readOnly") or name in ("id", "timeouts", "tags_all") or own in IGNORED
        if place in inputs:
            _add(facts, inputs, place, {**fact, **TABLES["validated"].get(own, {})})
        elif above in inputs and not known:
            raise LookupError(f"{own} has no input")
    for path in filter(None, inputs.values()):
        # Terraform replaces for a block that comes or goes, not for what changes in it.
        if any(other.startswith(f"{path}.") and not facts[other].get("immutable") for other in inputs.values()):
            facts[path].pop("immutable", None)


def _add(facts: dict[str, Json], inputs: Mapping[str, str], place: str, stated: Json) -> None:
    path = inputs[place]
    fact, parent = facts[path], path.rpartition(".")[0]
    # At the top, the SDK has inputs only; below, it has computed properties, too.
    if stated.get("readOnly") and parent:
        fact["readOnly"] = True
    if stated.get("forceNew"):
        fact["immutable"] = True
    if stated.get("computed") and not (stated.get("readOnly") or stated.get("required")):
        fact["computed"] = True
    items = ("minItems", "maxItems") if fact["type"].startswith("list") else ()
    fact |= {key: stated[key] for key in ("enum", "pattern", "format", "min") if key in stated}
    fact |= dict(zip(("min", "max"), stated.get("range", ()), strict=False))
    fact |= {key: stated[key] for key in items if key in stated}
    for key in filter({**TOGETHER, **GROUPS}.__contains__, stated):
        paths = [inputs[re.sub(r"\.0(?=\.)", "", each)] for each in stated[key]]
        if key in TOGETHER:
            fact[TOGETHER[key]] = paths
            continue
        group = sorted(each.removeprefix(f"{parent}.") for each in paths)
        if any("." in each for each in group):
            raise LookupError(f"{key} of {path} is not about one object: {paths}")
        groups = facts.setdefault(parent, {"type": "object"}).setdefault(GROUPS[key], [])
        if group not in groups:
            groups.append(group)


def _add_published(facts: dict[str, Json], schema: str, stated: Mapping[str, Json], aliases: Mapping[str, str]) -> None:
    """Add what a published schema states; what only a create can set and has no input is an error."""
    pairs = {path: place for path, place in matched(facts, stated, aliases).items() if path}
    once = {place for place, fact in stated.items() if fact.get("immutable") and f"{schema}.{place}" not in IGNORED}
    if once - set(pairs.values()):
        raise LookupError(f"{schema}: {once - set(pairs.values())} have no inputs")
    for path, place in pairs.items():
        fact, limits = facts[path], stated[place].get("api", {})
        if "enum" in stated[place]:
            fact.setdefault("enum", stated[place]["enum"])
        # What the API checks in the request and the provider does not state.
        kept = {key: value for key, value in limits.items() if key not in fact and _concerns(key, value, fact["type"])}
        if kept and not fact.get("readOnly"):
            fact["api"] = kept
        if place in once:
            fact["immutable"] = True


def _concerns(key: str, value: Any, type_: str) -> bool:
    """Return whether a limit is one of values of a type and, if it is a pattern, one that some text can match."""
    if key in ("min", "max"):
        return type_ in ("integer", "number")
    if key in ("minItems", "maxItems"):
        return type_.startswith("list")
    return type_ in ("string", "list<string>") and (key != "pattern" or _compiles(value))


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return re.search(r"(?<![\[\\])\^", pattern[1:]) is None


def _add_regions_and_prefixes(facts: dict[str, Json]) -> None:
    """Add what the AWS provider does to every type alike."""
    for path in facts:
        if prefix := facts.get(f"{path}Prefix"):
            facts[path]["conflicts"] = [f"{path}Prefix"]
            if facts[path].get("immutable"):
                prefix["immutable"] = True
    if "region" in facts:
        facts["region"]["immutable"] = True


def _write(cloud: str, facts: Json) -> None:
    """Write one input or machine a line, so that a review sees which of them change."""
    tables = []
    for key, table in facts.items():
        rows = [f"  {json.dumps(each)}: {_row(row, nested=key == 'shapes')}" for each, row in table.items()]
        tables.append(f' "{key}": {{\n' + ",\n".join(rows) + "\n }")
    (CLOUDS / cloud / "facts.json").write_text("{\n" + ",\n".join(tables) + "\n}\n", encoding="utf-8")


def _row(row: Any, nested: bool) -> str:
    if not nested:
        return json.dumps(row)
    return "{\n" + ",\n".join(f"   {json.dumps(key)}: {json.dumps(value)}" for key, value in row.items()) + "\n  }"


if __name__ == "__main__":
    main()
