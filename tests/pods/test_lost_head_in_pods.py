"""The head of a RayJob is lost while its entry point runs, in real pods with the real KubeRay and Ray.

The entry point counts its starts in the shared folder, which a folder of this machine replaces.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from infra.catalog.pins import RAY, RAY_IMAGE
from infra.kubernetes.start_once import REFUSAL
from rehearsal.cluster.scaling import Scale, scaled
from tests.kubernetes import stack_objects
from tests.pods.deployed_stack import LEFT_OUT, DeployedStack, end_of_rayjob
from tests.pods.pod_cluster import PodCluster
from tools.kubernetes.api import Json
from workloads.render.commands import ManifestOptions, manifests
from workloads.render.request import Request

IMAGE = f"example/ray:{RAY}-py311-cu130"
COUNTED = "echo started >> /bucket/starts; sleep 600"
STORAGE = {"bucket": "mine"}
END_GCS = "import psutil; [each.kill() for each in psutil.process_iter() if each.name() == 'gcs_server']"


@pytest.fixture
def shared(pod_cluster: PodCluster, tmp_path: Path) -> Path:
    """The shared folder."""
    pod_cluster.shares()
    (folder := tmp_path / "shared").mkdir()
    return folder


@pytest.fixture
def apply(pod_cluster: PodCluster, shared: Path) -> Iterator[Callable[..., DeployedStack]]:
    """Return a function that applies the gke stack with other settings of Ray and more objects."""
    made = []
    scale = Scale(shared=shared, seconds={"ttlSecondsAfterFinished": 5})

    def apply(ray: Json, more: list[Json]) -> DeployedStack:
        changes = {"ray": ray, "nodes": {"max": 1}, "storage": STORAGE}
        stack = DeployedStack(pod_cluster, "gke", scale, changes)
        made.append(stack)
        stack.objects = [body for body in stack.objects if body["kind"] != "RayCluster"]
        stack.objects += [scaled(body, scale)[0] for body in more]
        stack.apply()
        return stack

    yield apply
    for stack in made:
        print(stack.describe())
        stack.delete()


def rendered(folder: Path) -> list[Json]:
    """Return what `rdma-ray render rayjob` prints for a gang that counts its starts."""
    settings = yaml.safe_load((stack_objects.ROOT / "Pulumi.gke.yaml").read_text())
    settings["config"]["rdma-ray:ray"]["image"] = IMAGE
    settings["config"]["rdma-ray:storage"] = STORAGE
    (file := folder / "Pulumi.gke.yaml").write_text(yaml.safe_dump(settings))
    command = ["run", "--nodes", "1", "--per-node", "1", "--", "bash", "-c", COUNTED]
    found = manifests("job", Request.of(command), ManifestOptions(stack_file=file, name="rendered"))
    found = json.loads(json.dumps(found).replace(IMAGE, RAY_IMAGE))
    return [body for body in found if not stack_objects.kind(body).startswith(tuple(LEFT_OUT))]


@pytest.mark.parametrize(("way", "lost"), [("stack", "pod"), ("rendered", "container")])
def test_entry_point_starts_once(
    apply: Callable[..., DeployedStack], way: str, lost: str, shared: Path, tmp_path: Path
) -> None:
    """The head's pod is deleted without a grace period, or its container restarts after the end of Ray's GCS. KubeRay
    submits the entry point again; it does not start, the RayJob fails with the reason, and its nodes are released."""
    job = {"mode": "job", "entrypoint": COUNTED}
    stack = apply(job, []) if way == "stack" else apply({}, rendered(tmp_path))
    starts, name = shared / "starts", stack.one("RayJob")["metadata"]["name"]
    stack.api.until("the entry point to start", lambda: starts.exists() or None, 400)
    head = stack.api.until("the head to be ready", stack.head, 60)
    if lost == "pod":
        stack.kill(head)
    else:
        command = ["exec", head["metadata"]["name"], "-c", "ray-head", "--", "python", "-c", END_GCS]
        subprocess.run(stack.kubectl(*command), timeout=120, check=True)
    status = end_of_rayjob(stack.api, name, 400)
    assert (status["jobDeploymentStatus"], status["jobStatus"], status["failed"]) == ("Failed", "FAILED", 1), status
    # A line of the log: Ray also writes the whole command there.
    assert REFUSAL in status["message"].splitlines(), status["message"]
    assert starts.read_text() == "started\n"
    stack.api.until("its pods to go", lambda: not stack.pods() or None, 240)
