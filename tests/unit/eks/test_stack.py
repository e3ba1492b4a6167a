"""Environment of Ray's pods on EKS: no obsolete variable, for any machine; the provider's region."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi import ResourceHookArgs

from infra.catalog.fabrics import OBSOLETE
from infra.catalog.machines import EKS_CATALOG
from infra.eks.node_groups import keep_size_within_limits
from infra.eks.stack import provider_problems
from infra.eks.workload import ray_args
from infra.kubernetes.indexed_job import job_spec
from infra.kubernetes.ray_cluster import ray_cluster_spec
from infra.running_nodes import RunningNodesError, refuse_replacement
from infra.settings import SettingsError, from_stack_file
from tests.kubernetes.cloud_mocks import deployed
from tests.unit.stacks import EKS, changed, eks

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"

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


@pytest.mark.parametrize(
    ("location", "region"),
    [("us-east-1a", "us-west-2"), ("use1-az1", "us-west-2"), ("use1-az1", "us-east-2"), ("aps1-az1", "ap-southeast-1")],
)
def test_region_must_be_that_of_the_zone(location: str, region: str, tmp_path: Path) -> None:
    """The program reports it, and `plan`, with every other problem, where the file has the region."""
    (problem,) = provider_problems(eks({"location": location}), region)
    assert problem.settings == ("aws:region", "location")
    file = tmp_path / "Pulumi.mine.yaml"
    for more, count in (({}, 1), ({"nodes": {**EKS["nodes"], "min": 9}}, 2)):
        stack = {**EKS, "location": location, **more}
        config = {"aws:region": region, **{f"rdma-ray:{name}": value for name, value in stack.items()}}
        file.write_text(yaml.safe_dump({"config": config}))
        with pytest.raises(SettingsError) as caught:
            from_stack_file(file)
        assert len(caught.value.problems) == count
        assert caught.value.problems[-1] == problem


def test_region_of_the_zone_is_accepted(tmp_path: Path) -> None:
    settings = eks()
    assert provider_problems(settings, "us-east-1") == []
    assert provider_problems(eks({"location": "use1-az1"}), "us-east-1") == []
    assert "aws:region us-east-1" in provider_problems(settings, None)[0].fix
    file = tmp_path / "Pulumi.mine.yaml"
    for region in ({"aws:region": "us-east-1"}, {}, {"aws:region": {"secure": "v1:abc"}}):
        file.write_text(
            yaml.safe_dump({"config": {**region, **{f"rdma-ray:{name}": value for name, value in EKS.items()}}})
        )
        assert from_stack_file(file) == settings


@pytest.mark.parametrize(("capacity", "own"), [("on-demand", True), ("spot", True), ("reservation", False)])
def test_nodes_start_in_the_placement_group_of_the_stack_file(capacity: str, own: bool) -> None:
    """A reservation made inside a group can be used from that group only; otherwise the stack makes its group."""
    reserved = {"reservation": "cr-0123456789abcdef0"} if capacity == "reservation" else {}
    stack = changed(EKS, {f"nodes.{name}": value for name, value in {"capacity": capacity, **reserved}.items()})
    for group, wanted in (("training", {"groupName": "training"}), ("pg-0123456789abcdef0", None), (None, None)):
        made = deployed(
            changed(stack, {"nodes.placementGroup": group}), stack="demo", config={"aws:region": "us-east-1"}
        )
        (template,) = [one for one in made if one.type == TEMPLATE and one.name.startswith("gpu")]
        groups = [one for one in made if one.type == "aws:ec2/placementGroup:PlacementGroup"]
        if group is None:
            assert len(groups) == own
            assert (template.inputs.get("placement") == {"groupName": "demo-gpu"}) is own
        else:
            assert groups == []
            assert template.inputs["placement"] == (wanted or {"groupId": group})


def hook_args(before: dict[str, Any], now: dict[str, Any], name: str = "gpu", **outputs: Any) -> ResourceHookArgs:
    inputs = {"old_inputs": before, "new_inputs": now, "old_outputs": outputs}
    return ResourceHookArgs(urn=f"urn:{name}", id=name, name=name, type="group", **inputs)


@pytest.mark.parametrize(("group", "setting"), [("gpu", "nodes.min, nodes.max"), ("system", "cluster.systemNodes")])
@pytest.mark.parametrize(("limits", "refused"), [((0, 4), False), ((0, 2), False), ((0, 1), True), ((3, 4), True)])
def test_limits_that_exclude_the_running_nodes_are_refused(
    limits: tuple[int, int], group: str, setting: str, *, refused: bool
) -> None:
    scaling = {"minSize": limits[0], "maxSize": limits[1], "desiredSize": 0}
    args = hook_args({}, {"scalingConfig": scaling}, group, scalingConfig={"desiredSize": 2})
    with pytest.raises(RunningNodesError, match=rf"has 2 nodes.*\({setting}\)") if refused else nullcontext():
        keep_size_within_limits(args)


@pytest.mark.parametrize(("before", "refused"), [({}, False), ({"version": "2.0"}, True)])
def test_version_that_the_group_has_does_not_replace_its_nodes(before: dict[str, Any], *, refused: bool) -> None:
    """A group of an earlier version of this project has no version among its inputs."""
    args = hook_args(before, {"version": "2.1"}, version="2.1")
    with pytest.raises(RunningNodesError, match="running nodes of gpu") if refused else nullcontext():
        refuse_replacement(args, "gpu", nodes=lambda _: 2, recreates=lambda each: each.get("version"))
