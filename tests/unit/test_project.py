"""The clone that a command belongs to, and the version, which the changelog and images have too."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest

from infra import project

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with clones, for code that is not in one."""
    monkeypatch.setattr(project, "CODE", tmp_path / "site-packages")
    (tmp_path / "clone" / "inner").mkdir(parents=True)
    (tmp_path / "clone" / "Pulumi.yaml").write_text("# mine\nname: rdma-ray\nruntime: python\n")
    monkeypatch.chdir(tmp_path / "clone" / "inner")
    return tmp_path


def test_stack_files_are_those_of_the_clone_that_the_current_folder_is_in(installed: Path) -> None:
    assert project._project() == installed / "clone"


@pytest.mark.parametrize("content", ["name: another\n", "name: rdma-ray-fork\n", "  name: rdma-ray\n", None])
def test_another_project_is_no_clone(installed: Path, content: str | None) -> None:
    file = installed / "clone" / "Pulumi.yaml"
    file.unlink() if content is None else file.write_text(content)
    assert project._project() == installed / "clone" / "inner"


def test_a_clone_of_another_user_is_not_used(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone may put a Pulumi.yaml, with an engine beside it, into a folder such as /tmp."""
    assert project.is_clone(installed / "clone")
    if os.getuid() == 0:
        os.chown(installed / "clone" / "Pulumi.yaml", 12_345, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 12_345)
    assert not project.is_clone(installed / "clone")


def test_a_folder_that_is_gone_is_no_traceback(installed: Path) -> None:
    (installed / "clone" / "inner").rmdir()
    assert project._project() == installed / "site-packages"


def test_the_top_of_the_changelog_is_the_version() -> None:
    heading, text = re.findall(r"^## \[(.+)\].*\n((?:.+\n)*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert project.version() == PROJECT["project"]["version"]
    assert heading == project.version() or (heading == "Unreleased" and f" {project.version()}," in text)


def test_the_build_system_is_that_of_the_lock() -> None:
    assert set(PROJECT["build-system"]["requires"]) <= {*PROJECT["project"]["optional-dependencies"]["dev"]}
