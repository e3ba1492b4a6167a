"""Invariants of an AWS stack's shared folder: file system, link to the bucket, and mounts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infra.catalog.aws import (
    LUSTRE_DRIVER,
    LUSTRE_EFA_THROUGHPUT,
    LUSTRE_EVENTS,
    LUSTRE_PORTS,
    LUSTRE_THROUGHPUT,
)
from infra.catalog.pins import LUSTRE
from infra.kubernetes.pods import NAMESPACE
from rehearsal.clouds.kind import value_at
from rehearsal.graph import Node
from rehearsal.invariants.eks_resources import (
    CLAIM,
    EGRESS,
    FILE_SYSTEM,
    INGRESS,
    REPOSITORY,
    SECURITY_GROUP,
    SUBNET,
    VOLUME,
    zone_of,
)
from rehearsal.invariants.invariant import Invariant, Stack, at, expect
from rehearsal.invariants.kubernetes import JOB, ray_clusters

HEAD, WORKER = "spec.headGroupSpec.template.spec", "spec.workerGroupSpecs.0.template.spec"


def file_system_is_in_the_gpu_zone(stack: Stack) -> Iterator[str]:
    """The file system has the type, size and zone that the GPUs need, and is linked to the bucket."""
    storage = stack.eks.storage
    if len(stack.of(FILE_SYSTEM)) != (storage.bucket is not None):
        yield f"there are {len(stack.of(FILE_SYSTEM))} file systems"
    for system in stack.of(FILE_SYSTEM):
        yield from expect(
            system,
            deploymentType="PERSISTENT_2",
            storageCapacity=storage.capacity_gib,
            efaEnabled=storage.efa or None,
        )
        found = {zone_of(node) for node in stack.of(SUBNET) if node.id == at(system, "subnetIds")}
        if found != {stack.eks.location}:
            yield f"{system.name} is in {', '.join(sorted(found))}"
        if storage.efa:
            yield from expect(system, metadataConfiguration__mode="AUTOMATIC")
    for link in stack.of(REPOSITORY):
        yield from expect(link, dataRepositoryPath=f"s3://{storage.bucket}", fileSystemPath="/")


def lustre_is_open_both_ways(stack: Stack) -> Iterator[str]:
    """Lustre's ports are open between servers and nodes, in both directions."""
    groups = [node for node in stack.of(SECURITY_GROUP) if _has_file_system(stack, node)]
    for group in groups:
        for low, high in LUSTRE_PORTS:
            for type_ in (INGRESS, EGRESS):
                rules = [
                    node
                    for node in stack.of(type_)
                    if (at(node, "fromPort"), at(node, "toPort")) == (low, high)
                    and at(node, "securityGroupId") == group.id
                ]
                if len(rules) < 2:
                    yield f"{group.name}: ports {low} to {high} have {len(rules)} rules"


def volume_leads_to_the_file_system(stack: Stack) -> Iterator[str]:
    """The volume is the file system; Kubernetes neither creates nor deletes it."""
    for volume in stack.of(VOLUME):
        yield from expect(
            volume,
            spec__csi__driver=LUSTRE_DRIVER,
            spec__persistentVolumeReclaimPolicy="Retain",
            spec__storageClassName="",
            spec__accessModes=["ReadWriteMany"],
        )
        if not any(system.urn in stack.graph.needs(volume.urn) for system in stack.of(FILE_SYSTEM)):
            yield f"{volume.name} refers to no file system of the stack"


def the_file_system_is_as_it_is_documented(stack: Stack) -> Iterator[str]:
    """The file system has a fast type and a pinned release, its own security group, and the bucket as its backup."""
    for system in stack.of(FILE_SYSTEM):
        yield from expect(
            system,
            storageType="SSD",
            fileSystemTypeVersion=LUSTRE,
            perUnitStorageThroughput=LUSTRE_EFA_THROUGHPUT if stack.eks.storage.efa else LUSTRE_THROUGHPUT,
            dataCompressionType="LZ4",
            automaticBackupRetentionDays=0,
            skipFinalBackup=True,
        )
        groups = [group for group in stack.of(SECURITY_GROUP) if group.id in (at(system, "securityGroupIds") or [])]
        if [str(at(group, "name")).rpartition("-")[2] for group in groups] != ["fsx"]:
            yield f"{system.name}: its groups are {[group.name for group in groups]}"


