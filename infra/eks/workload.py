"""Ray on EKS: the arguments of a stack's workload and its shared folder, FSx for Lustre. Imports no Pulumi."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.eks.names import SYSTEM_NODES
from infra.eks.pod import HEAD_ENVIRONMENT, gpu_pod, queue_args, topology
from infra.kubernetes.pods import RayArgs, SharedFolder
from infra.settings import EksSettings

if TYPE_CHECKING:
    import pulumi

    from infra.settings.eks_sections import EksStorage


def ray_args(settings: EksSettings, name: str, *, volume: pulumi.Input[str] = "") -> RayArgs:
    """Return the arguments of the stack's RayCluster, RayJob or Indexed Job, without resource-dependent parts.

    `volume` is the PersistentVolume of the shared folder; only the folder's claim names it.
    """
    storage, pod = settings.storage, gpu_pod(settings, settings.machine)
    return RayArgs(
        settings=settings,
        name=name,
        pod=pod,
        head_selector=SYSTEM_NODES,
        head_environment=HEAD_ENVIRONMENT,
        topology=topology(settings.machine)[:-1],
        folder=fsx_folder(storage, volume) if storage.bucket else None,
        queue=queue_args(settings, pod) if settings.queue == "kueue" else None,
    )


def fsx_folder(storage: EksStorage, volume: pulumi.Input[str]) -> SharedFolder:
    """Return the file system as a folder of pods, through a claim on the PersistentVolume in their namespace.

    The root of the file system belongs to root, and Ray's images run as another user. The head therefore makes it
    writable for every user before it starts. With the sticky bit, only a file's owner can delete it.
    """
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "shared"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            # Empty, as on the volume.
            "storageClassName": "",
            "volumeName": volume,
            "resources": {"requests": {"storage": f"{storage.capacity_gib}Gi"}},
        },
    }
    return SharedFolder(
        mount_path=storage.mount_path,
        annotations={},
        volume={"persistentVolumeClaim": {"claimName": "shared"}},
        objects=(claim,),
        prepare=("chmod", "1777", storage.mount_path),
    )
