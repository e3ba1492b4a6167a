"""Records of jobs on a PersistentVolumeClaim, read by a pod that mounts it, which is removed afterwards."""

from __future__ import annotations

import io
import json
import secrets
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from infra.catalog.names import JOB_NAME
from infra.catalog.pins import RAY_IMAGE
from infra.outputs import Outputs
from workloads.client.head import pod_state
from workloads.client.kubectl import Kubectl
from workloads.exits import WorkloadError
from workloads.history.record import END, FOLDERS, JOB, LARGEST_FILE, LARGEST_LOG, PART
from workloads.untrusted import MALFORMED

START_S, LIFE_S, LEFT_S = 300, 900, 60
"""Seconds for the pod to start, after which Kubernetes ends it in any case, and after which it removes what is left."""
POLL_S = 1.0
MOUNT = "/storage"
LARGEST_LIST = 2**26
# tar exits with 1 if a file grew while it was read (GNU tar manual, "Return Values"; read 2026-11-28).
READ = f"""cd {MOUNT}/{"/".join(FOLDERS)} 2>/dev/null || exit 0
for last; do :; done
[ -d "$last" ] || exit 0
tar -cf - "$@"
[ $? -le 1 ]"""


@dataclass(frozen=True, kw_only=True)
class ClaimStore:
    """A claim of a namespace, in the stack's cluster or that of kubectl's current context."""

    name: str
    namespace: str
    claim: str
    outputs: Outputs | None = None

    def documents(self) -> list[dict[str, bytes]]:
        """Return job.json and end.json of each job."""
        return list(self._read(LARGEST_LIST, "--exclude=log.*", ".").values())

    def files(self, folder: str) -> dict[str, bytes]:
        """Return the files of one job."""
        return self._read(LARGEST_LOG + LARGEST_LIST, folder).get(folder, {})

    def _read(self, largest: int, *arguments: str) -> dict[str, dict[str, bytes]]:
        """Return the files of each folder that tar packs with these arguments."""
        outputs = self.outputs
        access = None if outputs is None else outputs.kubeconfig or outputs.context
        image = outputs.storage.image if outputs is not None and outputs.storage is not None else None
        with Kubectl(access, self.namespace) as kubectl, self._pod(kubectl, image or RAY_IMAGE) as pod:
            archive = kubectl.read(
                "exec", pod, "--", "sh", "-c", READ, "sh", *arguments, largest=largest, timeout_s=START_S
            )
        try:
            return _unpacked(archive)
        except (tarfile.TarError, *MALFORMED, OSError) as error:
            raise WorkloadError(f"the answer of pod {pod} is not an archive: {error}") from None

    @contextmanager
    def _pod(self, kubectl: Kubectl, image: str) -> Iterator[str]:
        """Start a pod that mounts the claim, and yield its name when it runs. Its Job ends also without this client."""
        name = f"rdma-ray-read-{secrets.token_hex(4)}"
        file = kubectl.folder / "read.json"
        file.write_text(json.dumps(manifest(name, self.claim, image)), encoding="utf-8")
        try:
            kubectl.run("create", f"--filename={file}")
            deadline = time.monotonic() + START_S
            while True:
                pods = kubectl.get("pods", f"--selector={JOB_NAME}={name}")
                try:
                    state = pod_state(pods[0]) if pods else "not created yet"
                    pod = pods[0]["metadata"]["name"] if pods else ""
                except MALFORMED:
                    raise WorkloadError(f"the pod of Job {name} is not as expected") from None
                if state is None:
                    break
                if time.monotonic() > deadline:
                    raise WorkloadError(f"the pod that reads claim {self.claim} does not start: it is {state}")
                time.sleep(POLL_S)
            yield str(pod)
        finally:
            with suppress(WorkloadError):  # Kubernetes removes it later
                kubectl.run("delete", "job", name, "--wait=false", "--ignore-not-found")


def manifest(name: str, claim: str, image: str) -> dict[str, Any]:
    """Return the Job of a pod that only mounts a claim, without a token of the cluster and for LIFE_S seconds."""
    room = {"cpu": "100m", "memory": "128Mi"}
    container = {
        "name": "read",
        "image": image,
        "command": ["sleep", str(LIFE_S)],
        "resources": {"requests": room, "limits": room},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [{"name": "storage", "mountPath": MOUNT, "readOnly": True}],
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": [{"name": "storage", "persistentVolumeClaim": {"claimName": claim}}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "activeDeadlineSeconds": LIFE_S,
            "ttlSecondsAfterFinished": LEFT_S,
            "backoffLimit": 0,
            "template": {"spec": pod},
        },
    }


def _unpacked(archive: bytes) -> dict[str, dict[str, bytes]]:
    """Return the regular files of records in an archive. Nothing is written to this machine."""
    found: dict[str, dict[str, bytes]] = {}
    if not archive:
        return found
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as opened:
        for member in opened:
            folder, _, name = member.name.removeprefix("./").partition("/")
            small = name in (JOB, END) and member.size <= LARGEST_FILE
            if folder and member.isreg() and (small or PART.fullmatch(name)) and (file := opened.extractfile(member)):
                found.setdefault(folder, {})[name] = file.read()
    return found
