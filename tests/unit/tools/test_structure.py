"""tools/structure.py: import circles, directions and sizes, each named by file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import structure

GANG = "import os\nimport ray\nray.util.placement_group([])\nray.remote(list)\nos.killpg(1, 9)\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one module per top folder, each importing the folder before it."""
    for file, text in {
        "infra/outputs.py": "import os\n",
        "workloads/exits.py": "from infra import outputs\n",
        "tools/a.py": "from workloads.exits import os\n",
        "rehearsal/a.py": "import tools.a\n",
        "tests/a.py": "from rehearsal import a\n",
    }.items():
        write(tmp_path, file, text)
    return tmp_path


def write(project: Path, file: str, text: str) -> None:
    (project / file).parent.mkdir(parents=True, exist_ok=True)
    (project / file).write_text(text)


def test_clean_project_has_no_problems(project: Path) -> None:
    assert list(structure.problems(project)) == []


@pytest.mark.parametrize(
    ("file", "imported"),
    [
        ("infra/b.py", "workloads.exits"),
        ("workloads/options.py", "tools.a"),
        ("tools/b.py", "rehearsal.a"),
        ("infra/b.py", "tests.a"),
    ],
)
def test_import_in_the_wrong_direction_names_file_and_line(project: Path, file: str, imported: str) -> None:
    folder, module = imported.split(".")
    write(project, file, f"\ndef f():\n    from {folder} import {module}\n")
    found = list(structure.problems(project))
    assert found[0].startswith(f"{file}:3: {file.partition('/')[0]} must not import {imported}: move")


def test_simulated_cloud_imports_nothing_of_the_program(project: Path) -> None:
    write(project, "rehearsal/clouds/b.py", "from infra import outputs\n")
    [found] = structure.problems(project)
    assert found == "rehearsal/clouds/b.py:1: rehearsal.clouds must not import infra: pass the value in"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"workloads/client/a.py": "def f():\n    from workloads.run import b\n", "workloads/run/b.py": ""},
            "workloads/client/a.py:2: client must not import workloads.run.b, a higher floor: move that code down",
        ),
        ({"workloads/b.py": ""}, "workloads/b.py: workloads.b is not on a floor: add it to one in tools/structure.py"),
        (
            {"workloads/run/b.py": "import infra.c\n", "infra/c.py": ""},
            "workloads/run/b.py:1: workloads must not import infra.c: only infra.addresses, infra.catalog,",
        ),
        (
            {
                "workloads/client/a.py": "from workloads.gang import b\n",
                "workloads/client/c.py": "",
                "workloads/gang/b.py": "from workloads.client import c\n",
            },
            "workloads/client/a.py:1: workloads.client imports workloads.gang, which imports workloads.client (",
        ),
        ({"infra/gke/ray.py": "", "tests/b.py": "import ray\n"}, "infra/gke/ray.py: ray is the name of a library"),
        (
            {"tools/b.py": "class A:\n    pass\n", "tools/c.py": "\nclass A:\n    pass\n"},
            "tools/c.py:2: class A is also in tools/b.py: rename one of them",
        ),
        (
            {"workloads/nccl/b.py": "import ray\n\nactors = ray.remote(num_gpus=1)(list)\nactors.remote()\n"},
            "workloads/nccl/b.py:3: ray.remote belongs to workloads.gang, workloads.doctor.probe, workloads.monitor",
        ),
        (
            {
                "workloads/run/b.py": "from ray.util.placement_group import placement_group\n",
                "workloads/gang/b.py": GANG,
            },
            "workloads/run/b.py:1: ray.util.placement_group.placement_group belongs to workloads.gang: call what",
        ),
        (
            {"workloads/run/b.py": "import os\n\ndef f():\n    os.killpg(1, 9)\n", "workloads/gang/b.py": GANG},
            "workloads/run/b.py:4: os.killpg belongs to workloads.gang, workloads.preflight.cli, workloads.slurm.node",
        ),
        ({"infra/gke/queue.py": ""}, "infra/gke/queue.py: queue is the name of a library: rename the module"),
    ],
)
def test_broken_rule_names_file_and_fix(project: Path, files: dict[str, str], message: str) -> None:
    for file, text in files.items():
        write(project, file, text)
    [found] = structure.problems(project)
    assert found.startswith(message)


@pytest.mark.parametrize(
    "program",
    ["import torch\nimport workloads.gang.b\n", "import workloads.gang.b\nif __name__ == '__main__':\n    pass\n"],
)
def test_program_on_the_cluster_imports_nothing_of_infra_when_it_starts(project: Path, program: str) -> None:
    write(project, "workloads/train/a.py", program)
    write(project, "workloads/gang/b.py", "def f():\n    import infra.outputs\n")
    assert list(structure.problems(project)) == []
    write(project, "workloads/gang/b.py", "try:\n    import infra.outputs\nexcept ImportError:\n    pass\n")
    [found] = structure.problems(project)
    chain = "workloads.gang.b → infra.outputs"
    assert found == f"workloads/train/a.py: runs on the cluster, and imports {chain}: pass the value in"
    write(project, "workloads/gang/b.py", "try:\n    pass\nexcept ImportError:\n    import infra.outputs\n")
    assert list(structure.problems(project)) == [found]


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
    assert short.startswith("33 files under 40 lines, at most 28: merge some: infra/outputs.py (1), ")


def test_folder_over_its_budget_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(structure.BUDGET, "tools", 3)
    write(project, "tools/b.py", "\n" * 3)
    write(project, "tests/rehearsal/golden/gke.txt", "\n" * (structure.GOLDEN_BUDGET + 1))
    budgets = [line.partition(":")[0] for line in structure.problems(project)]
    assert budgets == ["tools", "tests/rehearsal/golden"]
