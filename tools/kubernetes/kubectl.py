"""Operations of kubectl and Helm: build, merge, apply and delete manifests, wait for rollouts, forward ports."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

import requests
import yaml

from tools.kubernetes import builds
from tools.kubernetes.api import Api, ApiError, Json, NotYet
from tools.process import Child

DASHBOARD = 8265
_FORWARD_S = 60.0
# libyaml, if PyYAML was built with it, reads large CRDs ten times faster.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SERVED_S = 60.0
_LOG_LINES = 15


class ForwardError(RuntimeError):
    """`kubectl port-forward` failed. The message contains its output."""


@contextmanager
def forwarded(kubeconfig: Path, namespace: str, target: str, port: int = DASHBOARD) -> Iterator[int]:
    """Forward to a port of a target, such as "svc/NAME" or "pod/NAME"; yield the port on 127.0.0.1.

    Raises:
        ForwardError: kubectl failed.
    """
    kubectl = builds.programs("kubectl")["kubectl"]
    command = [str(kubectl), f"--kubeconfig={kubeconfig}", "-n", namespace, "port-forward", target, f":{port}"]
    lines: list[str] = []
    process = Child(command, on_line=lines.append)
    try:
        deadline = time.monotonic() + _FORWARD_S
        while not (match := re.search(r"127\.0\.0\.1:(\d+) ->", "".join(lines))):
            if not process.runs(within_s=0.05) or time.monotonic() > deadline:
                raise ForwardError(f"kubectl port-forward {target}: {''.join(lines).strip()}")
        yield int(match[1])
    finally:
        process.stop()


def parse(text: str) -> list[Json]:
    """Return all objects of a YAML text, in order."""
    return [body for body in yaml.load_all(text, _LOADER) if body]


def read(*files: Path) -> list[Json]:
    """Return all objects of YAML files, in order."""
    return [body for file in files for body in parse(file.read_text())]


def merged(*values: Json) -> Json:
    """Return values merged as Helm does: objects by key, everything else replaced."""
    found: Json = {}
    for key, value in (item for each in values for item in each.items()):
        before = found.get(key)
        found[key] = merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return found


def image(values: Json) -> str:
    """Return an image's name from `repository` and `tag`."""
    return f"{values['repository']}:{values['tag']}"


def feature_gates(values: Iterable[Json], **more: bool) -> str:
    """Return the flag --feature-gates."""
    gates = {gate["name"]: gate["enabled"] for gate in values} | more
    return f"--feature-gates={','.join(f'{name}={str(on).lower()}' for name, on in gates.items())}"


def container(name: str, values: Json, arguments: list[str]) -> Json:
    """Return a controller's container as a strategic merge patch, from chart values."""
    return {
        "name": name,
        "image": image(values["image"]),
        "imagePullPolicy": values["image"]["pullPolicy"],
        "args": arguments,
        "resources": {"$patch": "replace", **values["resources"]},
        "livenessProbe": values["livenessProbe"],
        "readinessProbe": values["readinessProbe"],
    }


def install(api: Api, bodies: Iterable[Json]) -> None:
    """Apply objects with a separate field manager, and wait until the API server serves every kind they define.

    Raises:
        ApiError: The API server rejects an object.
        TimeoutError: A kind is not served in time.
    """
    applied = [api.apply(body, manager="installer", force=True) for body in bodies]
    definitions = [body for body in applied if body["kind"] == "CustomResourceDefinition"]
    api.until("the new kinds in the API server's discovery", partial(_discovered, api, definitions), _SERVED_S)


def remove(api: Api, bodies: Iterable[Json], within_s: float = 60.0) -> None:
    """Delete objects as `helm uninstall` does, except namespaces; wait for CRDs and Deployments with pods.

    Raises:
        TimeoutError: An object's finalizer waits for a stopped controller; the message names the kind.
    """
    deleted = [body for body in bodies if body["kind"] != "Namespace"]
    for body in reversed(deleted):
        metadata = body["metadata"]
        propagation = "Foreground" if body["kind"] == "Deployment" else "Background"
        api.delete(body["apiVersion"], body["kind"], metadata["name"], metadata.get("namespace"), propagation)
    places = [
        (body["apiVersion"], body["kind"], body["metadata"]["name"], body["metadata"].get("namespace"))
        for body in deleted
        if body["kind"] in ("CustomResourceDefinition", "Deployment")
    ]

    def gone() -> bool:
        if left := [place[2] for place in places if api.get(*place)]:
            raise NotYet(f"still there: {', '.join(left)}")
        return True

    api.until("the removed objects to be gone", gone, within_s)
    api.kinds()


