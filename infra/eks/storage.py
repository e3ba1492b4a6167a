"""The shared folder: a file system of FSx for Lustre in front of a bucket, in the zone of the GPU nodes.

The bucket exists beforehand and outlives the stack. What is written to the file system goes to the bucket by itself,
and what the bucket gets appears in the file system; so the file system holds nothing that the bucket does not get, but
for what was written in its last minutes. It is under the stack's protection all the same: linking it anew takes hours.

With `storage.efa` the servers also answer over EFA. The nodes' Lustre client then has to be set up by a script of AWS'
that no released node image runs by itself (amazon-eks-ami PR #2696, closed), so the GPU nodes run it when they start
(`infra.eks.user_data`); a client without it uses TCP, silently (awsome-distributed-ai #920).
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions
from pulumi_kubernetes import core, meta

from infra.catalog.aws import (
    LUSTRE_DRIVER,
    LUSTRE_EFA_THROUGHPUT,
    LUSTRE_EVENTS,
    LUSTRE_PORTS,
    LUSTRE_THROUGHPUT,
)
from infra.catalog.pins import LUSTRE
from infra.eks.names import EksNames
from infra.eks.security_groups import everything_between

ROOT = "/"


@dataclass(frozen=True, kw_only=True)
class SharedFileSystemArgs:
    """nodes: the security group of the nodes; efa_nodes: that of their EFA traffic. size_gib: its size in GiB."""

    names: EksNames
    bucket: str
    size_gib: int
    efa: bool
    vpc: pulumi.Input[str]
    subnet: pulumi.Input[str]
    nodes: pulumi.Input[str]
    efa_nodes: pulumi.Input[str]


class SharedFileSystem(pulumi.ComponentResource):
    """The file system, linked with the bucket.

    Whoever mounts it waits for `needs`: the link, which is done when the names of all objects are there, and the rules
    between nodes and servers.
    """

    id: pulumi.Output[str]
    address: pulumi.Output[str]
    mount_name: pulumi.Output[str]

    def __init__(self, name: str, args: SharedFileSystemArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:eks:SharedFileSystem", name, {}, opts)
        group = aws.ec2.SecurityGroup(
            name,
            name=args.names.security_group("fsx"),
            description="Lustre between the file system and the nodes",
            vpc_id=args.vpc,
            tags=args.names.tags("fsx"),
            opts=ResourceOptions(parent=self),
        )
        own_rules = self._among_servers(name, group.id, args)
        system = aws.fsx.LustreFileSystem(
            name,
            subnet_ids=args.subnet,
            security_group_ids=[group.id],
            deployment_type="PERSISTENT_2",
            storage_type="SSD",
            storage_capacity=args.size_gib,
            per_unit_storage_throughput=LUSTRE_EFA_THROUGHPUT if args.efa else LUSTRE_THROUGHPUT,
            file_system_type_version=LUSTRE,
            data_compression_type="LZ4",
            efa_enabled=True if args.efa else None,
            metadata_configuration=aws.fsx.LustreFileSystemMetadataConfigurationArgs(mode="AUTOMATIC")
            if args.efa
            else None,
            # A file system that is linked with a bucket has no backups; the bucket is one.
            automatic_backup_retention_days=0,
            skip_final_backup=True,
            tags=args.names.tags("shared"),
            opts=ResourceOptions(
                parent=self,
                # FSx tries the rules among its servers while it makes the file system, and fails without them. Those
                # with the nodes come with the cluster, which takes as long to make: nobody has to wait for both.
                depends_on=own_rules,
                custom_timeouts=pulumi.CustomTimeouts(create="60m", delete="60m"),
            ),
        )
        link = aws.fsx.DataRepositoryAssociation(
            name,
            file_system_id=system.id,
            file_system_path=ROOT,
            data_repository_path=f"s3://{args.bucket}",
            batch_import_meta_data_on_create=True,
            delete_data_in_filesystem=False,
            s3=aws.fsx.DataRepositoryAssociationS3Args(
                auto_import_policy=aws.fsx.DataRepositoryAssociationS3AutoImportPolicyArgs(events=list(LUSTRE_EVENTS)),
                auto_export_policy=aws.fsx.DataRepositoryAssociationS3AutoExportPolicyArgs(events=list(LUSTRE_EVENTS)),
            ),
            tags=args.names.tags("shared"),
            opts=ResourceOptions(parent=self),
        )
        self.needs: list[pulumi.Resource] = [link, *self._with_nodes(name, group.id, args)]
        self.id = system.id
        self.address = system.dns_name
        self.mount_name = system.mount_name
        self.register_outputs({"id": self.id})

    def _among_servers(self, name: str, group: pulumi.Output[str], args: SharedFileSystemArgs) -> list[pulumi.Resource]:
        own = ResourceOptions(parent=self)
        rules = [*_lustre(f"{name}-servers", args.names, group, group, "servers", own)]
        if args.efa:
            # All traffic, also with the clients' group, or FSx refuses to make it (FSx docs, EFA-enabled file systems).
            rules += everything_between(f"{name}-efa", args.names, group, group, "Lustre over EFA", own)
            rules += everything_between(f"{name}-efa-nodes", args.names, group, args.efa_nodes, "Lustre over EFA", own)
            rules += everything_between(f"{name}-nodes-efa", args.names, args.efa_nodes, group, "Lustre over EFA", own)
        return rules

    def _with_nodes(self, name: str, group: pulumi.Output[str], args: SharedFileSystemArgs) -> list[pulumi.Resource]:
        own = ResourceOptions(parent=self)
        return [
            *_lustre(f"{name}-nodes", args.names, group, args.nodes, "nodes", own),
            # The way out of the nodes' group is open already: it is the cluster's.
            *_lustre(f"{name}-at-nodes", args.names, args.nodes, group, "file system", own, out=False),
        ]


def _lustre(
    name: str,
    names: EksNames,
    group: pulumi.Input[str],
    peer: pulumi.Input[str],
    what: str,
    opts: ResourceOptions,
    *,
    out: bool = True,
) -> list[pulumi.Resource]:
    """Let Lustre into a group from a peer, and out to it."""
    rules: list[pulumi.Resource] = []
    for low, high in LUSTRE_PORTS:
        rules.append(
            aws.vpc.SecurityGroupIngressRule(
                f"{name}-in-{low}",
                security_group_id=group,
                referenced_security_group_id=peer,
                ip_protocol="tcp",
                from_port=low,
                to_port=high,
                description=f"Lustre from the {what}",
                tags=names.tags(f"{name}-in-{low}"),
                opts=opts,
            )
        )
        if out:
            rules.append(
                aws.vpc.SecurityGroupEgressRule(
                    f"{name}-out-{low}",
                    security_group_id=group,
                    referenced_security_group_id=peer,
                    ip_protocol="tcp",
                    from_port=low,
                    to_port=high,
                    description=f"Lustre to the {what}",
                    tags=names.tags(f"{name}-out-{low}"),
                    opts=opts,
                )
            )
    return rules


@dataclass(frozen=True, kw_only=True)
class SharedVolumeArgs:
    """size_gib: as the file system has. driver: the add-on that mounts it."""

    names: EksNames
    system: SharedFileSystem
    size_gib: int
    driver: pulumi.Resource


class SharedVolume(pulumi.ComponentResource):
    """The file system as a PersistentVolume, which Kubernetes neither makes nor deletes."""

    name: pulumi.Output[str]

    def __init__(self, name: str, args: SharedVolumeArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:eks:SharedVolume", name, {}, opts)
        volume = core.v1.PersistentVolume(
            name,
            metadata=meta.v1.ObjectMetaArgs(name=args.names.shared_volume),
            spec=core.v1.PersistentVolumeSpecArgs(
                capacity={"storage": f"{args.size_gib}Gi"},
                access_modes=["ReadWriteMany"],
                persistent_volume_reclaim_policy="Retain",
                # Empty on both sides: a claim without the field gets the default class, and never binds to this.
                storage_class_name="",
                mount_options=["flock"],
                csi=core.v1.CSIPersistentVolumeSourceArgs(
                    driver=LUSTRE_DRIVER,
                    volume_handle=args.system.id,
                    volume_attributes={"dnsname": args.system.address, "mountname": args.system.mount_name},
                ),
            ),
            opts=ResourceOptions(
                parent=self,
                # Pods would mount an empty folder, or fail for want of a driver or of an open port.
                depends_on=[*args.system.needs, args.driver],
            ),
        )
        self.name = volume.metadata["name"]
        self.register_outputs({"name": self.name})
