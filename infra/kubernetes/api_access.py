"""What the containers of Ray's pods read from the API server, and by which right. Imports no Pulumi.

An init container reads the place of a worker's node in the network, which orders ranks. The downward API gives a pod
its own labels only (ray #65561). RBAC knows no right to one's own node. Another one checks the node (`ray.check`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.catalog.names import CHECK_FAILED, GPU, GROUP_LABEL, NODE_CHECK, WORKER_GROUP
from infra.kubernetes.pods import (
    ACCOUNT_FOLDER,
    LOGS_FOLDER,
    LOGS_VOLUME,
    UNPRIVILEGED,
    RayArgs,
    role,
    variable,
)
from infra.settings.common import pairs

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
LIST_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
"""The right to read the driver's version of the nodes of other workers."""
WRITE_EVENTS = {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}
"""The right to write an event about a pod or a node."""
EVENTS_NAMESPACE = "default"
"""Namespace of events about nodes (kubernetes 1.36.1: pkg/apis/core/validation/events.go)."""

SCRIPT, CHECK = (Path(__file__).with_name(name) for name in ("init_pod.py", "node_check.py"))
MESSAGE = "/dev/termination-log"
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


def check_node(args: RayArgs) -> dict[str, Any]:
    """Return the init container that does not end on a node that is not as its machine type should be.

    It requests what the worker does: devices that an init container had are those of the first container (kubernetes
    1.36.1: pkg/kubelet/cm/devicemanager/manager.go, devicesToReuse), and containers share the claims of their pod.
    """
    settings, container = args.settings, args.pod.container()
    transport, machine = settings.fabric_row.transport, settings.machine
    rdma = transport.rdma and bool(settings.nics_per_node)
    words = [
        f"--account={ACCOUNT_FOLDER}",
        f"--message={MESSAGE}",
        f"--namespace={settings.namespace}",
        "--node=$(NODE_NAME)",
        "--pod=$(POD_NAME)",
        "--uid=$(POD_UID)",
        f"--container={NODE_CHECK}",
        f"--reason={CHECK_FAILED}",
        f"--workers={GROUP_LABEL}={WORKER_GROUP}",
        f"--gpus={container['resources']['limits'].get(GPU, 0)}",
        *([f"--nics={settings.nics_per_node}"] if rdma else []),
        *(["--all-up"] if rdma and not transport.spare_ports else []),
        *([f"--gbps={machine.gbps_per_nic}"] if rdma and machine is not None and transport.port_rate else []),
        *([] if args.users_cluster else [f"--node-events={EVENTS_NAMESPACE}"]),
        *(["--reduce"] if settings.ray.check == "full" else []),
    ]
    names = {"NODE_NAME": "spec.nodeName", "POD_NAME": "metadata.name", "POD_UID": "metadata.uid"}
    fields = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in names.items()]
    # NCCL needs the variables that the fabric's setup sets, as in the worker.
    setup = f"{args.pod.setup} || exit 1; " if args.pod.setup is not None else ""
    return {
        **container,
        "name": NODE_CHECK,
        "image": settings.ray.image,
        "command": ["/bin/bash", "-c", f'{setup}exec python3 -c "$0" "$@"', CHECK.read_text(encoding="utf-8")],
        "args": words,
        "env": [*(variable(name, value) for name, value in pairs(settings.ray.env)), *container["env"], *fields],
        "terminationMessagePath": MESSAGE,
        "volumeMounts": [*container["volumeMounts"], API_MOUNT],
    }


def check_rights(args: RayArgs) -> list[dict[str, Any]]:
    """Return the Role of the workers' account with which a check compares drivers and reports, and its binding."""
    if args.settings.ray.check == "off" or args.existing_accounts:
        return []
    return role(f"{args.name}-{NODE_CHECK}", [LIST_PODS, WRITE_EVENTS], args.worker_account, args.settings.namespace)


def event_rights(args: RayArgs) -> list[dict[str, Any]]:
    """Return the Role of the workers' account in EVENTS_NAMESPACE, and its binding; none on a cluster of the user's."""
    if args.settings.ray.check == "off" or args.users_cluster:
        return []
    namespace = args.settings.namespace
    return role(f"{namespace}-{args.name}-{NODE_CHECK}", [WRITE_EVENTS], args.worker_account, namespace)
