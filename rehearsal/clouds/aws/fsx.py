"""File systems of FSx for Lustre, and their data repositories."""

from __future__ import annotations

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.outputs import arn, hexadecimal, kind, region_of, regional, takes
from rehearsal.clouds.aws.references import open_within, strings, to, to_named, vpc_of
from rehearsal.clouds.constraints import rule
from rehearsal.engine.kind import Call, Json
from rehearsal.engine.values import UNKNOWN, blocks, digest, kept

LUSTRE = 988


def compute_file_system(call: Call) -> Json:
    """Return the names for mounting."""
    region = region_of(call.inputs, call.config)
    first = call.inputs.get("deploymentType") in (None, "SCRATCH_1")
    metadata = {"metadataConfiguration": {"iops": 1500}} if call.inputs.get("metadataConfiguration") else {}
    return {
        **regional(call),
        "arn": arn(call, "fsx", f"file-system/{call.id}"),
        "dnsName": f"{call.id}.fsx.{region}.amazonaws.com",
        "mountName": "fsx" if first else digest(call.id, 8),
        "vpcId": vpc_of(call.state, call.inputs.get("subnetIds")),
        "networkInterfaceIds": [hexadecimal("eni", f"{call.id} {number}") for number in range(2)],
        **blocks(call, metadata),
        **kept(call, {"deploymentType": "SCRATCH_1", "storageType": "SSD", "fileSystemTypeVersion": "2.15"}),
        **kept(call, {"efaEnabled": False, "skipFinalBackup": True, "weeklyMaintenanceStartTime": "7:05:00"}),
    }


def compute_data_repository(call: Call) -> Json:
    """Return the ARN."""
    return {
        **regional(call),
        "arn": arn(call, "fsx", f"association/{call.inputs.get('fileSystemId')}/{call.id}"),
        "associationId": call.id,
        **blocks(call, {"s3": {}}),
        **kept(call, {"importedFileChunkSize": 1024, "batchImportMetaDataOnCreate": False}),
    }


def smaller(before: Json, now: Json) -> frozenset[str]:
    """Return the size if a file system would shrink, or is of the first kind, which cannot grow either.

    Source: hashicorp/terraform-provider-aws, internal/service/fsx/lustre_file_system.go:
    resourceLustreFileSystemStorageCapacityCustomizeDiff, read 2026-11-26.
    """
    old, new = (each.get("storageCapacity") for each in (before, now))
    if old is None or new is None or old == new or UNKNOWN in (old, new):
        return frozenset()
    first = now.get("deploymentType") in (None, "SCRATCH_1")
    return frozenset({"storageCapacity"} if first or int(new) < int(old) else ())


@rule(
    "create",
    refused="kubernetes-sigs/aws-fsx-csi-driver#32, 2019-03-08",
    accepted="hashicorp/terraform-provider-aws 57e68ad2, TestAccFSxLustreFileSystem_securityGroupIDs",
    status="400 InvalidNetworkSettings",
)
def lustre_port_closed(call: Call) -> str | None:
    """Servers of a file system reach each other on port 988."""
    groups = strings(call.inputs.get("securityGroupIds"))
    if not groups or any(open_within(call.state, group, LUSTRE) for group in groups):
        return None
    words = "The file system cannot be created because the default security group in the subnet provided or the"
    return f"{words} provided security groups do not permit Lustre LNET network traffic on port {LUSTRE}"


@rule(
    refused="awslabs/awsome-distributed-ai#1124, 2026-06-09",
    accepted="hashicorp/terraform-provider-aws, TestAccFSxLustreFileSystem_efaEnabled, read 2026-11",
    status="400 BadRequest",
)
def efa_capacity_too_small(call: Call) -> str | None:
    """An EFA-enabled file system has at least 4.8 GB/s of throughput, as a reviewer quotes the FSx docs."""
    throughput, size = call.inputs.get("perUnitStorageThroughput"), call.inputs.get("storageCapacity")
    if not call.inputs.get("efaEnabled") or not throughput or not size or int(throughput) * int(size) >= 4_800_000:
        return None
    return f"The storage capacity of an EFA-enabled file system must be at least {4_800_000 // int(throughput)} GiB."


FILE_SYSTEM = kind(
    tokens.FILE_SYSTEM,
    "fs",
    compute_file_system,
    immutable="copyTagsToBackups deploymentType driveCacheType efaEnabled exportPath fileSystemTypeVersion importPath "
    "importedFileChunkSize perUnitStorageThroughput storageType",
    replace_if=smaller,
    references=(
        to("subnetIds", tokens.SUBNET, holds=True),
        to("securityGroupIds", tokens.SECURITY_GROUP, holds=True),
        to_named("kmsKeyId", tokens.KEY),
    ),
    rules=(efa_capacity_too_small, lustre_port_closed),
    cascade=takes("fileSystemId", tokens.DATA_REPOSITORY),
    awaited=True,
)
DATA_REPOSITORY = kind(
    tokens.DATA_REPOSITORY,
    "dra",
    compute_data_repository,
    references=(to("fileSystemId", tokens.FILE_SYSTEM),),
    awaited=True,
)
