"""Shared folder: an FSx for Lustre file system in front of an S3 bucket, in the zone of the GPU nodes.

The bucket exists before the stack and outlives it. FSx exports changes to the bucket and imports the bucket's changes,
so only the writes of the last minutes exist in the file system alone. The file system is protected nevertheless,
because linking a new one with the bucket takes hours.

With `storage.efa` the servers also answer over EFA. No released node image sets up its Lustre client for it
(amazon-eks-ami PR #2696, closed), so the GPU nodes run `lustre_over_efa.sh` when they boot. A client without this setup
silently uses TCP (awsome-distributed-ai #920).
"""

from __future__ import annotations

import pulumi
import pulumi_aws as aws
from pulumi import ResourceHook, ResourceHookArgs, ResourceHookBinding, ResourceHookOptions, ResourceOptions
from pulumi_kubernetes import core

from infra.catalog.aws import (
    LUSTRE_DELETIONS,
    LUSTRE_DRIVER,
    LUSTRE_EFA_THROUGHPUT,
    LUSTRE_EVENTS,
    LUSTRE_PORTS,
    LUSTRE_THROUGHPUT,
)
from infra.catalog.pins import LUSTRE
from infra.eks.names import EksNames
from infra.eks.network import VpcPlace
from infra.eks.security_groups import rules_between, security_group
from infra.settings.eks_sections import EksStorage

SIZE = "rdma-ray-storage-gib"
"""Tag of the file system's security group with the size of the file system in GiB."""

VOLUME = "shared"
"""Purpose of the PersistentVolume, the end of its name."""
OVER_EFA = ("Lustre over EFA, in", "Lustre over EFA, out")


class SharedFileSystem(pulumi.ComponentResource):
    """File system linked with the bucket.

    Resources that mount it depend on `ready`: the link, which is complete once all objects of the bucket are listed,
    and the rules between nodes and servers.
    """

    id: pulumi.Output[str]
    address: pulumi.Output[str]
    mount_name: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        storage: EksStorage,
        names: EksNames,
        opts: ResourceOptions,
        *,
        place: VpcPlace,
        nodes: pulumi.Input[str],
        efa_nodes: pulumi.Input[str],
    ) -> None:
        """Register the file system; `nodes` and `efa_nodes` are the security groups of the nodes and of their EFA."""
        super().__init__("rdma-ray:eks:SharedFileSystem", name, {}, opts)
        opts = ResourceOptions(parent=self)
        # The file system needs its group, so an update of the group comes first; if it fails, nothing is sent to FSx.
        # A hook of the file system itself would not run: a smaller one is a replacement.
        kept = ResourceHook("keep-file-system", refuse_smaller, ResourceHookOptions(on_dry_run=True))
        group = security_group(
            name,
            "fsx",
            "Lustre between the file system and the nodes",
            names,
            ResourceOptions(parent=self, hooks=ResourceHookBinding(before_update=[kept])),
            vpc=place.vpc,
            tags={SIZE: str(storage.capacity_gib)},
        ).id

        def allow(
            end: str, at: pulumi.Input[str], peer: pulumi.Input[str], inbound: str, outbound: str | None = None
        ) -> list[pulumi.Resource]:
            ports = () if inbound == OVER_EFA[0] else LUSTRE_PORTS
            return rules_between(
                f"{name}-{end}", names, opts, group=at, peer=peer, inbound=inbound, outbound=outbound, ports=ports
            )

        among_servers = allow("servers", group, group, "Lustre from the servers", "Lustre to the servers")
        if storage.efa:
            # FSx creates the file system only if all traffic may pass, also to the clients' group (FSx docs,
            # EFA-enabled file systems).
            among_servers += allow("efa", group, group, *OVER_EFA)
            among_servers += allow("efa-nodes", group, efa_nodes, *OVER_EFA)
            among_servers += allow("nodes-efa", efa_nodes, group, *OVER_EFA)
        system = aws.fsx.LustreFileSystem(
            name,
            subnet_ids=place.gpu,
            security_group_ids=[group],
            deployment_type="PERSISTENT_2",
            storage_type="SSD",
            storage_capacity=storage.capacity_gib,
            per_unit_storage_throughput=LUSTRE_EFA_THROUGHPUT if storage.efa else LUSTRE_THROUGHPUT,
            file_system_type_version=LUSTRE,
            data_compression_type="LZ4",
            # Written when off, too: the provider ignores that it is missing, and the servers would keep EFA.
            efa_enabled=storage.efa,
            metadata_configuration={"mode": "AUTOMATIC"} if storage.efa else None,
            # A file system that is linked with a bucket has no backups; the bucket is the backup.
            automatic_backup_retention_days=0,
            skip_final_backup=True,
            tags=names.tags("shared"),
            opts=ResourceOptions(
                parent=self,
                # FSx tests the rules among its servers during creation and fails without them. The rules with the nodes
                # need the cluster, which takes as long to create, so the file system does not wait for those.
                depends_on=among_servers,
                # Twice the provider's default: large file systems take longer.
                custom_timeouts=pulumi.CustomTimeouts(create="60m", delete="60m"),
            ),
        )
        link = aws.fsx.DataRepositoryAssociation(
            name,
            file_system_id=system.id,
            file_system_path="/",
            data_repository_path=f"s3://{storage.bucket}",
            batch_import_meta_data_on_create=True,
            delete_data_in_filesystem=False,
            s3={
                "auto_import_policy": {"events": [*LUSTRE_EVENTS, LUSTRE_DELETIONS]},
                # Without versioning, an exported deletion is final.
                "auto_export_policy": {
                    "events": [*LUSTRE_EVENTS, *([LUSTRE_DELETIONS] if storage.export_deletions else [])]
                },
            },
            tags=names.tags("shared"),
            opts=ResourceOptions(
                parent=self,
                # FSx lists every object of the bucket first; the provider's default is 10 minutes for each (pulumi-aws
                # 7, fsx.DataRepositoryAssociation).
                custom_timeouts=pulumi.CustomTimeouts(create="4h", delete="60m"),
            ),
        )
        self.ready: list[pulumi.Resource] = [
            link,
            *allow("nodes", group, nodes, "Lustre from the nodes", "Lustre to the nodes"),
            # Without outbound rules: the nodes also have the cluster's group, which allows all outbound traffic.
            *allow("at-nodes", nodes, group, "Lustre from the file system"),
        ]
        self.id, self.address, self.mount_name = system.id, system.dns_name, system.mount_name
        self.register_outputs({"id": self.id})


