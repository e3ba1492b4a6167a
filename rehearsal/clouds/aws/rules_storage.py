"""Rules of FSx for Lustre and its data repositories."""

from __future__ import annotations

import re

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.references import open_within, security_group, strings
from rehearsal.clouds.aws.refusals import FSX_API, FSX_EFA, LUSTRE_PORT, PROVIDER_LUSTRE, refused, unfit
from rehearsal.clouds.kind import Call, Json, Refusal, on, value_at

DEPLOYMENTS = ("SCRATCH_1", "SCRATCH_2", "PERSISTENT_1", "PERSISTENT_2")
THROUGHPUTS = {
    ("PERSISTENT_1", "SSD"): (50, 100, 200),
    ("PERSISTENT_1", "HDD"): (12, 40),
    ("PERSISTENT_2", "SSD"): (125, 250, 500, 1000),
}
"""MB/s per TiB (FSx API reference, perUnitStorageThroughput, read 2026-08)."""
LUSTRE = 988
MOST_REPOSITORIES = 8


def _bad(message: str, source: str = FSX_API) -> Refusal:
    return refused("BadRequest", message, source)


def _deployment(inputs: Json) -> str:
    return str(inputs.get("deploymentType") or "SCRATCH_1")


def _storage(inputs: Json) -> str:
    return str(inputs.get("storageType") or "SSD")


@on("create")
def deployment_unknown(call: Call) -> Refusal | None:
    """The deployment type is scratch or persistent, of one of two generations."""
    if _deployment(call.inputs) in DEPLOYMENTS and _storage(call.inputs) in ("SSD", "HDD", "INTELLIGENT_TIERING"):
        return None
    words = f"expected deployment_type to be one of {list(DEPLOYMENTS)}, got {call.inputs.get('deploymentType')}"
    return unfit(f"{words}, storage_type {call.inputs.get('storageType')}", PROVIDER_LUSTRE)


@on("create", "update")
def capacity_off_steps(call: Call) -> Refusal | None:
    """The capacity is 1200 GiB, or a multiple of 2400."""
    if _storage(call.inputs) == "INTELLIGENT_TIERING" or call.inputs.get("backupId"):
        return None
    size = int(call.inputs.get("storageCapacity") or 0)
    if size < 1200:
        return unfit(f"expected storage_capacity to be at least (1200), got {size}", PROVIDER_LUSTRE)
    step = {"SCRATCH_1": 3600}.get(_deployment(call.inputs), 2400)
    if _storage(call.inputs) == "HDD":
        step = 6000 if call.inputs.get("perUnitStorageThroughput") == 12 else 1800
        fits = size % step == 0
    else:
        fits = size == 1200 or size == 2400 or size % step == 0
    return (
        None
        if fits
        else _bad(f"Invalid storage capacity: {size}. Valid values are 1200, 2400 and increments of {step}.")
    )


@on("update")
def capacity_reduced(call: Call) -> Refusal | None:
    """A file system grows and never shrinks; the provider replaces it instead."""
    now, asked = int(call.live.get("storageCapacity") or 0), int(call.inputs.get("storageCapacity") or 0)
    if asked >= now:
        return None
    return _bad(f"Storage capacity cannot be decreased from {now} to {asked}.", f"{PROVIDER_LUSTRE}; {FSX_API}")


@on("create", "update")
def throughput_invalid(call: Call) -> Refusal | None:
    """Persistent file systems have one of a few throughputs, others have none."""
    deployment, storage = _deployment(call.inputs), _storage(call.inputs)
    asked = call.inputs.get("perUnitStorageThroughput")
    allowed = THROUGHPUTS.get((deployment, storage), ())
    if asked in allowed or (asked is None and not allowed):
        return None
    if not allowed:
        return _bad(f"PerUnitStorageThroughput is not supported for {deployment} with {storage} storage.")
    words = f"PerUnitStorageThroughput {asked} is not supported for {deployment} with {storage} storage."
    return _bad(f"{words} Valid values are {', '.join(map(str, allowed))}.")


