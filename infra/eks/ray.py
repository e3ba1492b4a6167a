"""How Ray is shaped on AWS: where the head runs, what a worker needs, how the shared folder is mounted.

Pure: values for `infra.kubernetes`, which makes the resources.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.catalog.machines import EksMachine
from infra.eks import fabric as fabrics
from infra.eks.names import SYSTEM_NODES, EksNames
from infra.kubernetes.shared_folder import SharedFolder
from infra.kubernetes.workload_shape import CloudSide
from infra.settings import EksSettings as Settings


def cloud_side(settings: Settings, machine: EksMachine, names: EksNames, folder: SharedFolder | None) -> CloudSide:
    """What this cloud decides about the stack's workload."""
    return CloudSide(
        name=names.named("ray"),
        head_selector=SYSTEM_NODES,
        head_environment=fabrics.HEAD_ENVIRONMENT,
        pod=fabrics.gpu_pod(settings, machine),
        folder=folder,
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
