"""Init containers, sidecars and volumes of `ray.podFile` in Ray's pods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.existing.objects import pods
from infra.kubernetes.ray_cluster import ray_cluster_spec
from infra.kubernetes.workload_objects import every_object
from infra.plan import ray_args
from infra.settings import ClusterSettings, parse, pod_file
from infra.settings.pod_file import TAKEN
from tests.unit.stacks import EKS, GKE, KUBERNETES, changed, problems_of

STACKS = {"gke": GKE, "eks": EKS, "kubernetes": KUBERNETES}
MODES: dict[str, dict[str, Any]] = {
    "cluster": {},
    "job": {"ray.entrypoint": "python train.py"},
    "indexed-job": {"ray.entrypoint": "python train.py"},
    "service": {"service.application": "app:app", "service.deployment": "Model"},
}
SIDECAR = {"name": "logs", "image": "example/logs:1", "restartPolicy": "Always"}
FILE: dict[str, list[dict[str, Any]]] = {
    "initContainers": [SIDECAR | {"volumeMounts": [{"name": "ray-logs", "mountPath": "/tmp/ray"}]}],
    "volumes": [{"name": "cache", "emptyDir": {}}],
    "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder from which files are read."""
    monkeypatch.setattr(pod_file, "PROJECT", tmp_path)
    return tmp_path


def write(project: Path, content: object) -> None:
    (project / "pod.yaml").write_text(content if isinstance(content, str) else yaml.safe_dump(content))


def specs(stack: str, mode: str, changes: dict[str, Any]) -> Iterator[dict[str, Any]]:
    settings = parse(changed(STACKS[stack], {"ray.mode": mode, **MODES[mode], **changes}))
    assert isinstance(settings, ClusterSettings)
    args = ray_args(settings, "a-ray")
    yield from (pod["spec"] for pod in pods(args, every_object(args)))


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("mode", MODES)
def test_every_pod_of_ray_has_them_after_its_own(stack: str, mode: str, project: Path) -> None:
    write(project, FILE)
    plain, extended = ([*specs(stack, mode, changes)] for changes in ({}, {"ray.podFile": "pod.yaml"}))
    assert plain
    for before, after in zip(plain, extended, strict=True):
        assert after["initContainers"] == [*before.get("initContainers", []), *FILE["initContainers"]]
        assert [each for each in after["volumes"] if each not in before["volumes"]] == FILE["volumes"]
        old, new = before["containers"][0], after["containers"][0]
        assert [each for each in new["volumeMounts"] if each not in old["volumeMounts"]] == FILE["volumeMounts"]
        same = ("containers", "volumes", "initContainers")
        assert {k: v for k, v in after.items() if k not in same} == {k: v for k, v in before.items() if k not in same}


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("mode", MODES)
def test_names_of_the_stack_are_refused(stack: str, mode: str) -> None:
    added = {"ray.secrets": ["a=/secrets/a"], "ray.volumes": ["b=/b"]}
    for spec in specs(stack, mode, added):
        named = [*spec["containers"], *spec.get("initContainers", []), *spec["volumes"]]
        assert [each["name"] for each in named if not TAKEN.fullmatch(each["name"])] == []


def test_group_without_gpus_has_them(project: Path) -> None:
    write(project, FILE)
    settings = parse(changed(GKE, {"ray.cpuWorkers": 1, "ray.podFile": "pod.yaml"}))
    assert isinstance(settings, ClusterSettings)
    for group in ray_cluster_spec(ray_args(settings, "a-ray"))["workerGroupSpecs"]:
        assert group["template"]["spec"]["initContainers"][-len(FILE["initContainers"]) :] == FILE["initContainers"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a: [", "not YAML"),
        ("- a", "not a map of initContainers"),
        ({"containers": []}, "not a map of initContainers"),
        ({"volumes": [{"emptyDir": {}}]}, "volumes is not a list of maps with a name"),
        ({"volumes": {"name": "a"}}, "volumes is not a list"),
        ({"volumes": [{"name": "shm", "emptyDir": {}}]}, "already have a volume shm"),
        ({"initContainers": [SIDECAR, SIDECAR]}, "already have a container logs"),
        ({"initContainers": [SIDECAR | {"resources": {"requests": {"cpu": "1"}}}]}, "no node has room for both"),
        ({"volumeMounts": [{"name": "cache", "mountPath": "/usr/lib"}]}, "hides files of the image"),
        ("x" * (2**18 + 1), "larger than 256 KiB"),
        ("[" * 5000, "not YAML"),
    ],
)
def test_malformed_file_is_one_clear_problem(content: object, said: str, project: Path) -> None:
    write(project, content)
    [problem] = problems_of(changed(GKE, {"ray.podFile": "pod.yaml"}))
    assert problem.settings == ("ray.podFile",)
    assert said in problem.message


def test_file_is_inside_the_project(project: Path) -> None:
    (project / "link.yaml").symlink_to("/etc/hostname")
    for path, said in (
        ("../pod.yaml", "outside"),
        ("/etc/hostname", "outside"),
        ("link.yaml", "outside"),
        ("no", "No such"),
    ):
        [problem] = problems_of(changed(GKE, {"ray.podFile": path}))
        assert said in problem.message


def test_folder_of_the_file_is_mounted_once(project: Path) -> None:
    write(project, FILE)
    [problem] = problems_of(changed(GKE, {"ray.podFile": "pod.yaml", "ray.volumes": ["data=/cache"]}))
    assert "two volumes at /cache" in problem.message
