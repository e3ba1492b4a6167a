"""A healthy stack has no finding. Each planted fault is named by its cause, place and cure, and nothing else is."""

from __future__ import annotations

import pytest

from infra.catalog.machines import CATALOG
from tests.kubernetes.stack_objects import stacks
from tests.workloads.doctor import cluster_faults, kubernetes_faults, ray_faults, states, workload_faults
from tests.workloads.doctor.fault import Fault
from workloads.doctor.causes import CAUSES, MOUNTING
from workloads.doctor.diagnosis import CHECKS, diagnose
from workloads.doctor.ended import ENDS
from workloads.doctor.pods import STARTS
from workloads.exits import Exit

FAULTS = [*kubernetes_faults.FAULTS, *cluster_faults.FAULTS, *workload_faults.FAULTS, *ray_faults.FAULTS]


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


def test_infiniband_on_slurm() -> None:
    """NCCL needs no plugin, a port may be unused, and the first node has ranks as well."""
    local, nic = states.local(), states.nic(0, CATALOG["a3-ultragpu-8g"])
    fabric = local.outputs.fabric.model_copy(update={"transport": "ib"})
    outputs = local.outputs.model_copy(update={"target": "slurm", "fabric": fabric})
    nics = [nic, nic.model_copy(update={"name": "mlx5_1", "state": "DOWN"})]
    probes = [each.model_copy(update={"memlock": -1, "shm": 2**34, "nics": nics}) for each in local.probes]
    state = local.model_copy(update={"outputs": outputs, "probes": probes})
    assert diagnose(state).findings == []
    state.probes[0] = probes[0].model_copy(update={"memlock": 8 * 2**20})
    [found] = diagnose(state).findings
    assert (found.check, found.where) == ("memlock", "Ray node 127.0.0.2 (host-0)")
    assert "slurm.conf" in found.cure
    efa = outputs.model_copy(update={"fabric": fabric.model_copy(update={"transport": "efa"})})
    assert "nic-ports" in {each.check for each in diagnose(state.model_copy(update={"outputs": efa})).findings}


def test_a_request_that_the_autoscaler_meets_is_no_fault() -> None:
    """Ray finds it infeasible until the first node is there."""
    state = states.cloud("gke", 0)
    ray_faults.group("INFEASIBLE", {"GPU": 8.0}, age_s=20)(state)
    assert diagnose(state).findings == []


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_fault_is_named_alone(fault: Fault) -> None:
    state = fault.state()
    fault.plant(state)
    found = diagnose(state)
    assert [(each.check, each.where) for each in found.findings] == [(fault.check, fault.where)]
    (finding,) = found.findings
    assert fault.cause in finding.cause
    assert fault.cure in finding.cure
    assert found.exit_code == Exit.BELOW


def test_every_check_and_cause_has_a_planted_fault() -> None:
    assert {fault.check for fault in FAULTS} == {check.name for check in CHECKS}
    of_pods = [fault.cause for fault in FAULTS if fault.check in ("pods", "ended-pods")]
    texts = [cause.text for cause in (*CAUSES, *MOUNTING, *ENDS)] + [text for _, text, _ in STARTS.values()]
    assert [text for text in texts if not any(cause in text for cause in of_pods)] == []


def test_what_cannot_be_read_is_not_a_pass() -> None:
    state = states.local()
    del state.ray["jobs"]
    state.unknown["ray jobs"] = "timed out"
    state.ray["summary"] = [{"raylet": {"isHeadNode": True}, "disk": "full"}]
    found = diagnose(state)
    assert (found.findings, found.exit_code) == ([], Exit.ERROR)
    assert found.skipped["jobs"] == "ray jobs: timed out"
    assert "not as expected" in found.skipped["head"]
    assert not {"jobs", "head"} & {*found.passed}
