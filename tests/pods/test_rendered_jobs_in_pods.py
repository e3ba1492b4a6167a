"""Jobs that `rdma-ray render` prints, in real pods in the namespace of a stack: real KubeRay, kubelets, Ray.

Simulated: GPUs are counts of the nodes, so gloo is measured; CPUs and memory are scaled, as the run prints. The image
that the stack file names is replaced by that of this environment, which has the command, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
import yaml

from infra.catalog.names import NAMESPACE
from infra.catalog.pins import RAY, RAY_IMAGE
from rehearsal.cluster.scaling import Scale, scaled
from tests.kubernetes import stack_objects
from tests.pods.deployed_stack import LEFT_OUT, DeployedStack, end_of_rayjob
from tests.pods.pod_cluster import PodCluster
from workloads.render.commands import ManifestOptions, manifests
from workloads.render.request import Request

IMAGE = f"example/ray:{RAY}-py311-cu130"
CODE = """
import os
assert (os.environ["HF_TOKEN"], os.environ["WORLD_SIZE"]) == ("of the Secret", "2")
assert os.getcwd() == "/tmp", os.getcwd()
"""

Apply = Callable[[Literal["job", "indexed-job"], list[str]], None]


@pytest.fixture
def stack(pod_cluster: PodCluster) -> Iterator[DeployedStack]:
    """The gke stack without its own RayCluster, so that the nodes are free, and a Secret of the user's."""
    stack = DeployedStack(pod_cluster, "gke", Scale(), {})
    stack.objects = [body for body in stack.objects if body["kind"] != "RayCluster"]
    stack.apply()
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mine", "namespace": NAMESPACE}}
    stack.api.apply(secret | {"stringData": {"HF_TOKEN": "of the Secret"}})
    yield stack
    print(stack.describe())
    stack.delete()


@pytest.fixture
def apply(stack: DeployedStack, tmp_path: Path) -> Apply:
    """Return a function that applies what `render` prints for a command, under the name `rendered`."""
    settings = yaml.safe_load((stack_objects.ROOT / "Pulumi.gke.yaml").read_text())
    settings["config"]["rdma-ray:ray"]["image"] = IMAGE
    (file := tmp_path / "Pulumi.gke.yaml").write_text(yaml.safe_dump(settings))

    def apply(mode: Literal["job", "indexed-job"], command: list[str]) -> None:
        secrets = "mine" if "--secret" in command else None
        options = ManifestOptions(stack_file=file, name="rendered", secrets=secrets)
        for body in json.loads(json.dumps(manifests(mode, Request.of(command), options)).replace(IMAGE, RAY_IMAGE)):
            if not stack_objects.kind(body).startswith(tuple(LEFT_OUT)):
                made, _ = scaled(body, Scale())
                stack.objects.append(made)
                stack.api.apply(made)

    return apply


def test_rendered_jobs_complete(stack: DeployedStack, apply: Apply) -> None:
    """A benchmark as an Indexed Job, and then a gang with a secret as a RayJob, each on both nodes."""
    api = stack.api
    apply("indexed-job", ["bench", "nccl", "--op", "all_reduce", "-b", "4K", "-e", "4K", "-n", "2", "--nodes", "2"])

    def over() -> set[str] | None:
        found = (api.get("batch/v1", "Job", "rendered", NAMESPACE) or {}).get("status", {}).get("conditions", ())
        kinds = {each["type"] for each in found if each["status"] == "True"}
        return kinds if {"Complete", "Failed"} & kinds else None

    def logs() -> str:
        return "\n".join(map(stack.log, stack.pods("rdma-ray/job=rendered")))

    assert "Complete" in api.until("the Job to end", over, 300), logs()
    assert "every element right" in logs()
    api.delete("batch/v1", "Job", "rendered", NAMESPACE)

    options = ["--nodes", "2", "--secret", "HF_TOKEN", "--working-dir", "/tmp"]
    apply("job", ["run", *options, "--", "python", "-c", CODE])
    status = end_of_rayjob(api, "rendered", 300)
    assert status["jobStatus"] == "SUCCEEDED", status
