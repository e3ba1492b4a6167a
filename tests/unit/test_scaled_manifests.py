"""Scaled manifests of a rehearsal of depth `pods`: what is sent, and that scaling is no difference."""

from __future__ import annotations

import json
from pathlib import Path

from infra.catalog.pins import RAY_API
from rehearsal.clouds.kind import Json
from rehearsal.clouds.state import State
from rehearsal.cluster.scaled import (
    CHANGES,
    SMALL,
    ScaledManifests,
    as_written,
    from_setting,
    scaled_manifest,
    to_setting,
)
from rehearsal.cluster.scaling import Scale

JOB = "kubernetes:ray.io/v1:RayJob"
SCALE = Scale(shared=Path("/shared"), seconds={"idleTimeoutSeconds": 20})
BENCHMARK = {"ops": ["all_reduce"], "nodes": 4, "per_node": 8, "use_gpu": True, "sizes": [2**30], "target": "gke"}


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


def ray_job(entrypoint: str) -> Json:
    return {
        "apiVersion": RAY_API,
        "kind": "RayJob",
        "metadata": {"name": "run"},
        "spec": {"entrypoint": entrypoint},
    }


def fitting(folder: Path, scale: Scale | None = SCALE) -> tuple[ScaledManifests, State]:
    state = State(folder / "clouds.sqlite")
    return ScaledManifests(state, scale), state


def test_sent_manifest_is_scaled_and_recorded_once(tmp_path: Path) -> None:
    fit, state = fitting(tmp_path)
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


def test_manifest_without_scale_is_unchanged(tmp_path: Path) -> None:
    fit, state = fitting(tmp_path, None)
    assert fit.body(cluster()) == cluster()
    assert fit.inputs("kubernetes:ray.io/v1:RayCluster", cluster()) == cluster()
    with state.transaction() as view:
        assert view.setting(CHANGES) is None


def test_scaled_object_reads_as_written_except_drift(tmp_path: Path) -> None:
    fit, _ = fitting(tmp_path)
    type_ = "kubernetes:ray.io/v1:RayCluster"
    live = fit.body(cluster())
    live["status"] = {"state": "ready"}
    assert fit.shown(type_, live, cluster()) == cluster()
    live["spec"]["workerGroupSpecs"][0]["groupName"] = "theirs"
    assert fit.shown(type_, live, cluster()) == cluster(groupName="theirs")


def test_sizes_beyond_scale_are_sent_identically(tmp_path: Path) -> None:
    """So an update of only scaled values changes nothing here, as the run's list of changes shows."""
    fit, _ = fitting(tmp_path)
    type_ = "kubernetes:ray.io/v1:RayCluster"
    assert fit.inputs(type_, cluster("220")) == fit.inputs(type_, cluster("100"))
    assert fit.inputs(type_, cluster("220")) != fit.inputs(type_, cluster("250m"))


def test_drifted_value_is_shown_unscaled() -> None:
    assert as_written({"a": 1, "b": [1, 2]}, {"a": 1, "b": [1, 2]}, {"a": 9, "b": [9]}) == {"a": 9, "b": [9]}
    assert as_written({"a": 5, "b": 1}, {"a": 1, "b": 1}, {"a": 9, "b": 9}) == {"a": 5, "b": 9}
    assert as_written([1, 2, 3], [1, 2], [9, 9]) == [1, 2, 3]


def test_benchmark_is_reduced_and_reported() -> None:
    made, changes = scaled_manifest(ray_job(f"python -m workloads.nccl.driver '{json.dumps(BENCHMARK)}'"), SCALE)
    spec = json.loads(made["spec"]["entrypoint"].partition("'")[2].rpartition("'")[0])
    assert spec == {**BENCHMARK, **SMALL}
    assert "RayJob run: the benchmark's use_gpu True -> False" in changes
    assert len(changes) == len(SMALL)


def test_other_entry_point_is_unchanged() -> None:
    made, changes = scaled_manifest(ray_job("python train.py"), SCALE)
    assert (made, changes) == (ray_job("python train.py"), [])


def test_scale_round_trips_through_state() -> None:
    assert from_setting(json.loads(json.dumps(to_setting(SCALE)))) == SCALE
    assert from_setting(to_setting(Scale())) == Scale()
    assert from_setting(None) is None
