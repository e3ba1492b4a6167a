"""A user's cluster, named by KUBECONFIG: some of its nodes are prepared for the tests, and restored.

An annotation of a node holds its former values while the tests use it, so that the next run restores what a killed one
left.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote

import requests

from infra.catalog.names import NAMESPACE
from tests.kubernetes.queries import is_ready
from tests.pods.pod_cluster import PodCluster, run_to_end
from tools.kubernetes import builds
from tools.kubernetes.api import Api, ApiError, Json
from tools.kubernetes.containers import Missing
from tools.kubernetes.image_archive import canonical
from tools.kubernetes.node import NodeShape
from tools.process import ProgramEnded, Programs

BEFORE = "rdma-ray.local/before-the-tests"
"""Annotation of a node that the tests use."""
_PROXY = "kubectl-proxy"
_PROXY_S = 60.0
_NAMESPACE_S = 240.0
# Prints what it creates, the highest new folder of each path: that must be removed again. Existing files stay
# unchanged.
_MAKE = """
make() {
  new=$1
  [ ! -e "$new" ] || return 0
  while [ ! -e "$(dirname "$new")" ]; do new=$(dirname "$new"); done
  mkdir -p "$2"
  echo "MADE ${new#/node}"
}
"""


@contextlib.contextmanager
def prepared(kubeconfig: Path, shapes: Mapping[str, NodeShape], images: Sequence[str]) -> Iterator[PodCluster]:
    """The cluster, some of whose nodes have labels, taints, resources and files for the duration of the tests.

    Raises Missing if it is not reachable, or has too few nodes, no KubeRay, not the images, or its own Ray.
    """
    with proxied(kubeconfig) as api:
        for node in api.list("v1", "Node"):
            restore(api, node["metadata"]["name"], images[0])
        free = _suitable(api, len(shapes), images)
        namespace = api.get("v1", "Namespace", NAMESPACE)
        nodes = {name: node["metadata"]["name"] for name, node in zip(shapes, free, strict=False)}
        with contextlib.ExitStack() as after, tempfile.TemporaryDirectory(prefix="rdma-ray-seen-") as folder:
            after.callback(_made_again, api, namespace)
            for role, node in zip(shapes, free, strict=False):
                after.callback(restore, api, nodes[role], images[0])
                prepare(api, node, shapes[role], images[0])
            sees = _sees(api, nodes.values(), Path(folder), images[0])
            yield PodCluster(api, kubeconfig, nodes, sees=sees)


def prepare(api: Api, node: Json, shape: NodeShape, image: str) -> None:
    """Prepare a node for the tests, after its values are recorded; `restore` undoes it."""
    name = node["metadata"]["name"]
    labels = node["metadata"].get("labels", {})
    before = {
        "labels": {label: labels.get(label) for label in shape.labels},
        "amounts": {each: node["status"]["capacity"].get(each) for each in shape.extended},
        "taints": node["spec"].get("taints"),
        "made": [],
    }
    _note(api, name, before)
    if shape.host_files:
        made = _in_a_pod(api, name, image, _writing(shape), _tops(shape.host_files))
        _note(api, name, before | {"made": re.findall(r"^MADE (/\S+)$", made, re.MULTILINE)})
    spec = {"taints": [dict(taint) for taint in shape.taints]} if shape.taints else {}
    api.patch("v1", "Node", name, None, {"metadata": {"labels": dict(shape.labels)}, "spec": spec})
    _report(api, name, {each: str(amount) for each, amount in shape.extended.items()})


def restore(api: Api, name: str, image: str) -> None:
    """Restore a node from the annotation, and remove that; one without it stays unchanged."""
    node = api.get("v1", "Node", name)
    if node is None or (text := node["metadata"].get("annotations", {}).get(BEFORE)) is None:
        return
    before = json.loads(text)
    spec = {"taints": before["taints"], "unschedulable": None}
    api.patch("v1", "Node", name, None, {"metadata": {"labels": before["labels"]}, "spec": spec})
    _report(api, name, before["amounts"])
    if made := before["made"]:
        _in_a_pod(api, name, image, "\n".join(f"rm -rf {quote('/node' + path)}" for path in made), _tops(made))
    _note(api, name, None)


@contextlib.contextmanager
def proxied(kubeconfig: Path) -> Iterator[Api]:
    """A client with the user's kubeconfig, by `kubectl proxy` on loopback. Raises Missing.

    The proxy is not in the terminal's process group, so that it still serves the cleanup after Ctrl-C. It ends with
    this process, however that ends, since any local client of it is authenticated.
    """
    kubectl = builds.programs("kubectl")["kubectl"]
    if not kubeconfig.is_file():
        raise Missing(f"KUBECONFIG={kubeconfig} is no file: give the path of one kubeconfig, such as ~/.kube/config.")
    with tempfile.TemporaryDirectory(prefix="rdma-ray-proxy-") as folder:
        programs = Programs(Path(folder))
        command = [str(kubectl), f"--kubeconfig={kubeconfig.resolve()}", "proxy", "--port=0"]
        try:
            # The authentication may be another program, with its own environment.
            programs.start(_PROXY, command, os.environ)
            address = Api("http://127.0.0.1", "", None).until("kubectl proxy", lambda: _listening(programs), _PROXY_S)
            api = Api(address, "", None)
            try:
                api.kinds()
            except (ApiError, requests.RequestException) as problem:
                raise Missing(f"KUBECONFIG={kubeconfig}: its cluster does not answer: {problem}") from problem
            yield api
        except ProgramEnded as problem:
            raise Missing(f"KUBECONFIG={kubeconfig}: {programs.tail(_PROXY).strip()}") from problem
        finally:
            programs.stop()


def _listening(programs: Programs) -> str | None:
    match = re.search(r"127\.0\.0\.1:\d+", programs.tail(_PROXY))
    if match is None:
        programs.check()
    return f"http://{match.group()}" if match else None


def _suitable(api: Api, wanted: int, images: Sequence[str]) -> list[Json]:
    if api.get("v1", "Namespace", NAMESPACE) is not None and (inside := objects_in(api, NAMESPACE)):
        shown = ", ".join(inside[:4]) + (f" and {len(inside) - 4} more" if len(inside) > 4 else "")
        raise Missing(
            f"The cluster of KUBECONFIG has a namespace {NAMESPACE} with {shown}, and the tests make and delete that "
            f"namespace. If an earlier run left it: `kubectl delete namespace {NAMESPACE}`; if it is yours, use "
            "another cluster."
        )
    if api.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", "rayclusters.ray.io") is None:
        raise Missing("The cluster of KUBECONFIG has no KubeRay: install its chart kuberay-operator 1.6.2 first.")
    free = [node for node in api.list("v1", "Node") if _serves(node)]
    if len(free) < wanted:
        raise Missing(
            f"Nodes of the cluster of KUBECONFIG that are ready and take any pod: {len(free)}; {wanted} are needed: "
            "add some, or take their taints off."
        )
    for node in free[:wanted]:
        there = {name for image in node["status"].get("images", ()) for name in image.get("names", ())}
        if lacking := [image for image in images if canonical(image) not in there]:
            raise Missing(
                f"Node {node['metadata']['name']} has no image {', '.join(lacking)}: write one by "
                f"`.venv/bin/python -m tools.kubernetes.images FILE {' '.join(images)}` and load it (kind: "
                "`kind load image-archive FILE`)."
            )
    return free[:wanted]


def objects_in(api: Api, namespace: str) -> list[str]:
    """Return what is in a namespace besides what every new one has, as "Kind NAME"."""
    usual = ("ServiceAccount default", "ConfigMap kube-root-ca.crt")
    kinds = [kind for kind in api.kinds() if kind.namespaced and "list" in kind.verbs and kind.kind != "Event"]
    found = (
        f"{kind.kind} {body['metadata']['name']}"
        for kind in kinds
        for body in api.list(kind.api_version, kind.kind, namespace)
    )
    return sorted({*found} - {*usual})


def _made_again(api: Api, namespace: Json | None) -> None:
    """Make a namespace again that was there before the tests, which have deleted it."""
    if namespace is None:
        return
    name, metadata = namespace["metadata"]["name"], namespace["metadata"]

    def settled() -> bool:
        now = api.get("v1", "Namespace", name)
        return now is None or "deletionTimestamp" not in now["metadata"]

    api.until(f"the end of namespace {name}", settled, _NAMESPACE_S)
    kept = {key: metadata[key] for key in ("name", "labels", "annotations") if key in metadata}
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": kept})


def _serves(node: Json) -> bool:
    return is_ready(node) and not node["spec"].get("taints") and not node["spec"].get("unschedulable")


def _note(api: Api, name: str, before: Json | None) -> None:
    text = None if before is None else json.dumps(before)
    api.patch("v1", "Node", name, None, {"metadata": {"annotations": {BEFORE: text}}})


def _report(api: Api, name: str, amounts: Mapping[str, str | None]) -> None:
    status = {"status": {"capacity": dict(amounts), "allocatable": dict(amounts)}}
    api.patch("v1", "Node", name, None, status, subresource="status")


def _writing(shape: NodeShape) -> str:
    lines = [_MAKE]
    for path, text in shape.host_files.items():
        place = quote(f"/node{path}")
        folder = place if text is None else quote(f"/node{Path(path).parent}")
        lines.append(f'made=$(make {place} {folder}); echo "$made"')
        if text is not None:
            lines.append(f'[ -z "$made" ] || printf %s {quote(text)} > {place}')
    return "\n".join(lines)


def _sees(api: Api, nodes: Iterable[str], folder: Path, image: str) -> bool:
    """Return whether the nodes have this machine's files: they do if they are namespaces of it."""
    seen = folder / uuid.uuid4().hex
    seen.touch()
    look = f"if [ -e {quote('/node' + str(seen))} ]; then echo SEEN; fi"
    return all("SEEN" in _in_a_pod(api, name, image, look, _tops([str(folder)])) for name in nodes)


def _tops(paths: Sequence[str] | Mapping[str, object]) -> list[str]:
    return sorted({Path(path).parts[1] for path in paths})


def _in_a_pod(api: Api, node: str, image: str, script: str, tops: Sequence[str]) -> str:
    """Run a script as root on the node, with its folders /TOP below /node; return its output."""
    phase, printed = run_to_end(
        api,
        image,
        ["bash", "-ec", script],
        container={
            "securityContext": {"runAsUser": 0},
            "volumeMounts": [{"name": top, "mountPath": f"/node/{top}"} for top in tops],
        },
        nodeName=node,
        # Also on a node that already has the tests' taints.
        tolerations=[{"operator": "Exists"}],
        volumes=[{"name": top, "hostPath": {"path": f"/{top}", "type": "DirectoryOrCreate"}} for top in tops],
    )
    if phase != "Succeeded":
        raise RuntimeError(f"a script on node {node} failed: {printed.strip()[-500:]}")
    return printed
