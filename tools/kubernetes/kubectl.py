"""`kubectl port-forward`, for access to a head, and `kubectl kustomize`, for manifests of Go modules."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tools.kubernetes import builds, manifests
from tools.kubernetes.api import Json
from tools.process import Child

DASHBOARD = 8265
_FORWARD_S = 60.0


class ForwardError(RuntimeError):
    """`kubectl port-forward` failed. The message has its output."""


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


def kustomize(base: Path, deployment: Json, overlay: Json | None = None) -> list[Json]:
    """Return the objects of a kustomize base: Namespace and CRDs first, Deployments last.

    Args:
        deployment: Patch (strategic merge) for the spec of the Deployment.
        overlay: More fields of the overlay's kustomization.yaml.

    Raises:
        RuntimeError: kubectl failed; the message has its output.
    """
    # The target selects the object; the patch needs a name nevertheless.
    patch = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "any"}, "spec": deployment}
    overlay = {"patches": [{"target": {"kind": "Deployment"}, "patch": json.dumps(patch)}]} | (overlay or {})
    objects = manifests.parse(_built(base.resolve(), json.dumps(overlay)))
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
