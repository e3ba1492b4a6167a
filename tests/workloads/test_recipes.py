"""docs/recipes.md on a real cluster: its commands run in its order, and print lines of the shape that it shows.

UPDATE_GOLDENS=1 make test PYTEST=tests/workloads/test_recipes.py    # writes what they print into the page
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.console import ANY_LINES, agrees, bash, played
from tests.workloads.conftest import Cluster

PAGE = Path(__file__).resolve().parents[2] / "docs" / "recipes.md"
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
# After the ranks have ended, torchrun's agents wait for each other in a store that one of them hosts. If that agent
# ends first, another one logs this with a traceback, and succeeds (torch 2.15.0: SimpleElasticAgent._exit_barrier).
EXIT_BARRIER, AGENT = "Error waiting on exit barrier", re.compile(r"^torchrun on .*\n", re.MULTILINE)


def sections() -> list[tuple[str, str]]:
    """Return the page's sections as (title, text)."""
    _, *parts = SECTION.split(PAGE.read_text(encoding="utf-8"))
    return list(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("title", [title for title, _ in sections()])
def test_recipe_prints_what_the_page_shows(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, title: str
) -> None:
    text = dict(sections())[title]
    folder = tmp_path_factory.mktemp("recipe")
    environment = cluster.environment() | {"PATH": f"{cluster.command.parent}:{os.environ['PATH']}", "COLUMNS": "120"}

    def run(command: str) -> str:
        # bash: `$ command && echo $?` works.
        said = bash(command, folder, environment, 300).stdout
        if EXIT_BARRIER in said:
            said = AGENT.sub("", said)
        return said.replace(str(folder), "/home/me/project").replace(str(cluster.logs), "/tmp/rdma-ray")

    updated = played(text, folder, run)
    if updated != text:
        PAGE.write_text(PAGE.read_text(encoding="utf-8").replace(text, updated), encoding="utf-8")


def test_recipe_with_another_shape_is_found() -> None:
    """The comparison itself: another word, a missing line and an additional line differ; figures do not."""
    shown = ["rank 0 of 2", ANY_LINES, "3 nodes, … GB/s"]
    assert agrees(shown, ["rank 1 of 4", "3 nodes, 7.25 GB/s"])
    assert agrees(shown, ["rank 1 of 4", "anything", "3 nodes, 7 GB/s"])
    for printed in (["rank 1 of 4"], ["rank 1 of 4", "3 nodes, 7 GB/s", "more"], ["rank one of 4", "3 nodes, 7 GB/s"]):
        assert not agrees(shown, printed)
