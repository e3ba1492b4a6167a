"""A sample of `make test-matrix`: combinations that no stack file has."""

from __future__ import annotations

from pathlib import Path

import pytest

from rehearsal.engine.workspace import Workspace
from rehearsal.fork_server import ForkServer
from rehearsal.matrix import Cell, goes_up

A3U = "a3-ultragpu-8g"
SAMPLE = (
    # What cluster-toolkit's A3 Ultra example has since #6171, 2026-08-19, here by flex-start.
    Cell("gke", A3U, "flex-start", None, False, "managed-dranet", "none", "cluster"),
    # The open-source driver with a queue, on nodes of which one stays.
    Cell("gke", A3U, "spot", None, False, "dranet", "kueue", "cluster"),
    # Nodes that Kueue chooses by topology, for an Indexed Job.
    Cell("gke", A3U, "reservation", None, False, "multi-network", "kueue", "indexed-job"),
    # A queued Indexed Job with claims on AWS.
    Cell("eks", "p5en.48xlarge", "on-demand", None, False, "efa-dranet", "kueue", "indexed-job"),
)


@pytest.mark.parametrize("cell", SAMPLE, ids=str)
def test_combination_goes_up_and_keeps_its_invariants(cell: Cell, fork_server: ForkServer, tmp_path: Path) -> None:
    assert cell.problems() == ()
    assert goes_up(cell, Workspace(tmp_path / "matrix", fork_server.bin)) == []
