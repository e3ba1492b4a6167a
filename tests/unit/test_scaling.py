"""Scaled manifests: which values change, which stay, and that every change is reported."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from rehearsal.cluster.scaling import Json, Scale, amount, bucket_mode, scaled
from tests.kubernetes import stack_objects

SCALE = Scale(cpus_asked=0.5, cpus=2, memory_gib=4, scratch_gib=1, shared=Path("/shared"))
CUT = ("cpu", "memory", "ephemeral-storage")


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Yield every scalar value with its path."""
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for key, inner in value.items():
            found |= leaves(inner, f"{path}/{key}")
        return found
    if isinstance(value, list):
        found = {}
        for index, inner in enumerate(value):
            found |= leaves(inner, f"{path}/{index}")
        return found
    return {path: value}


@pytest.mark.parametrize("stack", ["gke", "gke, RayJob", "eks, Indexed Job"])
def test_only_quantities_are_scaled_and_reported(stack: str) -> None:
    for body in stack_objects.of(stack):
        before = copy.deepcopy(body)
        made, changes = scaled(body, SCALE)
        assert body == before
        old, new = leaves(before), leaves(made)
        assert old.keys() == new.keys()
        differing = [path for path in old if old[path] != new[path]]
        assert all(path.rsplit("/", 1)[1] in CUT for path in differing)
        assert len(changes) == len(differing)
        for path in differing:
            assert amount(new[path]) < amount(old[path])


def test_device_claims_are_removed_and_reported() -> None:
    container = {"name": "main", "resources": {"claims": [{"name": "nics"}], "limits": {"nvidia.com/gpu": "8"}}}
    spec = {"containers": [container], "resourceClaims": [{"name": "nics", "resourceClaimTemplateName": "all-rdma"}]}
    body = {"kind": "Job", "metadata": {"name": "run"}, "spec": {"template": {"spec": spec}}}
    made, changes = scaled(body, SCALE)
    pod = made["spec"]["template"]["spec"]
    assert pod == {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}
    assert changes == ["Job run: pod: resource claim nics left out, since no driver is here"]


def test_gpus_and_nics_stay() -> None:
    job = next(body for body in stack_objects.of("eks, Indexed Job") if body["kind"] == "Job")
    [container] = scaled(job, SCALE)[0]["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {
        "cpu": "2",
        "memory": "4Gi",
        "nvidia.com/gpu": "8",
        "vpc.amazonaws.com/efa": "16",
    }


def test_cloud_folder_becomes_local_folder() -> None:
    claim = {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}
    bucket = {"name": "shared", "csi": {"driver": "gcsfuse.csi.storage.gke.io"}}
    for volume in (claim, bucket):
        pod = {"containers": [{"name": "main"}], "volumes": [volume, {"name": "logs", "emptyDir": {}}]}
        made, changes = scaled({"kind": "Pod", "metadata": {"name": "one"}, "spec": pod}, SCALE)
        assert made["spec"]["volumes"] == [
            {"name": "shared", "hostPath": {"path": "/shared", "type": "Directory"}},
            {"name": "logs", "emptyDir": {}},
        ]
        [line] = changes
        assert line.endswith("-> the folder /shared of this machine")


def test_bucket_folder_has_driver_mode() -> None:
    def cluster(**attributes: str) -> Json:
        volume = {"name": "shared", "csi": {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": attributes}}
        template = {"spec": {"containers": [{"name": "main"}], "volumes": [{"name": "logs", "emptyDir": {}}, volume]}}
        return {"kind": "RayCluster", "spec": {"headGroupSpec": {"template": template}}}

    assert bucket_mode(cluster(mountOptions="implicit-dirs,dir-mode=775")) == 0o775
    assert bucket_mode(cluster(mountOptions="implicit-dirs")) == bucket_mode(cluster()) == 0o755
    assert bucket_mode({"kind": "Namespace", "metadata": {"name": "ray"}}) is None


def test_times_are_scaled_by_name_at_any_depth() -> None:
    name = "RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S"
    cluster = next(body for body in stack_objects.of("gke") if body["kind"] == "RayCluster")
    made, changes = scaled(cluster, Scale(seconds={name: 30, "idleTimeoutSeconds": 10}))
    assert {"name": name, "value": "30"} in made["spec"]["autoscalerOptions"]["env"]
    assert made["spec"]["autoscalerOptions"]["idleTimeoutSeconds"] == 10
    assert made["spec"]["workerGroupSpecs"][0]["idleTimeoutSeconds"] == 10
    assert sum("604800 -> 30" in line for line in changes) == 1


def test_kubernetes_quantity_is_parsed() -> None:
    assert [amount(text) for text in ("500m", "2", 4, "2Gi", "1k", "0.5")] == [0.5, 2, 4, 2**31, 1000, 0.5]
    with pytest.raises(ValueError, match="'8 GPUs' is no quantity"):
        amount("8 GPUs")