class SmallerFileSystemError(ValueError):
    """The stack file requests a smaller file system than the existing one."""


def refuse_smaller(args: ResourceHookArgs) -> None:
    """Refuse a smaller size than the group's tag has. A group of an earlier version has no such tag."""
    before, now = (int((inputs or {}).get("tags", {}).get(SIZE, 0)) for inputs in (args.old_inputs, args.new_inputs))
    if now < before:
        raise SmallerFileSystemError(
            f"storage.capacityGib is {now}, and the file system has {before} GiB: FSx for Lustre only grows one, so it"
            " would be deleted, with what is not yet in the bucket, and a new one linked with the bucket. Set"
            f" {before} or more; or end all jobs, remove storage.bucket, run up, and set both again (docs/eks.md)"
        )


class SharedVolume(pulumi.ComponentResource):
    """The file system as a PersistentVolume, which Kubernetes neither creates nor deletes."""

    name: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        storage: EksStorage,
        names: EksNames,
        opts: ResourceOptions,
        *,
        system: SharedFileSystem,
        driver: pulumi.Resource | None,
    ) -> None:
        """Register the volume; `driver` is the add-on that mounts it, None if it is the user's."""
        super().__init__("rdma-ray:eks:SharedVolume", name, {}, opts)
        volume = core.v1.PersistentVolume(
            name,
            metadata={"name": names.named(VOLUME)},
            spec={
                "capacity": {"storage": f"{storage.capacity_gib}Gi"},
                "access_modes": ["ReadWriteMany"],
                "persistent_volume_reclaim_policy": "Retain",
                # Empty here and in the claim, which would otherwise get the default class and never bind.
                "storage_class_name": "",
                "mount_options": ["flock"],
                "csi": {
                    "driver": LUSTRE_DRIVER,
                    "volume_handle": system.id,
                    "volume_attributes": {"dnsname": system.address, "mountname": system.mount_name},
                },
            },
            opts=ResourceOptions(
                parent=self,
                # Earlier, pods would see an empty folder, or fail to mount without the driver or an open port. The
                # provider waits five minutes for a volume and for its claim, and ignores other timeouts
                # (pulumi-kubernetes: provider/pkg/await/awaiters.go, 94977969, 2026-07-01).
                depends_on=[*system.ready, *([driver] if driver else [])],
            ),
        )
        self.name = volume.metadata["name"]
        self.register_outputs({"name": self.name})
