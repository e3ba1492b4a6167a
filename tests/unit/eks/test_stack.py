"""Environment of Ray's pods on EKS: no obsolete variable, for any machine; the provider's region."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from pulumi import ResourceHookArgs

from infra.catalog.machines import EKS_CATALOG
from infra.eks.node_groups import keep_size_within_limits
from infra.eks.pod import OBSOLETE
from infra.eks.ray import ray_args
from infra.eks.stack import region_problems
from infra.kubernetes.indexed_job import job_spec
from infra.kubernetes.ray_cluster import ray_cluster_spec
from infra.running_nodes import RunningNodesError, refuse_replacement
from tests.unit.stacks import eks

SET = {"FI_EFA_USE_HUGE_PAGE": "0", "NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"}
"""Variables of a worker in addition to Ray's own."""
JOB = {"ray.mode": "indexed-job", "ray.entrypoint": "python /app/train.py"}


def environment(template: dict[str, Any]) -> dict[str, str]:
    container = template["template"]["spec"]["containers"][0]
    names = [item["name"] for item in container["env"]]
    assert len(names) == len(set(names))
    return {item["name"]: item.get("value", "") for item in container["env"]}


@pytest.mark.parametrize("fabric", ["efa", "efa-dranet"])
@pytest.mark.parametrize("machine", EKS_CATALOG)
def test_pods_have_no_obsolete_variable(machine: str, fabric: str) -> None:
    changes = {"nodes.machine": machine, "fabric": fabric, "nodes.min": 1}
    spec = ray_cluster_spec(ray_args(eks(changes), "p5-ray"))
    worker, head = environment(spec["workerGroupSpecs"][0]), environment(spec["headGroupSpec"])
    assert {name: value for name, value in worker.items() if not name.startswith(("RAY_", "RDMA_RAY_"))} == SET
    assert {name: value for name, value in head.items() if not name.startswith("RAY_")} == {
        "NVIDIA_VISIBLE_DEVICES": "void"
    }
    job = environment(job_spec(ray_args(eks(changes | JOB), "p5-ray")))
    assert SET.items() <= job.items()
    assert set(OBSOLETE).isdisjoint({*worker, *head, *job})


def test_region_must_be_that_of_the_zone() -> None:
    settings = eks()
    assert region_problems(settings, "us-east-1") == []
    assert "aws:region us-east-1" in region_problems(settings, None)[0].fix
    (problem,) = region_problems(settings, "us-west-2")
    assert problem.settings == ("aws:region", "location")
    assert region_problems(eks({"location": "use1-az1"}), "us-west-2") == []


def hook_args(before: dict[str, Any], now: dict[str, Any], **outputs: Any) -> ResourceHookArgs:
    return ResourceHookArgs(
        urn="urn:gpu", id="gpu", name="gpu", type="group", old_inputs=before, new_inputs=now, old_outputs=outputs
    )


@pytest.mark.parametrize(
    ("limits", "running", "refused"), [((0, 4), 2, False), ((0, 2), 2, False), ((0, 1), 2, True), ((3, 4), 2, True)]
)
def test_limits_that_exclude_the_running_nodes_are_refused(
    limits: tuple[int, int], running: int, *, refused: bool
) -> None:
    scaling = {"minSize": limits[0], "maxSize": limits[1], "desiredSize": 0}
    args = hook_args({}, {"scalingConfig": scaling}, scalingConfig={"desiredSize": running})
    with pytest.raises(RunningNodesError, match=f"has {running} nodes") if refused else nullcontext():
        keep_size_within_limits(args)


@pytest.mark.parametrize(("before", "refused"), [({}, False), ({"version": "1.34"}, True)])
def test_version_that_the_group_has_does_not_replace_its_nodes(before: dict[str, Any], *, refused: bool) -> None:
    """A group of an earlier version of this project has no version among its inputs."""
    args = hook_args(before, {"version": "1.35"}, version="1.35")
    with pytest.raises(RunningNodesError, match="running nodes of gpu") if refused else nullcontext():
        refuse_replacement(args, "gpu", nodes=lambda _: 2, recreates=lambda each: each.get("version"))
