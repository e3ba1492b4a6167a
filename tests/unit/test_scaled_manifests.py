"""What a rehearsal of depth `pods` sends instead of the program's manifests, and that it is no difference to them."""

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
    """The inputs of a RayCluster with one group."""
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


def test_what_is_sent_is_scaled_and_noted_once(tmp_path: Path) -> None:
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


def test_without_a_scale_everything_is_as_the_program_wrote_it(tmp_path: Path) -> None:
    fit, state = fitting(tmp_path, None)
    assert fit.body(cluster()) == cluster()
    assert fit.inputs("kubernetes:ray.io/v1:RayCluster", cluster()) == cluster()
    with state.transaction() as view:
        assert view.setting(CHANGES) is None


def test_a_scaled_object_reads_as_the_program_wrote_it_but_for_what_somebody_changed(tmp_path: Path) -> None:
    fit, _ = fitting(tmp_path)
    type_ = "kubernetes:ray.io/v1:RayCluster"
    live = fit.body(cluster())
    live["status"] = {"state": "ready"}
    assert fit.shown(type_, live, cluster()) == cluster()
    live["spec"]["workerGroupSpecs"][0]["groupName"] = "theirs"
    assert fit.shown(type_, live, cluster()) == cluster(groupName="theirs")


def test_inputs_of_two_sizes_that_are_both_too_large_are_sent_alike(tmp_path: Path) -> None:
    """So an update that only changes what is scaled away changes nothing here, as the run's list of changes shows."""
    fit, _ = fitting(tmp_path)
    type_ = "kubernetes:ray.io/v1:RayCluster"
    assert fit.inputs(type_, cluster("220")) == fit.inputs(type_, cluster("100"))
    assert fit.inputs(type_, cluster("220")) != fit.inputs(type_, cluster("250m"))


def test_what_is_there_in_place_of_what_was_sent_is_told_as_it_is() -> None:
    assert as_written({"a": 1, "b": [1, 2]}, {"a": 1, "b": [1, 2]}, {"a": 9, "b": [9]}) == {"a": 9, "b": [9]}
    assert as_written({"a": 5, "b": 1}, {"a": 1, "b": 1}, {"a": 9, "b": 9}) == {"a": 5, "b": 9}
    assert as_written([1, 2, 3], [1, 2], [9, 9]) == [1, 2, 3]


def test_a_benchmark_is_made_small_enough_for_processors_and_says_so() -> None:
    made, changes = scaled_manifest(ray_job(f"python -m workloads.nccl.driver '{json.dumps(BENCHMARK)}'"), SCALE)
    told = json.loads(made["spec"]["entrypoint"].partition("'")[2].rpartition("'")[0])
    assert told == {**BENCHMARK, **SMALL}
    assert "RayJob run: the benchmark's use_gpu True -> False" in changes
    assert len(changes) == len(SMALL)


def test_another_entry_point_stays() -> None:
    made, changes = scaled_manifest(ray_job("python train.py"), SCALE)
    assert (made, changes) == (ray_job("python train.py"), [])


def test_a_scale_survives_its_way_through_the_world() -> None:
    assert from_setting(json.loads(json.dumps(to_setting(SCALE)))) == SCALE
    assert from_setting(to_setting(Scale())) == Scale()
    assert from_setting(None) is None
