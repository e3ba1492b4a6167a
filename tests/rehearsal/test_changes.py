"""Changes of running stacks: two rows of `make changes`, one per cloud, and one that doubles the cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rehearsal.changes import DOCUMENT, EDITS, Drill, Edit
from rehearsal.fork_server import ForkServer
from rehearsal.report.markdown import markdown
from rehearsal.report.outcome import Outcome

ROWS = [edit for edit in EDITS if edit.name in ("newer node image", "larger boot disks")]


@pytest.mark.parametrize("edit", ROWS, ids=lambda edit: edit.stack)
def test_running_nodes_are_replaced_without_protection_only(
    edit: Edit, fork_server: ForkServer, tmp_path: Path
) -> None:
    drill = Drill(tmp_path, fork_server.bin)
    drill.prepare(edit.stack)
    result = drill.run(edit, drill.workspace("work"))
    assert result.wrong == ""
    assert result.up.protected
    assert result.unprotected is not None
    assert result.unprotected.ends_job
    assert result.row in DOCUMENT.read_text().splitlines(), "the document is stale: make changes"


def test_comment_on_a_doubled_maximum_has_both_costs_and_the_setting(rehearse: Callable[..., Outcome]) -> None:
    outcome = rehearse("gke", changes=("nodes.max=8",))
    comment = markdown(outcome)
    assert (outcome.ok, outcome.phases[-1].name) == (False, "change")
    assert "List price per hour, at most: $340.15 → $679.38." in comment
    assert "from at most $339.23 to at most $678.46 an hour" in comment
    assert "set budget.hourly to 680" in comment


def test_change_that_names_the_new_amount_is_applied(rehearse: Callable[..., Outcome]) -> None:
    outcome = rehearse("gke", changes=("nodes.max=8", "budget.hourly=680"))
    assert outcome.ok
    assert "List price per hour, at most: $340.15 → $679.38." in markdown(outcome)
