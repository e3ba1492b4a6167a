"""The spec of a RayCluster, and how Ray's autoscaler reads it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.gke.stack import ray_args
from infra.gke.storage import gcs_folder
from infra.kubernetes.ray_cluster import ray_cluster_spec
from tests.unit.stacks import gke


def spec_of(changes: dict[str, Any], bucket: str | None = None) -> dict[str, Any]:
    settings = gke(changes)
    folder = gcs_folder(bucket, "/bucket") if bucket else None
    return ray_cluster_spec(replace(ray_args(settings, "a3u-ray"), folder=folder))


def variables(spec: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item.get("value", "") for item in spec["autoscalerOptions"]["env"]}


def test_autoscaler_reads_one_group_of_whole_nodes_from_zero() -> None:
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

    spec = spec_of({"nodes.max": 4})
    seen = _derive_autoscaling_config_from_ray_cr({"metadata": {"name": "a3u-ray", "namespace": "ray"}, "spec": spec})
    group = seen["available_node_types"]["gpu-group"]
    assert (group["min_workers"], group["max_workers"]) == (0, 4)
    assert group["resources"]["GPU"] == 8
    assert group["resources"]["CPU"] == 220
    assert group["idle_timeout_s"] == 900
    head = seen["available_node_types"]["headgroup"]
    assert head["resources"]["CPU"] == 0
    assert "GPU" not in head["resources"]


@pytest.mark.parametrize(("capacity", "hours"), [("flex-start", 168), ("spot", 168), ("reservation", 1)])
def test_pod_waits_as_long_as_its_capacity_may_take(capacity: str, hours: int) -> None:
    reservation = {"nodes.reservation": "mine"} if capacity == "reservation" else {}
    spec = spec_of({"nodes.capacity": capacity, **reservation})
    assert variables(spec)["RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S"] == str(3600 * hours)
    head = spec["headGroupSpec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "value": str(3600 * hours)} in head


def test_worker_has_its_image_in_a_variable() -> None:
    [container] = spec_of({})["workerGroupSpecs"][0]["template"]["spec"]["containers"]
    assert {"name": "RDMA_RAY_IMAGE", "value": container["image"]} in container["env"]


def test_longer_wait_of_capacity_and_fallback_counts() -> None:
    spec = spec_of(
        {"nodes.capacity": "reservation", "nodes.reservation": "mine", "computeClass": True, "nodes.fallback": "spot"}
    )
    assert variables(spec)["RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S"] == str(3600 * 168)


def test_bucket_is_mounted_on_head_and_workers() -> None:
    spec = spec_of({}, bucket="data")
    for template in (spec["headGroupSpec"]["template"], spec["workerGroupSpecs"][0]["template"]):
        assert template["metadata"]["annotations"]["gke-gcsfuse/volumes"] == "true"
        (volume,) = (volume for volume in template["spec"]["volumes"] if volume["name"] == "shared")
        assert volume["csi"]["volumeAttributes"]["bucketName"] == "data"
        assert {"name": "shared", "mountPath": "/bucket"} in template["spec"]["containers"][0]["volumeMounts"]


def test_nothing_is_mounted_without_a_bucket() -> None:
    assert "gcsfuse" not in str(spec_of({}))


def test_every_mount_has_a_volume() -> None:
    for changes in ({}, {"fabric": "dranet"}, {"fabric": "managed-dranet"}):
        spec = spec_of(changes, bucket="data")
        for template in (spec["headGroupSpec"]["template"], spec["workerGroupSpecs"][0]["template"]):
            volumes = [volume["name"] for volume in template["spec"]["volumes"]]
            mounts = [mount["name"] for mount in template["spec"]["containers"][0]["volumeMounts"]]
            assert sorted(volumes) == sorted(set(volumes))
            assert set(mounts) <= set(volumes)


def test_workers_source_the_environment_of_the_plugin() -> None:
    worker = spec_of({})["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]
    assert worker["command"] == ["source /usr/local/gib/scripts/set_nccl_env.sh"]


def test_user_of_rays_images_can_write_to_the_bucket() -> None:
    """Seen in real pods (tests/pods): user 1000 cannot write a checkpoint to a mount that belongs to root."""
    pods = spec_of({}, bucket="mine")
    for group in (pods["headGroupSpec"], *pods["workerGroupSpecs"]):
        [volume] = [each for each in group["template"]["spec"]["volumes"] if each["name"] == "shared"]
        options = volume["csi"]["volumeAttributes"]["mountOptions"].split(",")
        assert {"file-mode=777", "dir-mode=777"} <= set(options)
