"""A healthy stack has no finding, and every check has run or does not apply."""

from __future__ import annotations

import pytest

from tests.kubernetes.stack_objects import stacks
from tests.workloads.doctor import ray_faults, states
from workloads.doctor.diagnosis import diagnose


def test_local() -> None:
    found = diagnose(states.local())
    assert (found.findings, found.skipped, found.exit_code) == ([], {}, 0)


# Every stack file, and what no stack file has.
NAMES = [name for name, _, _ in stacks() if "," not in name]
NAMES += ["gke, Indexed Job", "gke, RayJob", "eks, queued"]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", NAMES)
def test_cloud(name: str, workers: int) -> None:
    found = diagnose(states.cloud(name, workers))
    assert (found.findings, found.skipped, found.exit_code) == ([], {}, 0)


def test_a_request_that_the_autoscaler_meets_is_no_fault() -> None:
    """Ray finds it infeasible until the first node is there."""
    state = states.cloud("gke", 0)
    ray_faults.group("INFEASIBLE", {"GPU": 8.0}, age_s=20)(state)
    assert diagnose(state).findings == []
