"""What the containers of Ray's pods read from the API server, and by which right. Imports no Pulumi.

An init container reads the place of a worker's node in the network, which orders ranks. The downward API gives a pod
its own labels only (ray #65561). The account may get nodes and nothing else; RBAC knows no right to one's own node.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.kubernetes.pods import ACCOUNT_FOLDER, LOGS_FOLDER, LOGS_VOLUME, UNPRIVILEGED, RayArgs, role

API_ACCESS = "kubernetes-api"
"""Volume with a token of the pod's account. Only the containers that need it mount it: users' jobs run in the first
container of a pod."""
API_MOUNT = {"name": API_ACCESS, "mountPath": ACCOUNT_FOLDER, "readOnly": True}
API_CREDENTIALS = (
    {"serviceAccountToken": {"path": "token"}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
)
API_VOLUME = {"name": API_ACCESS, "projected": {"sources": API_CREDENTIALS}}

PLACE = f"{LOGS_FOLDER}/place.yaml"
"""File of `ray start --labels-file` in a worker's pod. KubeRay's own way, labels of the group, knows no node."""

GET_NODES = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}
"""The right to read a place."""

SCRIPT = Path(__file__).with_name("init_pod.py")
ROOM = {"cpu": "100m", "memory": "128Mi"}
"""Resources of an init container, without which a ResourceQuota refuses its pod. They are less than the pod's own."""


def reads_object(name: str, image: str, path: str, *arguments: str, **variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the init container that reads the object at a path of the API server, and writes into Ray's folder.

    Args:
        arguments: Of the script.
        variables: Sources of its variables, by name.
    """
    return {
        "name": name,
        "image": image,
        "command": ["python3", "-c", SCRIPT.read_text(encoding="utf-8")],
        "args": [f"--account={ACCOUNT_FOLDER}", f"--object={path}", *arguments],
        **({"env": [{"name": key, "valueFrom": source} for key, source in variables.items()]} if variables else {}),
        "resources": {"requests": ROOM, "limits": ROOM},
        "securityContext": UNPRIVILEGED,
        "volumeMounts": [API_MOUNT, {"name": LOGS_VOLUME, "mountPath": LOGS_FOLDER}],
    }


def read_place(args: RayArgs) -> dict[str, Any]:
    """Return the init container of a worker that writes the place of its node."""
    node = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    path = "/api/v1/nodes/$(NODE_NAME)"
    return reads_object("node-place", args.settings.ray.image, path, f"--place={PLACE}", *args.topology, NODE_NAME=node)


def node_rights(args: RayArgs) -> list[dict[str, Any]]:
    """Return the ClusterRole of the workers' account and its binding; none on a cluster of the user's."""
    if not args.topology or args.users_cluster or args.settings.ray.mode == "indexed-job":
        return []
    account, namespace = args.worker_account, args.settings.namespace
    return role(f"{namespace}-{account}-nodes", [GET_NODES], account, namespace, whole_cluster=True)
