"""Scaled manifests: which values change, which stay, and that every change is reported."""

from __future__ import annotations

import ast
import copy
import json
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.pins import RAY_API
from infra.gke.workload import ray_args as gke_args
from infra.kubernetes.ray_cluster import ray_job_spec
from infra.outputs import JOB_STACK, Outputs
from rehearsal.clouds.kubernetes.quantities import amount
from rehearsal.cluster.pod_phases import addresses_in, gang_program
from rehearsal.cluster.scaling import (
    CHANGES,
    Scale,
    ScaledManifests,
    as_written,
    scaled,
)
from rehearsal.engine.kind import Json
from rehearsal.engine.state import State
from tests.kubernetes import stack_objects
from tests.unit.stacks import gke

SCALE = Scale(shared=Path("/shared"))
CUT = ("cpu", "memory", "ephemeral-storage")


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Return every scalar value by its path."""
    if not isinstance(value, dict | list):
        return {path: value}
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    return {leaf: its for key, inner in parts for leaf, its in leaves(inner, f"{path}/{key}").items()}


@pytest.mark.parametrize("stack", ["gke", "gke, RayJob", "eks, Indexed Job"])
def test_only_quantities_are_scaled_and_reported(stack: str) -> None:
    for body in stack_objects.of(stack):
        before = copy.deepcopy(body)
        made, changes = scaled(body, Scale())
        assert body == before
        old, new = leaves(before), leaves(made)
        assert old.keys() == new.keys()
        differing = [path for path in old if old[path] != new[path]]
        assert len(changes) == len(differing)
        described = [path for path in differing if path.endswith("/value")]
        assert len(described) == sum(JOB_STACK in change for change in changes)
        for path in [path for path in differing if path not in described]:
            assert path.rsplit("/", 1)[1] in CUT
            assert amount(new[path]) < amount(old[path])


def test_device_claims_are_removed_and_reported() -> None:
    container = {"name": "main", "resources": {"claims": [{"name": "nics"}], "limits": {"nvidia.com/gpu": "8"}}}
    spec = {"containers": [container], "resourceClaims": [{"name": "nics", "resourceClaimTemplateName": "all-rdma"}]}
    body = {"kind": "Job", "metadata": {"name": "run"}, "spec": {"template": {"spec": spec}}}
    made, changes = scaled(body, SCALE)
    pod = made["spec"]["template"]["spec"]
    assert pod == {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}
    assert changes == ["Job run: pod: resource claim nics left out, since there is no driver here"]


def test_cloud_folder_becomes_local_folder() -> None:
    folder = {"hostPath": {"path": "/shared", "type": "Directory"}}
    claim = {"name": "claim", "persistentVolumeClaim": {"claimName": "shared"}}
    bucket = {"name": "bucket", "csi": {"driver": "gcsfuse.csi.storage.gke.io"}}
    pod = {"containers": [{"name": "main"}], "volumes": [claim, bucket]}
    lustre = {"storageClassName": "", "mountOptions": ["flock"], "csi": {"driver": "fsx.csi.aws.com"}}
    for kind, spec, wanted in (
        ("Pod", pod, pod | {"volumes": [claim, {"name": "bucket", **folder}]}),
        ("PersistentVolume", lustre, {"storageClassName": "", **folder}),
        ("ValidatingAdmissionPolicyBinding", {"validationActions": ["Deny"]}, {"validationActions": ["Audit"]}),
    ):
        made, [line] = scaled({"kind": kind, "metadata": {"name": "one"}, "spec": spec}, SCALE)
        assert made["spec"] == wanted
        assert "the folder /shared of this machine" in line


def test_times_are_scaled_by_name_at_any_depth() -> None:
    name = "RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S"
    cluster = next(body for body in stack_objects.of("gke") if body["kind"] == "RayCluster")
    made, changes = scaled(cluster, Scale(seconds={name: 30, "idleTimeoutSeconds": 10}))
    assert {"name": name, "value": "30"} in made["spec"]["autoscalerOptions"]["env"]
    assert made["spec"]["autoscalerOptions"]["idleTimeoutSeconds"] == 10
    assert made["spec"]["workerGroupSpecs"][0]["idleTimeoutSeconds"] == 10
    assert sum("604800 -> 30" in line for line in changes) == 1


SHORT = Scale(shared=Path("/shared"), seconds={"idleTimeoutSeconds": 20})


def cluster(cpus: str = "220", **more: object) -> Json:
    """Return the inputs of a RayCluster with one group."""
    resources = {"requests": {"cpu": cpus, "nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"}}
    worker = {"name": "ray-worker", "image": "ray", "resources": resources}
    group = {"groupName": "gpu", "idleTimeoutSeconds": 900, "template": {"spec": {"containers": [worker]}}, **more}
    return {
        "apiVersion": RAY_API,
        "kind": "RayCluster",
        "metadata": {"name": "ray", "namespace": "ray"},
        "spec": {"workerGroupSpecs": [group]},
    }


def test_sent_manifest_is_scaled_and_recorded_once(tmp_path: Path) -> None:
    state = State(tmp_path / "clouds.sqlite")
    fit = ScaledManifests(state, SHORT)
    for _ in range(2):
        sent = fit.body(cluster())
    group = sent["spec"]["workerGroupSpecs"][0]
    assert group["idleTimeoutSeconds"] == 20
    assert group["template"]["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "500m", "nvidia.com/gpu": "8"},
        "limits": {"nvidia.com/gpu": "8"},
    }
    with state.transaction() as view:
        changes = view.setting(CHANGES)
    assert len(changes) == len(set(changes)) == 2
    assert any("cpu 220 -> 500m" in change for change in changes)


def test_scaled_object_reads_as_written_except_drift(tmp_path: Path) -> None:
    fit = ScaledManifests(State(tmp_path / "clouds.sqlite"), SHORT)
    type_ = "kubernetes:ray.io/v1:RayCluster"
    live = fit.body(cluster())
    live["status"] = {"state": "ready"}
    assert fit.shown(type_, live, cluster()) == cluster()
    live["spec"]["workerGroupSpecs"][0]["groupName"] = "theirs"
    assert fit.shown(type_, live, cluster()) == cluster(groupName="theirs")


def test_namespace_of_that_folder_is_shown_with_its_level(tmp_path: Path) -> None:
    """The level `baseline` admits no folder of a node; an administrator's change of it is a difference."""
    fit = ScaledManifests(State(tmp_path / "clouds.sqlite"), SCALE)
    type_, level = "kubernetes:core/v1:Namespace", "pod-security.kubernetes.io/enforce"
    asked: dict[str, Any] = {"metadata": {"name": "ray", "labels": {level: "baseline"}}}
    live = fit.body({"apiVersion": "v1", "kind": "Namespace", **asked})
    assert live["metadata"]["labels"] == {level: "privileged"}
    assert fit.shown(type_, live, asked) == asked
    live["metadata"]["labels"][level] = "restricted"
    assert fit.shown(type_, live, asked)["metadata"]["labels"] == {level: "restricted"}


