"""The generated files are up to date, and accept the stack files that the program accepts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from infra.settings import parse
from infra.settings import schema as generated
from infra.settings.load import PATHS, SECTIONS, SETTINGS
from tests.unit.stacks import EKS, GKE, KUBERNETES, LOCAL, changed

ROOT = Path(__file__).resolve().parents[3]
DECLARED = {"target", "nodes", "computeClass", "queue", "ray", "service", "storage", "access", "network", "hardening"}
DECLARED |= {"monitoring", "budget", "prices", "cluster", "installKuberay", "otherNodes", "teams"}


def stack_file(raw: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {"config": {f"rdma-ray:{key}": value for key, value in raw.items()}, **others}


def faults(document: dict[str, Any]) -> list[str]:
    validator = jsonschema.Draft202012Validator(generated.stack_schema())
    return [error.message for error in validator.iter_errors(document)]


def test_generated_files_are_up_to_date() -> None:
    for path, text in generated.outputs().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is stale: make schema"


def test_generated_files_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, schema = tmp_path / "Pulumi.yaml", tmp_path / "schema" / "stack.json"
    project.write_text("name: x\n# a remark\nconfig:\n  old:\n    type: string\n\nruntime:\n  name: python\n")
    monkeypatch.setattr(generated, "ROOT", tmp_path)
    monkeypatch.setattr(generated, "PROJECT", project)
    monkeypatch.setattr(generated, "SCHEMA", schema)
    assert any(path.read_text() != text for path, text in generated.outputs().items() if path.exists())
    generated.main()
    assert {path: path.read_text() for path in (project, schema)} == generated.outputs()
    text = project.read_text()
    assert text.startswith("name: x\n# a remark\nconfig:\n")
    assert text.endswith("\n\nruntime:\n  name: python\n")
    assert "  old:" not in text
    assert generated.with_config(text) == text


@pytest.mark.parametrize(
    "text",
    ["name: x\n", "name: x\nruntime: python", "config:\n  a:\n    type: string\nname: x\n", "config: {}\nname: x\n"],
)
def test_only_the_config_section_changes(text: str) -> None:
    before, after = yaml.safe_load(text), yaml.safe_load(generated.with_config(text))
    assert {key: value for key, value in after.items() if key != "config"} == {
        key: value for key, value in before.items() if key != "config"
    }
    assert set(after["config"]) == DECLARED


def test_project_section_declares_keys_with_defaults() -> None:
    section = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())["config"]
    assert set(section) == DECLARED
    undeclared = {path.partition(".")[0] for path in PATHS} - DECLARED
    # Their defaults depend on the target, which Pulumi.yaml cannot say.
    others = {"context", "namespace", "localQueue", "fabricResource"}
    assert undeclared == {"location", "fabric", "protect"} | others
    for key, entry in section.items():
        # Pulumi refuses an array without the type of its items.
        assert set(entry) <= {"type", "default", "description"} | ({"items"} if entry.get("type") == "array" else set())
        assert entry["description"], key
        assert entry.get("type", "string") in ("string", "integer", "boolean", "array", "object")
        # Pulumi refuses a stack that lacks a declared key without a default.
        assert ("default" in entry) is (key != "target"), key


@pytest.mark.parametrize("stack", [LOCAL, GKE, EKS, KUBERNETES])
def test_defaults_of_the_project_section_change_nothing(stack: dict[str, Any]) -> None:
    section = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())["config"]
    added = {key: entry["default"] for key, entry in section.items() if "default" in entry}
    assert parse({**added, **stack}) == parse(stack)


@pytest.mark.parametrize("stack", [LOCAL, GKE, EKS, changed(EKS, {"protect": "true", "computeClass": False})])
def test_schema_accepts_valid_files(stack: dict[str, Any]) -> None:
    assert faults(stack_file(stack)) == []


def test_schema_accepts_keys_of_pulumi_and_providers() -> None:
    document = stack_file(LOCAL, encryptionsalt="v1:x", secretsprovider="passphrase")
    document["config"]["gcp:project"] = "p"
    document["config"]["rdma-ray:ray"] = {"token": {"secure": "v1:abc"}}
    assert faults(document) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("nodes.machin", "a3-ultragpu-8g"),
        ("nodes.machine", "a3"),
        ("nodes.max", "many"),
        ("nodes.max", 0),
        ("targe", "gke"),
        ("target", "gcp"),
        ("protect", "yes"),
        ("ray.token", "in clear text"),
        ("ray.version", 2.6),
        ("access.authorizedNetworks", "10.0.0.0/8"),
        ("storage", "a-bucket"),
    ],
)
def test_schema_rejects_mistakes(path: str, value: Any) -> None:
    assert len(faults(stack_file(changed(GKE, {path: value})))) == 1


def test_schema_requires_config_and_target() -> None:
    assert faults({"config": {}})
    assert faults({})
    assert faults({**stack_file(LOCAL), "colour": "blue"})


def test_schema_describes_every_setting() -> None:
    schema = generated.stack_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    config = schema["properties"]["config"]["properties"]
    for path in PATHS:
        section, _, name = path.rpartition(".")
        entry = config[f"rdma-ray:{section}"]["properties"][name] if section else config[f"rdma-ray:{name}"]
        assert entry["description"] == generated.described(path)
        described = [str(setting.info.description) for setting in SETTINGS[path].values()]
        assert any(entry["description"].startswith(text) for text in described), path
    assert set(SECTIONS) <= {key.partition(":")[2] for key in config}
