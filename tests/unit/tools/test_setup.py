"""tools/setup.py: which engine is used, and what a machine without one prints."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.clone import executable
from tools import setup


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty cache and an empty PATH; returns the folder that is its PATH."""
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return path


def install(path: Path, name: str, says: str) -> Path:
    return executable(path / name, f"#!/bin/sh\necho '{says}'\n")


def test_old_pulumi_is_not_used_if_go_can_build(machine: Path) -> None:
    install(machine, "pulumi", "v3.190.0")
    install(machine, "go", "go version go1.26.8 linux/amd64")
    assert setup.find_engine() is None


def test_recent_pulumi_is_used_and_own_wrapper_is_not(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the clone's bin/ on PATH, the engine must not start itself forever."""
    monkeypatch.setenv("PATH", f"{setup.ROOT / 'bin'}:{machine}")
    install(machine, "go", "go version go1.26.8 linux/amd64")
    assert setup.find_engine() is None
    own = install(machine, "pulumi", "v3.272.0")
    assert setup.find_engine() == own


@pytest.mark.parametrize(
    ("programs", "seen"),
    [
        ({}, "no 'pulumi' is on PATH"),
        ({"go": "go version go1.22.1 linux/amd64"}, "no 'pulumi' is on PATH"),
        ({"pulumi": "v3.190.0"}, "older than 3.259.0"),
        ({"pulumi": "this is not a version"}, "older than 3.259.0"),
    ],
)
def test_missing_engine_is_reported_with_both_fixes(machine: Path, programs: dict[str, str], seen: str) -> None:
    for name, says in programs.items():
        install(machine, name, says)
    with pytest.raises(setup.SetupError) as problem:
        setup.find_engine()
    message = str(problem.value)
    assert seen in message
    assert "install Pulumi 3.259.0" in message
    assert "install Go 1.26" in message


@pytest.mark.usefixtures("machine")
def test_engine_is_checked_before_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "install_environment", lambda _purpose: pytest.fail("downloads first"))
    with pytest.raises(setup.SetupError, match="engine is missing"):
        setup.main("run")


def test_every_lock_pins_the_same_versions_as_the_project_file() -> None:
    """The smaller locks are parts of the largest, and it has every direct pin of pyproject.toml."""
    pins = {
        purpose: dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (setup.ROOT / lock).read_text(), re.MULTILINE))
        for purpose, lock in setup.LOCKS.items()
    }
    assert pins["infra"].items() <= pins["run"].items() <= pins["dev"].items()
    project = tomllib.loads((setup.ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + [line for extra in project["optional-dependencies"].values() for line in extra]
    for requirement in wanted:
        name, _, version = requirement.partition("==")
        locked = pins["dev"][name.partition("[")[0].lower()]
        assert not version or locked == version, requirement
    assert "torch" not in pins["infra"]
    assert pins["infra"]["pulumi"] == ".".join(map(str, setup.ENGINE_VERSION))


def test_locks_carry_hashes_and_no_addresses() -> None:
    for lock in setup.LOCKS.values():
        text = (setup.ROOT / lock).read_text()
        assert "://" not in text
        assert "--index" not in text
        assert text.count("==") <= text.count("--hash=sha256:")


def test_engine_pin_is_one_version_everywhere() -> None:
    version = ".".join(map(str, setup.ENGINE_VERSION))
    manifest = (setup.ROOT / "tools" / "engine" / "go.mod").read_text()
    assert f"github.com/pulumi/pulumi/pkg/v3 v{version}" in manifest
    assert f"github.com/pulumi/pulumi/sdk/v3 v{version}" in manifest
