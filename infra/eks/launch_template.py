"""Launch templates: interfaces, disks, metadata service, capacity and first boot of a node group's instances.

The template of a managed node group names no subnet and no image: EKS adds both, and rejects a template with a subnet.
If the template has network interfaces, each of them names the security groups.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from email.mime.multipart import MIMEMultipart
from email.mime.nonmultipart import MIMENonMultipart
from pathlib import Path
from typing import Any

import pulumi
import yaml
from pulumi import ResourceOptions
from pulumi_aws import ec2

from infra.catalog.aws import ROOT_DEVICE, ROOT_GIB, ROOT_THROUGHPUT
from infra.catalog.capacity import EKS_CAPACITIES
from infra.catalog.pins import NODEADM_API
from infra.eks.interfaces import interfaces
from infra.eks.names import GPU_GROUP, SYSTEM_GROUP, EksNames
from infra.settings import EksSettings

METADATA_HOPS = 1
"""Network hops of a response of the instance metadata service. A pod is one hop further away than its node, so it
cannot get the node's credentials; pods on the host network can (terraform-aws-eks v21 has the same value, 2026-08)."""

BOUNDARY = "rdma-ray-node-config"
"""Boundary of the MIME parts. A random one would create a new template version, and new nodes, in every `up`."""

MEMLOCK_BYTES = 2**50
"""Limit of locked memory: a pebibyte, more than any node has. RLIM_INFINITY (2**64 - 1) does not work: nodeadm merges
this into containerd's specification through JSON, whose numbers it reads as floats, and the result would exceed what
the kernel accepts (nodeadm: internal/containerd/base_runtime_spec.go, 603b9f03, read 2026-11; the overflow is
inferred)."""

OPEN_FILES = {"type": "RLIMIT_NOFILE", "soft": 65536, "hard": 1048576}
"""nodeadm's default, repeated because a list replaces the default's list (internal/containerd/base-runtime-spec.json,
6aa77750, read 2026-11; the replacement is inferred from its Merge)."""

LUSTRE_OVER_EFA = (Path(__file__).parent / "lustre_over_efa.sh").read_text(encoding="utf-8")
"""Script of a GPU node with `storage.efa`. AWS' own setup is a download without a version, checksum or signature."""


def system_template(
    name: str, names: EksNames, opts: ResourceOptions, *, security_groups: Sequence[pulumi.Input[str]] = ()
) -> ec2.LaunchTemplate:
    """Register the launch template of the CPU nodes, whose single interface EKS configures.

    Its security group is the cluster's, which EKS adds if the template names none, or else `security_groups`.
    """
    groups = list(security_groups) or None
    return _template(name, SYSTEM_GROUP, names, opts, root_gib=ROOT_GIB, vpc_security_group_ids=groups)


def gpu_template(
    name: str,
    settings: EksSettings,
    names: EksNames,
    opts: ResourceOptions,
    *,
    security_groups: Sequence[pulumi.Input[str]],
    placement_group: pulumi.Input[str] | None,
) -> ec2.LaunchTemplate:
    """Register the launch template of the GPU nodes; every interface has all `security_groups`."""
    machine, capacity = settings.machine, EKS_CAPACITIES[settings.nodes.capacity]
    reservation = str(settings.nodes.reservation)
    kind = "resource_group_arn" if reservation.startswith("arn:") else "id"
    target = {"capacity_reservation_target": {f"capacity_reservation_{kind}": reservation}}
    return _template(
        name,
        GPU_GROUP,
        names,
        opts,
        root_gib=settings.nodes.boot_disk_gib,
        # A Capacity Block is for one type, which the launch template must name and the node group must not.
        instance_type=machine.name if capacity.market_type else None,
        user_data=user_data(node_config(), LUSTRE_OVER_EFA if settings.storage.efa else None),
        network_interfaces=[
            {
                "network_card_index": one.card,
                "device_index": one.device,
                "interface_type": one.kind,
                "security_groups": security_groups,
                "delete_on_termination": "true",
            }
            for one in interfaces(machine, bandwidth_optimized=settings.network.interfaces == "bandwidth-optimised")
        ],
        placement=_in_group(placement_group),
        capacity_reservation_specification=target if capacity.targets_reservation else None,
        # Spot has no market options: the node group requests it, and EKS rejects a template that requests it again.
        instance_market_options={"market_type": capacity.market_type} if capacity.market_type else None,
    )


