"""The cluster that the scenarios play on: one of our own, or one that the user owns and names by KUBECONFIG."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.kubernetes import builds
from tools.kubernetes.api import Api, Json
from tools.kubernetes.containers import Missing
from tools.kubernetes.images_archive import canonical
from tools.kubernetes.node import NodeShape
from tools.kubernetes.node_cluster import Cluster


@dataclass(frozen=True)
class Scene:
    """nodes: what the tests call a node -> its name there. cluster: our own one, None for a user's."""

    api: Api
    kubeconfig: Path
    nodes: Mapping[str, str]
    cluster: Cluster | None


@contextlib.contextmanager
def own(folder: Path, shapes: Mapping[str, NodeShape], images: tuple[str, ...]) -> Iterator[Scene]:
    """A cluster of our own with these nodes, and the real KubeRay."""
    with Cluster(folder, nodes=shapes, real_images=images) as cluster:
        cluster.start_kuberay()
        yield Scene(cluster.plane.api, cluster.plane.kubeconfig, {name: name for name in shapes}, cluster)


@contextlib.contextmanager
def theirs(kubeconfig: Path, shapes: Mapping[str, NodeShape], images: tuple[str, ...]) -> Iterator[Scene]:
    """The user's cluster, some of whose nodes get labels, taints, resources and files for the time of the tests.

    Raises Missing where it has too few nodes, no KubeRay, or not the images.
    """
    with _proxied(kubeconfig) as api:
        if api.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", "rayclusters.ray.io") is None:
            raise Missing("The cluster of KUBECONFIG has no KubeRay: install its chart kuberay-operator 1.6.2 first.")
        free = [node for node in api.list("v1", "Node") if _serves(node)]
        if len(free) < len(shapes):
            raise Missing(
                f"Nodes that take any pod in the cluster of KUBECONFIG: {len(free)}; {len(shapes)} are needed."
            )
        for node in free[: len(shapes)]:
            there = {name for image in node["status"].get("images", ()) for name in image.get("names", ())}
            if lacking := [image for image in images if canonical(image) not in there]:
                raise Missing(
                    f"Node {node['metadata']['name']} has no image {', '.join(lacking)}: write one by "
                    f"`.venv/bin/python -m tools.kubernetes.images FILE {' '.join(images)}` and load it (kind: "
                    "`kind load image-archive FILE`)."
                )
        nodes = {name: node["metadata"]["name"] for name, node in zip(shapes, free, strict=False)}
        with contextlib.ExitStack() as after:
            for role, name in nodes.items():
                _prepare(api, name, shapes[role], images[0])
                after.callback(_restore, api, name, shapes[role])
            yield Scene(api, kubeconfig, nodes, None)


def _serves(node: Json) -> bool:
    conditions = node["status"].get("conditions", ())
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and not node["spec"].get("taints") and not node["spec"].get("unschedulable")


def _prepare(api: Api, name: str, shape: NodeShape, image: str) -> None:
    if shape.host_files:
        _write(api, name, shape, image)
    spec = {"taints": [dict(taint) for taint in shape.taints]} if shape.taints else {}
    api.patch("v1", "Node", name, None, {"metadata": {"labels": dict(shape.labels)}, "spec": spec})
    amounts = {resource: str(amount) for resource, amount in shape.extended.items()}
    status = {"status": {"capacity": amounts, "allocatable": amounts}}
    api.patch("v1", "Node", name, None, status, type="merge", subresource="status")


def _restore(api: Api, name: str, shape: NodeShape) -> None:
    spec = {"taints": None} if shape.taints else {}
    api.patch("v1", "Node", name, None, {"metadata": {"labels": dict.fromkeys(shape.labels)}, "spec": spec})
    amounts = dict.fromkeys(shape.extended)
    status = {"status": {"capacity": amounts, "allocatable": amounts}}
    api.patch("v1", "Node", name, None, status, type="merge", subresource="status")


def _write(api: Api, name: str, shape: NodeShape, image: str) -> None:
    """Let a pod on the node write the stand-ins for what the cloud's daemons put there. They stay."""
    lines = []
    for path, text in shape.host_files.items():
        folder = path if text is None else str(Path(path).parent)
        lines.append(f"mkdir -p /node{folder}")
        if text is not None:
            lines.append(f"printf %s {_quoted(text)} > /node{path}")
    tops = sorted({Path(path).parts[1] for path in shape.host_files})
    container = {
        "name": "main",
        "image": image,
        "command": ["bash", "-ec", "\n".join(lines)],
        "securityContext": {"runAsUser": 0},
        "volumeMounts": [{"name": top, "mountPath": f"/node/{top}"} for top in tops],
    }
    spec = {
        "nodeName": name,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": top, "hostPath": {"path": f"/{top}"}} for top in tops],
    }
    pod = f"rdma-ray-stand-ins-{name}"
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "namespace": "default"}, "spec": spec})
    try:
        api.until(f"the stand-ins on {name}", lambda: _succeeded(api.get("v1", "Pod", pod, "default")), 120)
    finally:
        api.delete("v1", "Pod", pod, "default")


def _succeeded(pod: Json | None) -> bool | None:
    return True if pod and pod["status"]["phase"] == "Succeeded" else None


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


@contextlib.contextmanager
def _proxied(kubeconfig: Path) -> Iterator[Api]:
    """A client that signs in as the user's kubeconfig says, by `kubectl proxy` on loopback."""
    kubectl = builds.programs("kubectl")["kubectl"]
    with tempfile.TemporaryFile("w+") as problems:
        command = [str(kubectl), f"--kubeconfig={kubeconfig}", "proxy", "--port=0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=problems, text=True)
        assert process.stdout is not None
        try:
            match = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
            if match is None:
                problems.seek(0)
                raise Missing(f"KUBECONFIG={kubeconfig}: {problems.read().strip()}")
            yield Api(f"http://127.0.0.1:{match.group(1)}", "", None)
        finally:
            process.terminate()
            process.wait(20)
            process.stdout.close()
