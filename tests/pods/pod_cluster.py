"""The cluster that the scenarios play on: one of our own, or one that the user owns and names by KUBECONFIG."""

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
class Scene:
    """nodes: what the tests call a node -> its name there. cluster: our own one, None for a user's.

    sees: whether the nodes have this machine's files at the same places.
    """

    api: Api
    kubeconfig: Path
    nodes: Mapping[str, str]
    cluster: Cluster | None
    sees: bool = True

    def shares(self) -> None:
        """Skip the test where a folder of this machine cannot stand in for a file system of all nodes."""
        if not self.sees:
            pytest.skip("not run: the nodes of this cluster do not have the files of this machine")


def operator(api: Api) -> tuple[str, str] | None:
    """Namespace and name of the Deployment of KubeRay's operator, by the chart's label or kustomize's name."""
    for body in api.list("apps/v1", "Deployment"):
        metadata = body["metadata"]
        if metadata["name"] == "kuberay-operator" or KUBERAY_LABELS.items() <= metadata.get("labels", {}).items():
            return metadata["namespace"], metadata["name"]
    return None


def leads(api: Api, namespace: str, pod: str) -> bool:
    """Whether this pod of the operator is the one that acts; its predecessor's lease has to run out, in 15 seconds."""
    lease = api.get("coordination.k8s.io/v1", "Lease", "ray-operator-leader", namespace)
    if lease is None:
        # Without leader election whoever runs, acts.
        return True
    if not str(lease["spec"]["holderIdentity"]).startswith(f"{pod}_"):
        raise NotYet(f"{lease['spec']['holderIdentity']} leads")
    return True


@contextlib.contextmanager
def own(folder: Path, shapes: Mapping[str, NodeShape], images: tuple[str, ...]) -> Iterator[Scene]:
    """A cluster of our own with these nodes, and the real KubeRay."""
    with Cluster(folder, nodes=shapes, real_images=images) as cluster:
        cluster.start_kuberay(stack_objects.release("gke", "kuberay-operator"))
        yield Scene(cluster.plane.api, cluster.plane.kubeconfig, {name: name for name in shapes}, cluster)


@contextlib.contextmanager
def theirs(kubeconfig: Path, shapes: Mapping[str, NodeShape], images: tuple[str, ...]) -> Iterator[Scene]:
    """The user's cluster, made ready and put back as `tests.pods.user_cluster` says. Raises Missing."""
    with prepared(kubeconfig, shapes, images) as found:
        yield Scene(found.api, kubeconfig, found.nodes, None, found.sees)
