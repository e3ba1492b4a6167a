"""Two rows of `make changes`, one per cloud: updates that would replace running nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rehearsal.changes import DOCUMENT, EDITS, Drill, Edit
from rehearsal.fork_server import ForkServer

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
