"""The objects that pods need beside them: those of a `GpuPod`, and those of the shared folder."""

from __future__ import annotations

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes.apiextensions import CustomResource

from infra.fabric import GpuPod
from infra.kubernetes.shared_folder import SharedFolder

CLUSTER_SCOPED = ("DeviceClass",)
"""Kinds among a pod's objects that have no namespace."""


def beside(
    pod: GpuPod, namespace: pulumi.Input[str], opts: ResourceOptions, folder: SharedFolder | None = None
) -> list[CustomResource]:
    """The pod's objects and the folder's, in the pod's namespace where they have one."""
    return [
        CustomResource(
            manifest["metadata"]["name"],
            api_version=manifest["apiVersion"],
            kind=manifest["kind"],
            metadata={
                **manifest["metadata"],
                **({} if manifest["kind"] in CLUSTER_SCOPED else {"namespace": namespace}),
            },
            spec=manifest["spec"],
            opts=opts,
        )
        for manifest in (*pod.objects, *(folder.objects if folder else ()))
    ]
