"""The objects that a `GpuPod` needs beside it, such as the template of its claim."""

from __future__ import annotations

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes.apiextensions import CustomResource

from infra.fabric import GpuPod

CLUSTER_SCOPED = ("DeviceClass",)
"""Kinds among a pod's objects that have no namespace."""


def beside(pod: GpuPod, namespace: pulumi.Input[str], opts: ResourceOptions) -> list[CustomResource]:
    """The pod's objects, in the pod's namespace where they have one."""
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
        for manifest in pod.objects
    ]
