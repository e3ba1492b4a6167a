"""Tests on a user's own cluster (KUBECONFIG), tried on ours: a node is prepared for the tests, and restored.

Real: `kubectl proxy` with a kubeconfig, API server, scheduler, kubelet, containerd. Simulated: the cluster is our own
and not a user's, its nodes see this machine's files, and the GPU is a count, as in this whole tier.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pods.conftest import RAY_IMAGES
from tests.pods.pod_cluster import PodCluster
from tests.pods.user_cluster import BEFORE, UserCluster, prepare, prepared, proxied
from tools.kubernetes.api import Json
from tools.kubernetes.containers import Missing
from tools.kubernetes.node import NodeShape

TAINT = {"key": "rdma-ray.local/tried", "value": "yes", "effect": "NoSchedule"}
SHAPE = NodeShape(
    # The node already has the first label, with another value.
    labels={"kubernetes.io/hostname": "renamed", "rdma-ray.local/tried": "yes"},
    taints=(TAINT,),
    extended={"rdma-ray.local/tried": 8},
    host_files={"/var/lib/rdma-ray-tried/bin/say.sh": "echo FOUND\n", "/var/lib/rdma-ray-tried/empty": None},
)


def state(pod_cluster: PodCluster) -> dict[str, Any]:
    """Return the parts of a node that the tests change."""
    node = pod_cluster.api.get("v1", "Node", pod_cluster.nodes["system-0"])
    assert node is not None
    kept = {name: node["metadata"].get(name) for name in ("labels",)}
    noted = BEFORE in node["metadata"].get("annotations", {})
    amounts = {name: node["status"]["capacity"].get(name) for name in SHAPE.extended}
    return kept | {"taints": node["spec"].get("taints"), "noted": noted, "amounts": amounts}


def used(found: UserCluster) -> Json:
    """Return an ended pod that used the node's amount, label, taint and file."""
    container = {
        "name": "main",
        "image": RAY_IMAGES[0],
        "command": ["bash", "-ec", "test -d /tried/empty; source /tried/bin/say.sh"],
        "resources": {"limits": {"rdma-ray.local/tried": 8}},
        "volumeMounts": [{"name": "tried", "mountPath": "/tried", "readOnly": True}],
    }
    spec = {
        "restartPolicy": "Never",
        "nodeSelector": {"rdma-ray.local/tried": "yes"},
        "tolerations": [TAINT | {"operator": "Equal"}],
        "containers": [container],
        "volumes": [{"name": "tried", "hostPath": {"path": "/var/lib/rdma-ray-tried", "type": "Directory"}}],
    }
    place = "/api/v1/namespaces/default/pods/tries"
    metadata = {"name": "tries", "namespace": "default"}
    found.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def ended() -> Json | None:
        pod = found.api.get("v1", "Pod", "tries", "default")
        return pod if pod and pod["status"]["phase"] in ("Succeeded", "Failed") else None

    try:
        pod = found.api.until("the pod to end", ended, 120)
        return pod | {"log": found.api.request("GET", f"{place}/log").get("text")}
    finally:
        found.api.request("DELETE", place, body={"gracePeriodSeconds": 0})


def test_node_is_prepared_and_restored(pod_cluster: PodCluster) -> None:
    """A pod uses everything that the node was given; afterwards labels, taints, amounts and files are restored, also
    those of a run that was killed before it could restore them."""
    if pod_cluster.cluster is None:
        pytest.skip("not run: this is that way")
    before = state(pod_cluster)
    with proxied(pod_cluster.kubeconfig) as api:
        node = api.get("v1", "Node", pod_cluster.nodes["system-0"])
        assert node is not None
        prepare(api, node, SHAPE, RAY_IMAGES[0])
    assert state(pod_cluster) != before
    with prepared(pod_cluster.kubeconfig, {"system-0": SHAPE}, RAY_IMAGES) as found:
        assert found.sees
        assert dict(found.nodes) == {"system-0": "system-0"}
        assert state(pod_cluster)["labels"]["kubernetes.io/hostname"] == "renamed"
        pod = used(found)
        assert (pod["status"]["phase"], pod["log"]) == ("Succeeded", "FOUND\n")
    assert state(pod_cluster) == before
    machine = pod_cluster.cluster.nodes["system-0"]
    machine.run(["sh", "-c", "test ! -e /var/lib/rdma-ray-tried"], spaces=("mount",))


def test_unsuitable_cluster_is_explained(pod_cluster: PodCluster, tmp_path: Path) -> None:
    """Too few nodes, a missing image, an invalid kubeconfig: each message names the problem and the fix."""
    if pod_cluster.cluster is None:
        pytest.skip("not run: this is that way")
    few = {str(number): NodeShape() for number in range(9)}
    with (
        pytest.raises(Missing, match="take any pod: 1; 9 are needed"),
        prepared(pod_cluster.kubeconfig, few, RAY_IMAGES),
    ):
        pass
    with (
        pytest.raises(Missing, match=r"no image example/missing:this.*kind load image-archive"),
        prepared(pod_cluster.kubeconfig, {"one": SHAPE}, ["example/missing:this"]),
    ):
        pass
    with pytest.raises(Missing, match="is no file"), proxied(tmp_path / "nothing"):
        pass
    broken = tmp_path / "config"
    broken.write_text("{}")
    with pytest.raises(Missing, match=f"KUBECONFIG={broken}"), proxied(broken):
        pass