@on("create")
def subnet_not_one(call: Call) -> Refusal | None:
    """A file system has one subnet, which exists."""
    subnets = strings(call.inputs.get("subnetIds"))
    if len(subnets) != 1:
        return unfit(f"expected exactly 1 item of subnet_ids, got {len(subnets)}", PROVIDER_LUSTRE)
    if call.state.get(tokens.SUBNET, subnets[0]) is not None:
        return None
    words = f"The subnet ID '{subnets[0]}' does not exist"
    return refused("InvalidNetworkSettings", words, FSX_API)


@on("create")
def groups_elsewhere(call: Call) -> Refusal | None:
    """Security groups of a file system exist, in its VPC."""
    vpc = (call.state.get(tokens.SUBNET, str(call.inputs.get("subnetIds"))) or {}).get("vpcId")
    for group in strings(call.inputs.get("securityGroupIds")):
        live = security_group(call.state, group)
        if live is None or live.get("vpcId") != vpc:
            words = f"The security group '{group}' does not exist in {vpc}"
            return refused("InvalidNetworkSettings", words, FSX_API)
    return None


@on("create")
def lustre_port_closed(call: Call) -> Refusal | None:
    """Servers of a file system reach each other on port 988."""
    groups = strings(call.inputs.get("securityGroupIds"))
    if not groups or any(open_within(call.state, group, LUSTRE) for group in groups):
        return None
    words = (
        "The file system cannot be created because the default security group in the subnet provided or the provided"
    )
    more = "security groups do not permit Lustre LNET network traffic on port 988"
    return refused("InvalidNetworkSettings", f"{words} {more}", LUSTRE_PORT)


@on("create")
def efa_without_conditions(call: Call) -> Refusal | None:
    """EFA needs PERSISTENT_2 with a metadata configuration."""
    if not call.inputs.get("efaEnabled"):
        return None
    if _deployment(call.inputs) == "PERSISTENT_2" and call.inputs.get("metadataConfiguration"):
        return None
    return _bad("EfaEnabled needs deployment type PERSISTENT_2 and a metadata configuration.", FSX_EFA)


@on("create")
def efa_traffic_closed(call: Call) -> Refusal | None:
    """EFA needs a security group that allows all traffic from and to itself."""
    groups = strings(call.inputs.get("securityGroupIds"))
    if not call.inputs.get("efaEnabled") or any(open_within(call.state, group, None) for group in groups):
        return None
    words = "The security groups of an EFA-enabled file system must allow all traffic to and from themselves."
    return refused("InvalidNetworkSettings", words, FSX_EFA)


@on("update")
def efa_throughput_changed(call: Call) -> Refusal | None:
    """An EFA-enabled file system keeps its throughput."""
    name = "perUnitStorageThroughput"
    if not call.live.get("efaEnabled") or call.inputs.get(name) == call.live.get(name):
        return None
    return _bad("PerUnitStorageThroughput cannot be changed on EFA-enabled file systems.", FSX_EFA)


@on("create", "update")
def metadata_invalid(call: Call) -> Refusal | None:
    """Only PERSISTENT_2 has its own metadata throughput, and only user-provisioned mode sets a number."""
    asked = call.inputs.get("metadataConfiguration")
    if not asked:
        return None
    if _deployment(call.inputs) != "PERSISTENT_2":
        return _bad(f"MetadataConfiguration is not supported for {_deployment(call.inputs)}.")
    mode, iops = asked.get("mode") or "AUTOMATIC", asked.get("iops")
    if mode not in ("AUTOMATIC", "USER_PROVISIONED"):
        return unfit(f'expected mode to be one of ["AUTOMATIC" "USER_PROVISIONED"], got {mode}', PROVIDER_LUSTRE)
    steps = {1500, 3000, 6000, *range(12000, 192001, 12000)}
    if (mode == "AUTOMATIC" and iops) or (iops is not None and int(iops) not in steps):
        return _bad(f"Metadata IOPS {iops} are not supported with mode {mode}.")
    return None


