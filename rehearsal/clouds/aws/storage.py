"""File systems, buckets and image repositories: ids, computed outputs and replacement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.outputs import ACCOUNT, arn, hexadecimal, partition_of, region_of, regional
from rehearsal.clouds.kind import Call, Json
from rehearsal.clouds.values import blocks, digest, kept

# ForceNew in `refusals.PROVIDER_LUSTRE`; efaEnabled and the blocks added later are unverified, 2026-11. A smaller
# storageCapacity replaces, a larger one does not: the simulation updates both in place.
FILE_SYSTEM_REPLACES = frozenset(
    {
        *("region", "backupId", "copyTagsToBackups", "deploymentType", "driveCacheType", "exportPath", "importPath"),
        *("fileSystemTypeVersion", "importedFileChunkSize", "kmsKeyId", "securityGroupIds", "storageType", "subnetIds"),
        *("efaEnabled", "perUnitStorageThroughput"),
    }
)
DATA_REPOSITORY_REPLACES = frozenset(
    {"region", "fileSystemId", "fileSystemPath", "dataRepositoryPath", "batchImportMetaDataOnCreate"}
)
BUCKET_REPLACES = frozenset({"region", "bucket", "bucketPrefix", "objectLockEnabled"})
OF_BUCKET_REPLACES = frozenset({"region", "bucket"})
REPOSITORY_REPLACES = frozenset({"region", "name", "encryptionConfigurations"})


def compute_file_system(call: Call) -> Json:
    """Return the names for mounting."""
    region = region_of(call.inputs, call.config)
    subnet = call.state.get(tokens.SUBNET, str(call.inputs.get("subnetIds"))) or {}
    scratch = str(call.inputs.get("deploymentType") or "SCRATCH_1").startswith("SCRATCH")
    metadata = call.inputs.get("metadataConfiguration")
    return {
        **regional(call),
        "arn": arn(call, "fsx", f"file-system/{call.id}"),
        "ownerId": ACCOUNT,
        "dnsName": f"{call.id}.fsx.{region}.amazonaws.com",
        "mountName": "fsx" if call.inputs.get("deploymentType") in (None, "SCRATCH_1") else digest(call.id, 8),
        "vpcId": subnet.get("vpcId", ""),
        "networkInterfaceIds": [hexadecimal("eni", f"{call.id} {number}") for number in range(2)],
        **(blocks(call, {"metadataConfiguration": {"iops": 1500}}) if metadata else {}),
        **blocks(call, {"logConfiguration": {"destination": "", "level": "DISABLED"}}),
        **kept(
            call,
            {
                "deploymentType": "SCRATCH_1",
                "storageType": "SSD",
                "dataCompressionType": "NONE",
                "fileSystemTypeVersion": "2.15",
                "automaticBackupRetentionDays": 0,
                "dailyAutomaticBackupStartTime": "",
                "weeklyMaintenanceStartTime": "7:05:00",
                "kmsKeyId": "" if scratch else arn(call, "kms", f"key/{digest(call.id, 8)}-aws-fsx"),
                "efaEnabled": False,
                "copyTagsToBackups": False,
                "skipFinalBackup": True,
                "autoImportPolicy": "NONE",
                "exportPath": "",
                "importedFileChunkSize": 0,
            },
        ),
    }


def compute_data_repository(call: Call) -> Json:
    """Return the ARN."""
    return {
        **regional(call),
        "arn": arn(call, "fsx", f"association/{call.inputs.get('fileSystemId')}/{call.id}"),
        "associationId": call.id,
        **blocks(call, {"s3": {}}),
        **kept(call, {"importedFileChunkSize": 1024, "batchImportMetaDataOnCreate": False}),
        **kept(call, {"deleteDataInFilesystem": False}),
    }


def goes_with_file_system(call: Call, type_: str, live: Json) -> bool:
    """Return whether a data repository association is deleted with the file system."""
    return type_ == tokens.DATA_REPOSITORY and live.get("fileSystemId") == call.id


def identify_bucket(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return the name, which is globally unique."""
    return str(inputs.get("bucket") or f"{inputs.get('bucketPrefix') or 'bucket-'}{digest(str(sorted(inputs)), 7)}")


def identify_of_bucket(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return the name of the bucket: each setting of a bucket exists once."""
    return str(inputs.get("bucket"))


def compute_bucket(call: Call) -> Json:
    """Return the bucket's host names."""
    region = region_of(call.inputs, call.config)
    return {
        **regional(call),
        "bucket": call.id,
        "arn": f"arn:{partition_of(region)}:s3:::{call.id}",
        "bucketRegion": region,
        "bucketDomainName": f"{call.id}.s3.amazonaws.com",
        "bucketRegionalDomainName": f"{call.id}.s3.{region}.amazonaws.com",
        "hostedZoneId": "Z3AQBSTGFYJSTF",
        **kept(call, {"requestPayer": "BucketOwner", "objectLockEnabled": False, "forceDestroy": False}),
    }


def compute_of_bucket(call: Call) -> Json:
    """Return the region."""
    return {"region": region_of(call.inputs, call.config)}


def identify_repository(inputs: Json, _config: Mapping[str, Any]) -> str:
    """Return the name."""
    return str(inputs.get("name") or f"repository-{digest(str(sorted(inputs)), 7)}")


def compute_repository(call: Call) -> Json:
    """Return the URL."""
    region = region_of(call.inputs, call.config)
    return {
        **regional(call),
        "name": call.id,
        "arn": arn(call, "ecr", f"repository/{call.id}"),
        "registryId": ACCOUNT,
        "repositoryUrl": f"{ACCOUNT}.dkr.ecr.{region}.amazonaws.com/{call.id}",
        **kept(call, {"imageTagMutability": "MUTABLE", "forceDelete": False}),
    }
