"""Cluster of the scenarios: one of our own, or a user's that KUBECONFIG names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.kubernetes.pods import KUBERAY_LABELS
from tests.kubernetes import stack_objects
from tests.pods.user_cluster import prepared
from tools.kubernetes.api import Api, NotYet
from tools.kubernetes.node import Cluster, NodeShape


@dataclass(frozen=True)
class PodCluster:
    """A cluster for the tests.

    Args:
        nodes: the tests' name of a node -> its name in the cluster.
        cluster: our own one, None for a user's.
        sees: whether the nodes have this machine's files at the same paths.
    """

    api: Api
    kubeconfig: Path
    nodes: Mapping[str, str]
    cluster: Cluster | None
    sees: bool = True

    def shares(self) -> None:
        """Skip the test if a folder of this machine cannot replace a shared file system."""
        if not self.sees:
            pytest.skip("not run: the nodes of this cluster do not have the files of this machine")


def operator(api: Api) -> tuple[str, str] | None:
    """Return namespace and name of the Deployment of KubeRay's operator, by the chart's label or kustomize's name."""
    for body in api.list("apps/v1", "Deployment"):
        metadata = body["metadata"]
        if metadata["name"] == "kuberay-operator" or KUBERAY_LABELS.items() <= metadata.get("labels", {}).items():
            return metadata["namespace"], metadata["name"]
    return None


def leads(api: Api, namespace: str, pod: str) -> bool:
    """Return whether this pod of the operator is the leader; its predecessor's lease expires after 15 seconds."""
    lease = api.get("coordination.k8s.io/v1", "Lease", "ray-operator-leader", namespace)
    if lease is None:
        # Without leader election every running pod is active.
        return True
    if not str(lease["spec"]["holderIdentity"]).startswith(f"{pod}_"):
        raise NotYet(f"{lease['spec']['holderIdentity']} leads")
    return True


@contextlib.contextmanager
def own_cluster(folder: Path, shapes: Mapping[str, NodeShape], images: tuple[str, ...]) -> Iterator[PodCluster]:
    """A cluster of our own with these nodes, and the real KubeRay."""
    with Cluster(folder, nodes=shapes, real_images=images) as cluster:
        cluster.operators.start_kuberay(stack_objects.release("gke", "kuberay-operator"))
        yield PodCluster(cluster.plane.api, cluster.plane.kubeconfig, {name: name for name in shapes}, cluster)


@contextlib.contextmanager
def user_cluster(kubeconfig: Path, shapes: Mapping[str, NodeShape], images: tuple[str, ...]) -> Iterator[PodCluster]:
    """The user's cluster, prepared and restored by `tests.pods.user_cluster`. Raises Missing."""
    with prepared(kubeconfig, shapes, images) as found:
        yield PodCluster(found.api, kubeconfig, found.nodes, None, found.sees)