def bucket_and_folder_are_synchronized(stack: Stack) -> Iterator[str]:
    """The bucket's contents are in the folder when `up` ends; changes and deletions are synchronized in both
    directions."""
    for link in stack.of(REPOSITORY):
        yield from expect(
            link,
            batchImportMetaDataOnCreate=True,
            deleteDataInFilesystem=False,
            s3__autoImportPolicy__events=list(LUSTRE_EVENTS),
            s3__autoExportPolicy__events=list(LUSTRE_EVENTS),
        )


def the_claim_gets_the_volume_and_no_other(stack: Stack) -> Iterator[str]:
    """The volume defines how the file system is mounted, and the claim in Ray's namespace binds to it."""
    systems = stack.of(FILE_SYSTEM)
    size = f"{stack.eks.storage.capacity_gib}Gi"
    for volume in stack.of(VOLUME):
        attributes = at(volume, "spec.csi.volumeAttributes") or {}
        found = (at(volume, "spec.csi.volumeHandle"), attributes.get("dnsname"), attributes.get("mountname"))
        if found not in [(one.id, one.outputs.get("dnsName"), one.outputs.get("mountName")) for one in systems]:
            yield f"{volume.name} refers to {found}"
        yield from expect(volume, spec__capacity__storage=size, spec__mountOptions=["flock"])
    if len(stack.of(CLAIM)) != len(systems):
        yield f"there are {len(stack.of(CLAIM))} claims"
    for claim in stack.of(CLAIM):
        yield from expect(
            claim,
            metadata__namespace=NAMESPACE,
            spec__accessModes=["ReadWriteMany"],
            spec__storageClassName="",
            spec__resources__requests__storage=size,
        )
        if at(claim, "spec.volumeName") not in [at(volume, "metadata.name") for volume in stack.of(VOLUME)]:
            yield f"{claim.name} is for {at(claim, 'spec.volumeName')}"


def every_pod_of_ray_has_the_folder(stack: Stack) -> Iterator[str]:
    """Head, workers and pods of a Job mount the claim at storage.mountPath; an init container sets its permissions."""
    if stack.eks.storage.bucket is None:
        return
    path, claims = stack.eks.storage.mount_path, [at(claim, "metadata.name") for claim in stack.of(CLAIM)]
    first = [(ray, at(ray, HEAD)) for ray in ray_clusters(stack)]
    # All pods of a Job are identical.
    first += [(job, at(job, "spec.template.spec")) for job in stack.of(JOB)]
    for node, pod in [*first, *((ray, at(ray, WORKER)) for ray in ray_clusters(stack))]:
        names = [
            volume["name"] for volume in pod["volumes"] if value_at(volume, "persistentVolumeClaim.claimName") in claims
        ]
        mounts = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] in names]
        if [one["mountPath"] for one in mounts] != [path]:
            yield f"{node.name}: the folder is at {mounts}"
    for node, pod in first:
        (opener,) = pod["initContainers"]
        asked: tuple[Any, ...] = (
            opener["command"],
            value_at(opener, "securityContext.runAsUser"),
            [one["mountPath"] for one in opener["volumeMounts"]],
        )
        if asked != (["chmod", "1777", path], 0, [path]):
            yield f"{node.name}: its permissions are set by {asked}"


def _has_file_system(stack: Stack, group: Node) -> bool:
    return any(group.id in (at(node, "securityGroupIds") or []) for node in stack.of(FILE_SYSTEM))


INVARIANTS: tuple[Invariant, ...] = (
    file_system_is_in_the_gpu_zone,
    the_file_system_is_as_it_is_documented,
    bucket_and_folder_are_synchronized,
    lustre_is_open_both_ways,
    volume_leads_to_the_file_system,
    the_claim_gets_the_volume_and_no_other,
    every_pod_of_ray_has_the_folder,
)
