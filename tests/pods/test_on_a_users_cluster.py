"""Tests on a user's own cluster (KUBECONFIG), tried on ours: a node is prepared for the tests, and restored.

Real: `kubectl proxy` with a kubeconfig, API server, scheduler, kubelet, containerd. Simulated: the cluster is our own
and not a user's, its nodes see this machine's files, and the GPU is a count, as in this whole tier.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.catalog.names import NAMESPACE
from tests.pods.conftest import RAY_IMAGES
from tests.pods.pod_cluster import PodCluster, run_to_end
from tests.pods.user_cluster import BEFORE, prepare, prepared, proxied
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


@pytest.fixture(autouse=True)
def no_stack(pod_cluster: PodCluster) -> None:
    """Delete the namespace with the role of our operator. The next stack creates both again."""
    if pod_cluster.cluster is None:
        pytest.skip("not run: this is that way")
    api = pod_cluster.api
    api.delete("v1", "Namespace", NAMESPACE)
    api.until("its namespace to be gone", lambda: api.get("v1", "Namespace", NAMESPACE) is None, 120)


def state(pod_cluster: PodCluster) -> dict[str, Any]:
    """Return the parts of a node that the tests change."""
    node = pod_cluster.api.get("v1", "Node", pod_cluster.nodes["system-0"])
    assert node is not None
    noted = BEFORE in node["metadata"].get("annotations", {})
    amounts = {name: node["status"]["capacity"].get(name) for name in SHAPE.extended}
    labels, taints = node["metadata"]["labels"], node["spec"].get("taints")
    return {"labels": labels, "taints": taints, "noted": noted, "amounts": amounts}


def use(found: PodCluster) -> tuple[str, str]:
    """Run a pod that uses the node's amount, label, taint and file; return its end and its log."""
    return run_to_end(
        found.api,
        RAY_IMAGES[0],
        ["bash", "-ec", "test -d /tried/empty; source /tried/bin/say.sh"],
        container={
            "resources": {"limits": {"rdma-ray.local/tried": 8}},
            "volumeMounts": [{"name": "tried", "mountPath": "/tried", "readOnly": True}],
        },
        nodeSelector={"rdma-ray.local/tried": "yes"},
        tolerations=[TAINT | {"operator": "Equal"}],
        volumes=[{"name": "tried", "hostPath": {"path": "/var/lib/rdma-ray-tried", "type": "Directory"}}],
    )


def test_node_is_prepared_and_restored(pod_cluster: PodCluster) -> None:
    """A pod uses everything that the node was given; afterwards labels, taints, amounts and files are restored, also
    those of a run that was killed before it could restore them."""
    assert pod_cluster.cluster is not None
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
        assert use(found) == ("Succeeded", "FOUND\n")
    assert state(pod_cluster) == before
    machine = pod_cluster.cluster.nodes["system-0"]
    machine.run(["sh", "-c", "test ! -e /var/lib/rdma-ray-tried"], spaces=("mount",))


def test_namespace_of_the_tests_may_exist_if_it_is_empty(pod_cluster: PodCluster) -> None:
    """`make kubernetes` makes it: it is there again after the tests. With an object in it, it is the user's."""
    api, labels = pod_cluster.api, {"team": "a"}
    place = ("v1", "Namespace", NAMESPACE)
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
    with prepared(pod_cluster.kubeconfig, {"system-0": NodeShape()}, RAY_IMAGES):
        api.delete(*place)
    found = api.get(*place)
    assert found is not None
    assert found["metadata"]["labels"].items() >= labels.items()
    metadata = {"name": "mine", "namespace": NAMESPACE}
    api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    nodes = {"system-0": NodeShape()}
    with pytest.raises(Missing, match="ConfigMap mine"), prepared(pod_cluster.kubeconfig, nodes, RAY_IMAGES):
        pass


def test_unsuitable_cluster_is_explained(pod_cluster: PodCluster, tmp_path: Path) -> None:
    """Too few nodes, a missing image, an invalid kubeconfig: each message names the problem and the fix."""
    few = {str(number): NodeShape() for number in range(9)}
    for shapes, images, why in (
        (few, RAY_IMAGES, "take any pod: 1; 9 are needed"),
        ({"one": SHAPE}, ["example/missing:this"], r"no image example/missing:this.*kind load image-archive"),
    ):
        with pytest.raises(Missing, match=why), prepared(pod_cluster.kubeconfig, shapes, images):
            pass
    with pytest.raises(Missing, match="is no file"), proxied(tmp_path / "nothing"):
        pass
    broken = tmp_path / "config"
    broken.write_text("{}")
    with pytest.raises(Missing, match=f"KUBECONFIG={broken}"), proxied(broken):
        pass