def _in_group(group: pulumi.Input[str] | None) -> ec2.LaunchTemplatePlacementArgsDict | None:
    """Return the placement in a group, by its name, or by its id if another account shares it."""
    if group is None:
        return None
    by_id = isinstance(group, str) and re.fullmatch(r"pg-[0-9a-f]{8,17}", group)
    return {"group_id": group} if by_id else {"group_name": group}


def _template(
    name: str, group: str, names: EksNames, opts: ResourceOptions, *, root_gib: int, **inputs: Any
) -> ec2.LaunchTemplate:
    return ec2.LaunchTemplate(
        name,
        name=names.named(group),
        description=f"Nodes of group {group}",
        # The default version is the one that the node group uses.
        update_default_version=True,
        block_device_mappings=[
            {
                "device_name": ROOT_DEVICE,
                "ebs": {
                    "volume_size": root_gib,
                    "volume_type": "gp3",
                    "throughput": ROOT_THROUGHPUT,
                    "encrypted": "true",
                    "delete_on_termination": "true",
                },
            }
        ],
        metadata_options={
            "http_endpoint": "enabled",
            "http_tokens": "required",
            "http_put_response_hop_limit": METADATA_HOPS,
        },
        tag_specifications=[
            {"resource_type": kind, "tags": names.node_tags(group)}
            for kind in ("instance", "volume", "network-interface")
        ],
        tags=names.tags(group),
        opts=opts,
        **inputs,
    )


def node_config() -> dict[str, Any]:
    """Return the NodeConfig of a GPU node, without nodeadm's defaults.

    EKS adds a part with the cluster's name, endpoint and certificate. Format: awslabs/amazon-eks-ami, nodeadm docs,
    NodeConfig v1alpha1, 81fec2e, 2026-07-23.
    """
    memory = {"type": "RLIMIT_MEMLOCK", "soft": MEMLOCK_BYTES, "hard": MEMLOCK_BYTES}
    return {
        "apiVersion": NODEADM_API,
        "kind": "NodeConfig",
        "spec": {
            # One RAID 0 of the NVMe disks for containerd and kubelet: images of 20 GB need fast disks.
            "instance": {"localStorage": {"strategy": "RAID0"}},
            # The layers of an image are downloaded and unpacked in parallel, on those disks (the gate of Amazon Linux
            # 2023's NodeConfig; Convox docs, rack parameter fast_image_pull_enable, read 2026-11).
            "featureGates": {"FastImagePull": True},
            # EFA locks the memory that it registers, and NCCL's first buffer exceeds the default of 8 MiB. With the
            # limit raised for every container of the node, no pod needs root and IPC_LOCK for it.
            "containerd": {"baseRuntimeSpec": {"process": {"rlimits": [memory, OPEN_FILES]}}},
        },
    }


def user_data(config: dict[str, Any], script: str | None = None) -> str:
    """Return a NodeConfig, and a shell script for every boot, as user data: base64 of MIME.

    Equal arguments give equal text. The script's type needs cloud-init 22.1 (canonical/cloud-init 600b870b); Amazon
    Linux 2023 has 22.2.2 (its release notes, 2023 to 2026).
    """
    document = MIMEMultipart("mixed", boundary=BOUNDARY)
    document.attach(_part("application", "node.eks.aws", yaml.safe_dump(config, sort_keys=False)))
    if script is not None:
        document.attach(_part("text", "x-shellscript-per-boot", script))
    return base64.b64encode(document.as_bytes()).decode("ascii")


def _part(type_: str, subtype: str, text: str) -> MIMENonMultipart:
    part = MIMENonMultipart(type_, subtype)
    part.set_payload(text)
    return part
