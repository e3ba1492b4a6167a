"""How Ray is shaped on AWS: where the head runs, what a worker needs, how the shared folder is mounted.

Values for `infra.kubernetes`, which creates the resources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from infra.catalog.machines import EksMachine
from infra.eks import fabric as fabrics
from infra.eks.names import SYSTEM_NODES, EksNames
from infra.kubernetes.pods import SharedFolder
from infra.kubernetes.queues import Queue
from infra.kubernetes.workload import RayArgs
from infra.settings import EksSettings as Settings

METRICS_NAMESPACE = "monitoring"
"""Namespace whose Prometheus may read metrics; EKS installs none (the usual name, kube-prometheus-stack docs)."""


def ray_args(
    settings: Settings,
    machine: EksMachine,
    names: EksNames,
    *,
    folder: SharedFolder | None = None,
    queue: Queue | None = None,
    depends_on: Sequence[pulumi.Resource] = (),
) -> RayArgs:
    """Return the arguments of the stack's RayCluster, RayJob or Indexed Job."""
    return RayArgs(
        settings=settings,
        name=names.named("ray"),
        head_selector=SYSTEM_NODES,
        head_environment=fabrics.HEAD_ENVIRONMENT,
        pod=fabrics.gpu_pod(settings, machine),
        folder=folder,
        metrics_namespace=METRICS_NAMESPACE,
        queue=queue,
        depends_on=depends_on,
    )


def fsx_folder(mount_path: str, claim: Mapping[str, Any]) -> SharedFolder:
    """The file system as a folder of a pod: by a claim, which is made in the pods' namespace.

    Its root belongs to root, and Ray's images run as another user. The head opens it before it starts, for everybody
    and with the sticky bit: whoever made a file is the one who may delete it.
    """
    return SharedFolder(
        mount_path=mount_path,
        annotations={},
        volume={"persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}},
        objects=(claim,),
        prepare=("chmod", "1777", mount_path),
    )