def test_drifted_value_is_shown_unscaled() -> None:
    assert as_written({"a": 1, "b": [1, 2]}, {"a": 1, "b": [1, 2]}, {"a": 9, "b": [9]}) == {"a": 9, "b": [9]}
    assert as_written({"a": 5, "b": 1}, {"a": 1, "b": 1}, {"a": 9, "b": 9}) == {"a": 5, "b": 9}
    assert as_written([1, 2, 3], [1, 2], [9, 9]) == [1, 2, 3]


def test_entry_point_is_informed_that_its_nodes_have_no_gpus() -> None:
    """Else its benchmark would use NCCL, and be judged by the machine's bandwidth."""
    args = gke_args(gke({"ray.mode": "job", "ray.entrypoint": "rdma-ray bench nccl"}), "run")
    job = {"kind": "RayJob", "metadata": {"name": "run"}, "spec": ray_job_spec(args)}
    made, changes = scaled(job, SHORT)
    (head,) = made["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
    (said,) = [variable["value"] for variable in head["env"] if variable["name"] == JOB_STACK]
    stack = Outputs.model_validate_json(said)
    assert (stack.machine, stack.nodes.slots_per_node, stack.nodes.default_gang) == (None, 1, 2)
    (line,) = [change for change in changes if JOB_STACK in change]
    assert line == f"RayJob run: head, container ray-head: {JOB_STACK} has no machine type, no GPU and 1 CPU per node"


def test_scale_round_trips_through_state() -> None:
    assert Scale.of(json.loads(json.dumps(SHORT.setting))) == SHORT
    assert Scale.of(Scale().setting) == Scale()


def test_program_requests_whole_nodes() -> None:
    program = gang_program(2, 8)
    ast.parse(program)
    assert "nodes, share = 2, {'GPU': 8}" in program
    assert 'strategy="STRICT_SPREAD"' in program
    assert "{'CPU': 1}" in gang_program(1, 0)


def test_addresses_are_read_from_the_program_and_not_from_the_command() -> None:
    assert addresses_in("2026-11-22 INFO begun\nADDRESSES 10.0.0.1 10.0.0.2\nover\n") == ["10.0.0.1", "10.0.0.2"]
    assert addresses_in("Running entrypoint: print ADDRESSES 10.0.0.1\n") == []
