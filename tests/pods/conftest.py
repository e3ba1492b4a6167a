"""One cluster of real nodes for the whole tier, like the stacks' node pools, with the real KubeRay."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.catalog.fabrics import INSTALLED
from infra.catalog.names import NAMESPACE
from infra.catalog.pins import AWS_RAY_TRAIN, RAY_IMAGE
from rehearsal.cluster.scaling import Scale
from rehearsal.cluster.traces import traces
from tests.pods.deployed_stack import DeployedStack
from tests.pods.pod_cluster import PodCluster, own_cluster
from tests.pods.user_cluster import prepared
from tools.kubernetes.api import Json
from tools.kubernetes.containers import Missing
from tools.kubernetes.node import NodeShape
from tools.kubernetes.node_probe import ready_to_run

NEXT_IMAGE = f"{RAY_IMAGE}-2"
"""The same image under another name, as another version."""
RAY_IMAGES = (RAY_IMAGE, AWS_RAY_TRAIN, NEXT_IMAGE)
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}

SYSTEM = NodeShape(
    labels={"cloud.google.com/gke-nodepool": "system", "eks.amazonaws.com/nodegroup": "system"},
)
GPU = NodeShape(
    labels={
        "cloud.google.com/gke-accelerator": "nvidia-h200-141gb",
        "cloud.google.com/gke-nodepool": "gpu",
        "node.kubernetes.io/instance-type": "p5en.48xlarge",
    },
    taints=(GPU_TAINT,),
    extended={"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 16},
    # Replacements for the files of GKE's driver and gIB installers on the node.
    host_files={
        "/home/kubernetes/bin/nvidia": None,
        "/home/kubernetes/bin/gib/scripts/set_nccl_env.sh": "export RDMA_RAY_STAND_IN=gib\n",
        f"/home/kubernetes/bin/gib/{INSTALLED}": "",
    },
)


@pytest.fixture(scope="session")
def real_nodes() -> None:
    """Skip the test if this machine cannot run real nodes."""
    try:
        ready_to_run()
    except Missing as missing:
        pytest.skip(f"not run: {missing}")


@pytest.fixture(scope="session")
def pod_cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodCluster]:
    """A system node and two GPU nodes; a cluster of our own must leave nothing on this machine."""
    shapes = {"system-0": SYSTEM, "gpu-0": GPU, "gpu-1": GPU}
    if existing := os.environ.get("KUBECONFIG"):
        with contextlib.ExitStack() as stack:
            try:
                pod_cluster = stack.enter_context(prepared(Path(existing), shapes, RAY_IMAGES))
            except Missing as missing:
                # With a user's cluster, the tests must run there: skipping them all would hide a problem.
                pytest.exit(f"the tests on real pods cannot run: {missing}", returncode=pytest.ExitCode.USAGE_ERROR)
            yield pod_cluster
        return
    request.getfixturevalue("real_nodes")
    folder = tmp_path_factory.mktemp("pods")
    before = traces(folder)
    with own_cluster(folder, shapes, RAY_IMAGES) as pod_cluster:
        yield pod_cluster
    assert traces(folder) - before == frozenset()


@pytest.fixture(scope="module")
def gke(pod_cluster: PodCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedStack]:
    """The gke stack's objects, applied, and those that its user creates; deleted after the module."""
    # Short, but longer than a loaded machine takes from the last task of a job to the evidence of its nodes.
    scale = Scale(shared=tmp_path_factory.mktemp("shared"), seconds={"idleTimeoutSeconds": 30})
    changes: Json = {"ray": {"env": ["GREETING=hello"], "secrets": ["named", "files=/secrets/files"]}}
    if pod_cluster.sees:
        # A folder of this machine replaces the bucket.
        changes |= {"storage": {"bucket": "mine"}, "ray": {**changes["ray"], "volumes": ["datasets=/datasets"]}}
    stack = DeployedStack(pod_cluster, "gke", scale, changes)
    stack.apply()
    owned = users_objects(tmp_path_factory.mktemp("datasets"))
    for body in owned:
        stack.api.apply(body)
    try:
        yield stack
    finally:
        print(stack.describe())
        stack.delete()
        stack.api.delete("v1", "PersistentVolume", owned[-1]["metadata"]["name"])


def users_objects(folder: Path) -> list[Json]:
    """Return two Secrets, and a volume with a file in a folder of this machine, with its claim."""
    (folder / "size").write_text("three")
    folder.chmod(0o777)
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {**common, "capacity": {"storage": "1Gi"}, "hostPath": {"path": str(folder)}}
    claim = {**common, "volumeName": "rdma-ray-datasets", "resources": {"requests": {"storage": "1Gi"}}}
    here = {"namespace": NAMESPACE}
    return [
        *(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, **here}, "stringData": data}
            for name, data in (("named", {"HF_TOKEN": "secret-one"}), ("files", {"key.json": "secret-two"}))
        ),
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "datasets", **here}, "spec": claim},
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "rdma-ray-datasets"}, "spec": volume},
    ]
