"""Teams of a running stack on eks: what a change of them does, and that nothing is left. tests/kubernetes has gke."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from infra.outputs import Outputs
from infra.settings import from_stack_file
from rehearsal.engine.commands import Engine
from rehearsal.engine.workspace import Workspace
from rehearsal.fork_server import ForkServer
from rehearsal.graph import Graph
from rehearsal.invariants.invariant import Stack
from rehearsal.invariants.violations import violations
from rehearsal.users_cluster import prepare
from tests.rehearsal.test_settings import outputs
from tests.unit.stacks import written

VISION, NLP = {"name": "vision", "quota": 2, "group": "vision@example.com"}, {"name": "nlp", "quota": 1}
SHARED = {
    "queue": "kueue",
    "nodes.max": 8,
    "nodes.maxHours": 24,
    "ray.maxWorkers": 2,
    "cluster.systemNodes": 5,
    "monitoring": "annotations",
    "ray.check": "quick",
    "ray.policies": ["arn:aws:iam::111122223333:policy/checkpoints"],
    "protect": False,
}


def planned(engine: Engine, file: Path, *teams: dict[str, Any]) -> dict[str, set[str]]:
    """Return the names of the resources that `up` changes with these teams, by what it does; without those that stay.

    The engine keeps its salt in the stack file, so only the teams are written.
    """
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    content["config"]["rdma-ray:teams"] = list(teams)
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    found: dict[str, set[str]] = {}
    for step in engine.planned():
        if step["op"] not in ("same", "read", "refresh"):
            found.setdefault(step["op"], set()).add(step["urn"].rpartition("::")[2])
    return found


def test_teams_change_and_end_alone(fork_server: ForkServer, tmp_path: Path) -> None:
    """A quota changes ClusterQueues in place, and replaces the RayCluster of this team, as another size does."""
    given = written("eks", {**SHARED, "teams": [VISION, NLP]}, tmp_path)
    users = partial(prepare, settings=from_stack_file(given))
    work = Workspace(tmp_path / "rehearsal", fork_server.bin)
    engine = Engine.deployed(work, "eks", given, users)
    exported = json.loads(engine.must("stack", "export", "--show-secrets", stack=True).text)["deployment"]
    assert violations(Stack(Graph.from_deployment(exported), from_stack_file(given))) == []
    teams = Outputs.model_validate(outputs(exported)).teams or {}
    assert {name: (team.namespace, team.nodes.max) for name, team in teams.items()} == {
        "vision": ("vision", 2),
        "nlp": ("nlp", 1),
    }
    assert len({team.ray.token.get_secret_value() for team in teams.values()}) == 2
    file = work.folder / given.name
    assert planned(engine, file, VISION, NLP) == {}
    assert planned(engine, file, {**VISION, "quota": 3}, NLP) == {
        "update": {"queue-cluster-queue", "queue-of-team-vision"},
        "replace": {"team-vision", "team-vision-outputs"},
    }
    removed = planned(engine, file, VISION)
    assert removed["update"] == {"queue-cluster-queue", "kuberay"}
    assert {name.removeprefix("queue-of-").removeprefix("team-").split("-")[0] for name in removed["delete"]} == {"nlp"}
    assert removed.keys() == {"update", "delete"}
    before = engine.objects()
    assert engine.up().ok
    gone = before - engine.objects()
    assert ("kubernetes:core/v1:Namespace", "nlp") in gone
    assert {name for _, name in gone if "nlp" not in name} == set()
    assert engine.destroy().ok
    assert engine.objects() == frozenset()
