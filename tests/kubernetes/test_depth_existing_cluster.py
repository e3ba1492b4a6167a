"""A stack in a cluster or a network that the user has, at depth `cluster`: its objects are in a real API server.

There they are beside the user's, which are the same afterwards. In a user's cluster they are deleted one by one, with
real finalizers and garbage collection, and the preview's questions get the answers of a real API server.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rehearsal.engine.workspace import Workspace
from rehearsal.fork_server import ForkServer
from rehearsal.scenario import RehearsalRequest, Scenario
from tests.rehearsal.test_existing_cluster import stack_file as in_cluster
from tests.rehearsal.test_users_network import stack_file as in_network


@pytest.mark.parametrize(
    ("stack", "file"),
    [("gke-dranet", in_cluster), ("eks", in_cluster), ("gke-dws", in_network)],
    ids=["gke-cluster", "eks-cluster", "gke-network"],
)
def test_what_the_user_has_is_as_before(
    stack: str, file: Callable[[str, Path], Path], fork_server: ForkServer, tmp_path: Path
) -> None:
    """After up, workers that come and go, empty previews after drift, and destroy.

    What it finds that depth `quick` does not: an object that the API server adds to, a finalizer that holds the
    namespace, and a label that the stack would take from an object of the user's.
    """
    request = RehearsalRequest(stack=stack, file=file(stack, tmp_path), depth="cluster")
    workspace = Workspace(tmp_path / "w", fork_server.bin)
    outcome = Scenario(request, workspace, lambda _name, _phase: None).run()
    asked = {phase.name for phase in outcome.phases}
    assert {"workers scale up", "preview is empty after drift", "destroy"} <= asked, asked
    assert outcome.ok, "\n".join([*(phase.said for phase in outcome.phases if not phase.ok), *outcome.leftovers])
    assert outcome.leftovers == ()
