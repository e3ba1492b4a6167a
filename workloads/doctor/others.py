"""Parts of a user's cluster that concern one stack. Others use the cluster, and often the namespace, too: their faults
are not the stack's, and an account may lack the right to see more than the namespace.
"""

from __future__ import annotations

from typing import Any

from infra.catalog.names import JOB_LABEL, KUBERAY_LABELS, RAY_CLUSTER
from infra.outputs import Outputs
from workloads.doctor.objects import labels, name_of, owner_of

Json = dict[str, Any]
CONTROLLERS = (*KUBERAY_LABELS.values(), "kueue")
"""Values of the label app.kubernetes.io/name of the operators' Deployments (charts of KubeRay 1.6.2, Kueue 0.19.2)."""
FORBIDDEN = "(Forbidden)"
"""Part of kubectl's message about a right that the account lacks (kubectl 1.36)."""
SHARED = ("daemon sets", "networks", "network parameters")
"""Sections whose objects are for the whole cluster, and none of them is the stack's."""


def of_stack(outputs: Outputs, found: dict[str, list[Json]]) -> dict[str, list[Json]]:
    """Return the objects by section without those that belong to others."""
    cluster, mark = outputs.ray.cluster, RAY_CLUSTER if outputs.ray.mode == "cluster" else JOB_LABEL
    pods = [pod for pod in found.get("pods", []) if labels(pod).get(mark) == cluster]
    names = {name_of(pod) for pod in pods}
    volumes = [volume for pod in pods for volume in pod["spec"].get("volumes") or []]
    claimed = {(volume.get("persistentVolumeClaim") or {}).get("claimName") for volume in volumes}
    queues = [each for each in found.get("local queues", []) if name_of(each) == outputs.queue]
    behind = {each["spec"].get("clusterQueue") for each in queues}
    used = {pod["spec"].get("nodeName") for pod in pods}
    own = {
        "pods": pods,
        "nodes": [node for node in found.get("nodes", []) if name_of(node) in used],
        "volume claims": [each for each in found.get("volume claims", []) if name_of(each) in claimed],
        "claims": [each for each in found.get("claims", []) if owner_of(each, "Pod") in names],
        "local queues": queues,
        "cluster queues": [each for each in found.get("cluster queues", []) if name_of(each) in behind],
        **{
            section: [each for each in found.get(section, []) if cluster in (name_of(each), owner_of(each))]
            for section in ("rayclusters", "rayjobs", "rayservices", "jobs", "workloads")
        },
        "provisioning requests": [
            each for each in found.get("provisioning requests", []) if labels(each).get(mark) == cluster
        ],
        **{section: [] for section in SHARED},
    }
    return {section: own.get(section, objects) for section, objects in found.items()}


def is_controller(deployment: Json) -> bool:
    """Return whether a Deployment is KubeRay's operator or Kueue, whatever its namespace."""
    return labels(deployment).get("app.kubernetes.io/name") in CONTROLLERS
