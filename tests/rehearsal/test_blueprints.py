"""Others' blueprints as stack files (docs/blueprints.md): each goes through its life on simulated clouds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.settings import from_stack_file
from rehearsal.engine.workspace import Workspace
from rehearsal.fork_server import ForkServer
from rehearsal.invariants.invariant import Stack, at
from rehearsal.invariants.placement import worker_pools
from rehearsal.scenario import RehearsalRequest, Scenario
from tests.unit.settings.test_published import FILES

SIZE = ("autoscaling.totalMinNodeCount", "autoscaling.totalMaxNodeCount")
DRIVER = "nodeConfig.guestAccelerators.0.gpuDriverInstallationConfig.gpuDriverVersion"
RESERVATION, FLEX_START, SPOT = (f"nodeConfig.{path}" for path in ("reservationAffinity.values.0", "flexStart", "spot"))
PLACEMENT, REPAIR = "placementPolicy.type", "management.autoRepair"
POOLS: Mapping[str, Mapping[str, Any]] = {
    "blueprints-0": {SIZE[0]: 2, SIZE[1]: 2, RESERVATION: "my-reservation", PLACEMENT: None, DRIVER: "DEFAULT"},
    "blueprints-1": {SIZE[0]: 0, SIZE[1]: 4, FLEX_START: True, PLACEMENT: None, REPAIR: False, DRIVER: "DEFAULT"},
    "blueprints-2": {SIZE[0]: 2, SIZE[1]: 2, RESERVATION: "my-reservation", PLACEMENT: None, DRIVER: "LATEST"},
    "blueprints-3": {SIZE[0]: 2, SIZE[1]: 2, SPOT: True, PLACEMENT: "COMPACT"},
    "blueprints-4": {"scalingConfig.minSize": 2, "scalingConfig.maxSize": 10, "capacityType": "ON_DEMAND"},
}
"""Inputs of each one's node pool, as in the blueprint but for what the page lists, in the order of the page."""


@pytest.mark.parametrize("stack", POOLS)
def test_blueprint_makes_the_same_pool_previews_empty_and_is_destroyed(
    stack: str, fork_server: ForkServer, tmp_path: Path
) -> None:
    file = tmp_path / f"Pulumi.{stack}.yaml"
    file.write_text(FILES[stack], encoding="utf-8")
    request, workspace = RehearsalRequest(stack=stack, file=file), Workspace(tmp_path / "w", fork_server.bin)
    outcome = Scenario(request, workspace, lambda _name, _phase: None).run()
    assert outcome.ok, [phase.said for phase in outcome.phases if not phase.ok]
    assert outcome.leftovers == ()
    (pool,) = worker_pools(Stack(outcome.graph, from_stack_file(file)))
    assert {path: at(pool.node, path) for path in POOLS[stack]} == POOLS[stack]