@on("create")
def lustre_version_unknown(call: Call) -> Refusal | None:
    """The Lustre version is 2.10, 2.12 or 2.15, and PERSISTENT_2 needs 2.12 or newer."""
    asked = call.inputs.get("fileSystemTypeVersion")
    allowed = ("2.12", "2.15") if _deployment(call.inputs) == "PERSISTENT_2" else ("2.10", "2.12", "2.15")
    if asked in (None, *allowed):
        return None
    return _bad(f"FileSystemTypeVersion {asked} is not supported. Valid values are {', '.join(allowed)}.")


@on("create")
def scratch_with_backups(call: Call) -> Refusal | None:
    """Scratch file systems have no backups and no customer managed key."""
    if not _deployment(call.inputs).startswith("SCRATCH"):
        return None
    for name in ("automaticBackupRetentionDays", "kmsKeyId", "driveCacheType"):
        if call.inputs.get(name):
            return _bad(f"{name[0].upper()}{name[1:]} is not supported for {_deployment(call.inputs)}.")
    return None


@on("create")
def import_path_elsewhere(call: Call) -> Refusal | None:
    """PERSISTENT_2 is linked to a bucket by an association, not by import and export paths."""
    if _deployment(call.inputs) != "PERSISTENT_2":
        return None
    for name in ("importPath", "exportPath", "autoImportPolicy"):
        if call.inputs.get(name):
            words = (
                f"{name[0].upper()}{name[1:]} is not supported for PERSISTENT_2; create a data repository association."
            )
            return _bad(words)
    return None


@on("create")
def repository_paths_invalid(call: Call) -> Refusal | None:
    """A data repository is a bucket or a prefix, at a path of the file system."""
    there, here = str(call.inputs.get("dataRepositoryPath")), str(call.inputs.get("fileSystemPath"))
    if not re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?", there):
        return _bad(f"DataRepositoryPath {there} must begin with s3:// and the name of a bucket.")
    if here.startswith("/"):
        return None
    return _bad(f"FileSystemPath {here} must begin with /.")


@on("create")
def repository_without_file_system(call: Call) -> Refusal | None:
    """The file system of a data repository exists and is not first-generation scratch."""
    id_ = str(call.inputs.get("fileSystemId"))
    live = call.state.get(tokens.FILE_SYSTEM, id_)
    if live is None:
        return refused("FileSystemNotFound", f"File system '{id_}' does not exist.", FSX_API)
    if _deployment(live) != "SCRATCH_1":
        return None
    return _bad("Data repository associations are not supported on SCRATCH_1 file systems.")


@on("create")
def repository_paths_overlap(call: Call) -> Refusal | None:
    """Data repositories of a file system do not overlap, on either side; there are at most eight."""
    mine = [
        live
        for _, _, live in call.state.all(tokens.DATA_REPOSITORY)
        if live.get("fileSystemId") == call.inputs.get("fileSystemId")
    ]
    for key in ("fileSystemPath", "dataRepositoryPath"):
        asked = f"{str(call.inputs.get(key)).rstrip('/')}/"
        for live in mine:
            other = f"{str(live.get(key)).rstrip('/')}/"
            if asked.startswith(other) or other.startswith(asked):
                return _bad(f"{key} {call.inputs.get(key)} overlaps with {live.get(key)} of another association.")
    if len(mine) < MOST_REPOSITORIES:
        return None
    return refused("ServiceLimitExceeded", f"A file system has at most {MOST_REPOSITORIES} associations.", FSX_API)


@on("create", "update")
def repository_events_unknown(call: Call) -> Refusal | None:
    """Automatic import and export cover new, changed or deleted files."""
    for policy in ("autoImportPolicy", "autoExportPolicy"):
        for event in value_at(call.inputs, f"s3.{policy}.events") or []:
            if event not in ("NEW", "CHANGED", "DELETED"):
                return unfit(f'expected events to be one of ["NEW" "CHANGED" "DELETED"], got {event}', FSX_API)
    return None
