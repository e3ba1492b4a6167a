"""The objects that pods need beside them: those of a `GpuPod`, and those of the shared folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes import core, meta
from pulumi_kubernetes.apiextensions import CustomResource

from infra.fabric import GpuPod
from infra.kubernetes.facts import CLUSTER_SCOPED
from infra.kubernetes.shared_folder import SharedFolder


def beside(
    pod: GpuPod, namespace: pulumi.Input[str], opts: ResourceOptions, folder: SharedFolder | None = None
) -> list[pulumi.Resource]:
    """The pod's objects and the folder's, in the pod's namespace where they have one."""
    manifests = (*pod.objects, *(folder.objects if folder else ()))
    return [_made(manifest, namespace, opts) for manifest in manifests]


def _made(manifest: Mapping[str, Any], namespace: pulumi.Input[str], opts: ResourceOptions) -> pulumi.Resource:
    name, kind = manifest["metadata"]["name"], manifest["kind"]
    metadata = {**manifest["metadata"], **({} if kind in CLUSTER_SCOPED else {"namespace": namespace})}
    if kind == "PersistentVolumeClaim":
        # The provider waits until a claim is bound, by the type that the SDK has for it.
        return core.v1.PersistentVolumeClaim(
            name,
            metadata=cast("meta.v1.ObjectMetaArgsDict", metadata),
            # The SDK hands Kubernetes' own field names on as they are.
            spec=cast("core.v1.PersistentVolumeClaimSpecArgsDict", manifest["spec"]),
            opts=opts,
        )
    return CustomResource(
        name, api_version=manifest["apiVersion"], kind=kind, metadata=metadata, spec=manifest["spec"], opts=opts
    )
