"""Reading configuration from a stack file without Pulumi, and from Pulumi's own store."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.settings import LocalSettings, SettingsError, from_stack_file, parse
from infra.settings.load import load

from .stacks import GKE, changed

ROOT = Path(__file__).resolve().parents[2]


def written(tmp_path: Path, raw: dict[str, Any], name: str = "Pulumi.dev.yaml") -> Path:
    path = tmp_path / name
    path.write_text(yaml.safe_dump({"config": {f"rdma-ray:{key}": value for key, value in raw.items()}, "x": 1}))
    return path


def test_stack_file_reads_as_in_pulumi(tmp_path: Path) -> None:
    assert from_stack_file(written(tmp_path, GKE)) == parse(GKE)


def test_other_namespaces_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.dev.yaml"
    path.write_text("config:\n  rdma-ray:target: local\n  gcp:project: p\n  rdma-ray-x:target: gke\n")
    assert from_stack_file(path).target == "local"


def test_an_encrypted_token_is_present_and_unknown(tmp_path: Path) -> None:
    settings = from_stack_file(written(tmp_path, {"target": "local", "ray": {"token": {"secure": "v1:abc"}}}))
    assert isinstance(settings, LocalSettings)
    assert settings.ray.token is not None
    assert settings.ray.token.get_secret_value() == ""


def test_a_clear_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="clear text") as caught:
        from_stack_file(written(tmp_path, {"target": "local", "ray": {"token": "hunter2"}}))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("path", ["location", "nodes", "nodes.max"])
def test_encrypted_settings_are_reported_with_other_problems(tmp_path: Path, path: str) -> None:
    raw = changed(GKE, {path: {"secure": "v1:abc"}, "protekt": True})
    with pytest.raises(SettingsError) as caught:
        from_stack_file(written(tmp_path, raw))
    assert [problem.settings for problem in caught.value.problems] == [(path,), ("protekt",)]
    assert "only Pulumi can read it" in str(caught.value)
    assert str(caught.value).startswith("Pulumi.dev.yaml has 2 problems")


def test_the_stacks_name_comes_from_the_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="name is My_stack"):
        from_stack_file(written(tmp_path, GKE, "Pulumi.My_stack.yaml"))


def test_a_file_with_an_empty_config_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.dev.yaml"
    path.write_text("config:\n")
    with pytest.raises(SettingsError, match="no map"):
        from_stack_file(path)


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        from_stack_file(tmp_path / "Pulumi.none.yaml")


@pytest.fixture
def configuration(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Pulumi's store as the engine hands it over: text only, the whole object marked when a part of it is secret."""
    delivered = {
        "rdma-ray:target": "local",
        "rdma-ray:protect": "true",
        "rdma-ray:ray": json.dumps({"token": "hunter2"}),
        "gcp:project": "p",
    }
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps(delivered))
    monkeypatch.setenv("PULUMI_CONFIG_SECRET_KEYS", json.dumps(["rdma-ray:ray"]))
    monkeypatch.setattr("pulumi.get_stack", lambda: "dev")
    return delivered


def test_load_reads_the_store_of_pulumi(configuration: dict[str, str]) -> None:
    settings = load()
    assert settings.protect is True
    assert isinstance(settings, LocalSettings)
    assert settings.ray.token is not None
    assert settings.ray.token.get_secret_value() == json.loads(configuration["rdma-ray:ray"])["token"]


def test_load_sees_unknown_keys(configuration: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps({**configuration, "rdma-ray:colour": "blue"}))
    with pytest.raises(SettingsError, match="The configuration of stack dev has 1 problem"):
        load()


@pytest.mark.parametrize(
    "half",
    [
        "infra.settings.load, infra.settings.schema, infra.plan, infra.addresses, infra.gke.pod, infra.eks.pod",
        # The engine and its hosts load the SDKs; whoever reads what they registered need not.
        "rehearsal.__main__, rehearsal.invariants.by_target",
    ],
    ids=["settings", "rehearsal"],
)
def test_pure_modules_do_not_import_pulumi(half: str) -> None:
    program = (
        f"import sys, infra.settings, {half};"
        "infra.settings.parse({'target': 'local'});"
        "print([name for name in sys.modules if name.split('.')[0].startswith('pulumi')])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
