"""A stack in a cluster that the user has, at depth `cluster`: its objects are in a real API server beside the user's,
which are the same afterwards, and deleted one by one, with real finalizers and garbage collection."""

from __future__ import annotations

from pathlib import Path

import pytest

from rehearsal.engine.workspace import Workspace
from rehearsal.fork_server import ForkServer
from rehearsal.scenario import RehearsalRequest, Scenario
from tests.rehearsal.test_existing_cluster import stack_file


@pytest.mark.parametrize("stack", ["gke-dranet"])
def test_users_cluster_is_as_before(stack: str, fork_server: ForkServer, tmp_path: Path) -> None:
    request = RehearsalRequest(stack=stack, file=stack_file(stack, tmp_path), depth="cluster")
    outcome = Scenario(request, Workspace(tmp_path / "w", fork_server.bin), lambda _name, _phase: None).run()
    assert outcome.ok, "\n".join([*(phase.said for phase in outcome.phases if not phase.ok), *outcome.leftovers])
    assert outcome.leftovers == ()