def rollout_done(api: Api, namespace: str, name: str, within_s: float) -> None:
    """Wait until every pod of a Deployment has the current template and is ready, and every older pod is gone.

    Raises:
        TimeoutError: The message contains the state of the pods and the end of their logs.
    """
    try:
        api.until(f"the rollout of {namespace}/{name}", partial(_done, api, namespace, name), within_s)
    except TimeoutError as problem:
        raise TimeoutError("\n".join([str(problem), *_logs(api, namespace, name)])) from problem


def pods(api: Api, namespace: str, deployment: str) -> list[Json]:
    """Return the pods that a Deployment's selector matches, including terminating ones."""
    body = api.get("apps/v1", "Deployment", deployment, namespace)
    if body is None:
        return []
    labels = body["spec"]["selector"]["matchLabels"]
    return api.list("v1", "Pod", namespace, ",".join(f"{key}={value}" for key, value in labels.items()))


def kustomize(base: Path, deployment: Json, overlay: Json | None = None) -> list[Json]:
    """Return the objects of a kustomize base: Namespace and CRDs first, Deployments last.

    Args:
        deployment: Patch (strategic merge) for the spec of the Deployment.
        overlay: More fields of the overlay's kustomization.yaml.

    Raises:
        RuntimeError: kubectl failed; the message contains its output.
    """
    # The target selects the object; the patch needs a name nevertheless.
    patch = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "any"}, "spec": deployment}
    overlay = {"patches": [{"target": {"kind": "Deployment"}, "patch": json.dumps(patch)}]} | (overlay or {})
    objects = parse(_built(base.resolve(), json.dumps(overlay)))
    kinds = ("Namespace", "CustomResourceDefinition")
    return sorted(objects, key=lambda each: (*(each["kind"] != kind for kind in kinds), each["kind"] == "Deployment"))


@cache
def _built(base: Path, overlay: str) -> str:
    kubectl = builds.programs("kubectl")["kubectl"]
    with tempfile.TemporaryDirectory(prefix="rdma-ray-kustomize-") as name:
        folder = Path(name).resolve()
        # kustomize rejects absolute paths of bases.
        resources = [os.path.relpath(base, folder)]
        (folder / "kustomization.yaml").write_text(json.dumps({**json.loads(overlay), "resources": resources}))
        done = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"kubectl kustomize {base}: {done.stderr.strip()}")
    return done.stdout


def _discovered(api: Api, definitions: list[Json]) -> bool:
    served = {(kind.api_version, kind.kind) for kind in api.kinds()}
    expected = {
        (f"{body['spec']['group']}/{version['name']}", body["spec"]["names"]["kind"])
        for body in definitions
        for version in body["spec"]["versions"]
        if version["served"]
    }
    if expected <= served:
        return True
    raise NotYet(f"without {', '.join(sorted(' '.join(one) for one in expected - served))}")


def _done(api: Api, namespace: str, name: str) -> bool:
    body = api.get("apps/v1", "Deployment", name, namespace)
    if body is None:
        raise NotYet("there is no such Deployment")
    replicas, status = body["spec"]["replicas"], body.get("status") or {}
    if status.get("observedGeneration") != body["metadata"]["generation"]:
        raise NotYet("the controller has not seen it yet")
    seen = {key: status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")}
    there = pods(api, namespace, name)
    if set(seen.values()) != {replicas} or len(there) != replicas:
        raise NotYet(f"{seen} of {replicas}; pods: {', '.join(map(_state, there)) or 'none'}")
    return True


def _state(pod: Json) -> str:
    status = pod["status"]
    containers = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    details = [
        *(f"{each.get('state')} after {each['restartCount']} restarts" for each in containers),
        *(each["message"] for each in status.get("conditions", ()) if each.get("message")),
    ]
    return f"{pod['metadata']['name']} {status['phase']} {'; '.join(details)}"


def _logs(api: Api, namespace: str, name: str) -> list[str]:
    logs = []
    for pod in (each["metadata"]["name"] for each in pods(api, namespace, name)):
        try:
            path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
            answer = api.request("GET", path, query={"tailLines": str(_LOG_LINES)})
            logs.append(f"{pod}: {answer.get('text', answer)}")
        except (ApiError, requests.RequestException) as problem:
            logs.append(f"{pod}: no log: {problem}")
    return logs
