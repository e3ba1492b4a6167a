"""Teams of a running stack: what a change of them does, and that nothing is left of a team or of a stack."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from infra.settings import from_stack_file
from rehearsal.engine.commands import Engine
from rehearsal.engine.workspace import Workspace
from rehearsal.fork_server import ForkServer
from rehearsal.users_cluster import prepare
from tests.unit.stacks import written

VISION, NLP = {"name": "vision", "quota": 2, "group": "vision@example.com"}, {"name": "nlp", "quota": 1}
SHARED = {"queue": "kueue", "nodes.max": 8, "ray.maxWorkers": 2, "cluster.systemNodes": 3, "protect": False}


def steps(engine: Engine) -> Counter[str]:
    """Return what `up` would do to how many resources, without those that stay."""
    taken = [step for step in engine.planned() if step["op"] not in ("same", "read")]
    return Counter(f"{step['op']} {step['urn'].rpartition(':')[2]}" for step in taken)


@pytest.mark.parametrize("target", ["gke", "eks"])
def test_teams_change_and_end_alone(target: str, fork_server: ForkServer, tmp_path: Path) -> None:
    file = written(target, {**SHARED, "teams": [VISION, NLP]}, tmp_path)
    users = partial(prepare, settings=from_stack_file(file))
    engine = Engine.deployed(Workspace(tmp_path / "rehearsal", fork_server.bin), target, file, users)
    assert steps(engine) == Counter()
    written(target, {**SHARED, "teams": [{**VISION, "quota": 3}, NLP]}, tmp_path)
    engine.workspace.use(file)
    print("QUOTA", steps(engine))
    written(target, {**SHARED, "teams": [VISION]}, tmp_path)
    engine.workspace.use(file)
    print("REMOVED", steps(engine))
    assert engine.up().ok
    assert engine.destroy().ok
    print("LEFT", engine.objects())
