"""tools/structure.py: import circles, directions and sizes, each named by file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import structure


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one module per top folder, each importing the folder before it."""
    for folder, text in {
        "infra": "import os\n",
        "workloads": "from infra import a\n",
        "tools": "from workloads.a import os\n",
        "rehearsal": "import tools.a\n",
        "tests": "from rehearsal import a\n",
    }.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.py").write_text(text)
    return tmp_path


def test_clean_project_has_no_problems(project: Path) -> None:
    assert list(structure.problems(project)) == []


@pytest.mark.parametrize(
    ("folder", "imported"), [("infra", "workloads"), ("workloads", "tools"), ("tools", "rehearsal"), ("infra", "tests")]
)
def test_import_in_the_wrong_direction_names_file_and_line(project: Path, folder: str, imported: str) -> None:
    (project / folder / "b.py").write_text(f"\ndef f():\n    from {imported} import a\n")
    found = list(structure.problems(project))
    assert found[0].startswith(f"{folder}/b.py:3: {folder} must not import {imported}.a: move")


def test_simulated_cloud_imports_nothing_of_the_program(project: Path) -> None:
    (project / "rehearsal" / "clouds").mkdir()
    (project / "rehearsal" / "clouds" / "b.py").write_text("from infra import a\n")
    [found] = structure.problems(project)
    assert found == "rehearsal/clouds/b.py:1: rehearsal.clouds must not import infra: pass the value in"


@pytest.mark.parametrize(
    "text",
    [
        "from infra.c import x\n",
        "from . import c\n",
        "def f():\n    import infra.c\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from infra import c\n",
    ],
)
def test_circle_is_found_at_every_level(project: Path, text: str) -> None:
    (project / "infra" / "b.py").write_text(text)
    (project / "infra" / "c.py").write_text("from infra.b import y\n")
    [found] = structure.problems(project)
    assert found.startswith("import circle: infra/")
    assert "infra/c.py:1 imports infra.b" in found
    assert "infra/b.py" in found


def test_long_files_and_too_many_short_files_are_named(project: Path) -> None:
    (project / "infra" / "long.py").write_text("\n" * 401)
    for number in range(structure.MAX_SHORT_FILES):
        (project / "infra" / f"short{number}.py").write_text("x = 1\n")
    long, short = structure.problems(project)
    assert long == "infra/long.py: 401 lines, more than 400: split it"
    assert short.startswith("29 files under 40 lines, at most 24: merge some: infra/a.py (1), ")
