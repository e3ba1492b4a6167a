"""Cluster of the scenarios: one of our own, or a user's that KUBECONFIG names (`tests.pods.user_cluster`)."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.names import KUBERAY_LABELS, NAMESPACE
from tests.kubernetes import stack_objects
from tools.kubernetes.api import Api, Json, NotYet
from tools.kubernetes.node import Cluster, NodeShape

_POD_S = 240.0


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
    cluster: Cluster | None = None
    sees: bool = True

    def shares(self) -> None:
        """Skip the test if a folder of this machine cannot replace a shared file system."""
        if not self.sees:
            pytest.skip("not run: the nodes of this cluster do not have the files of this machine")


@contextlib.contextmanager
def own_cluster(folder: Path, shapes: Mapping[str, NodeShape], images: tuple[str, ...]) -> Iterator[PodCluster]:
    """A cluster of our own with these nodes, and the real KubeRay."""
    with Cluster(folder, nodes=shapes, real_images=images) as cluster:
        # The chart creates the operator's role in it.
        cluster.plane.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        cluster.operators.start_kuberay(stack_objects.release("gke", "kuberay-operator"))
        yield PodCluster(cluster.plane.api, cluster.plane.kubeconfig, {name: name for name in shapes}, cluster)


def run_to_end(
    api: Api,
    image: str,
    command: Sequence[str],
    *,
    namespace: str = "default",
    container: Json | None = None,
    within_s: float = _POD_S,
    **spec: Any,
) -> tuple[str, str]:
    """Run a command in a pod of its own, deleted afterwards; return how it ended, Succeeded or Failed, and its log."""
    name = f"rdma-ray-{uuid.uuid4().hex[:8]}"
    main = {"name": "main", "image": image, "imagePullPolicy": "IfNotPresent", "command": [*command]}
    its = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [main | (container or {})]}
    metadata = {"name": name, "namespace": namespace}
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": its | spec})
    place = f"/api/v1/namespaces/{namespace}/pods/{name}"

    def over() -> str | None:
        pod = api.get("v1", "Pod", name, namespace)
        phase = pod["status"]["phase"] if pod else None
        return phase if phase in ("Succeeded", "Failed") else None

    try:
        phase = api.until(f"pod {name} to be over", over, within_s)
        return phase, str(api.request("GET", f"{place}/log").get("text", ""))
    finally:
        api.request("DELETE", place, body={"gracePeriodSeconds": 0})


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
    # Without leader election every running pod is active.
    if lease is not None and not str(lease["spec"]["holderIdentity"]).startswith(f"{pod}_"):
        raise NotYet(f"{lease['spec']['holderIdentity']} leads")
    return True
