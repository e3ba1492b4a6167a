"""Stack file of a cluster on AWS: its rules. infra/settings/eks_sections.py has its sections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv4Network
from typing import Annotated, Literal

from infra.addresses import EksAddresses, eks_addresses
from infra.catalog.aws import (
    ENDPOINT_SERVICES,
    LUSTRE_EFA_THROUGHPUT,
    LUSTRE_THROUGHPUT,
    is_local_zone,
    is_zone_id,
    region_of,
    zone_region,
)
from infra.catalog.capacity import BLOCKS, TOOLKIT
from infra.catalog.fabrics import CHEATSHEET, OBSOLETE, fabrics_of, from_zero
from infra.catalog.machines import EKS_CATALOG, EksMachine
from infra.catalog.pins import EKS
from infra.catalog.prices import price_of_item
from infra.settings.cloud import KUBERNETES_LIMITS, CloudSettings, NameLimit, not_a_bucket, not_a_zone
from infra.settings.common import pairs
from infra.settings.cost import ZONES, Part
from infra.settings.eks_sections import (
    SMALLEST_EFA_GIB,
    SMALLEST_GIB,
    STEP_GIB,
    EksAccess,
    EksKubernetes,
    EksNetwork,
    EksNodes,
    EksRay,
    EksStorage,
)
from infra.settings.fields import OneOf
from infra.settings.problems import CONTRACT, Finding, Findings, Problem, rule

ACCESS_ENTRIES = "EKS docs access-entries; IAM docs, ARNs; unverified, 2026-11"
BUCKETS = "Amazon S3 docs, general purpose bucket naming rules; checked 2026-11"
DRANET = "aws/eks-charts: aws-dranet 1.0.0, 5239609, 2026-08-03; inferred from the Cluster Autoscaler"
EC2_NAMES = "EC2 API reference: launch template name at most 128, of a-z, A-Z, 0-9, ( ) . / and _; unverified, 2026-11"
EC2_RESERVATIONS = "EC2 docs, create-cr-group, read 2026-11-27; the forms of ids and ARNs are unverified"
EFA = "EC2 docs, Elastic Fabric Adapter: EFA traffic does not leave its availability zone, read 2026-08"
EKS_NAMES = "EKS API reference, RegisterCluster: a name has 1 to 100 of A-Z, a-z, 0-9, - and _; read 2026-11-28"
INTERFACES = "EC2 docs efa-acc-inst-types, read 2026-08; ai-on-eks: efa-networkinterfaces-generator"
EC2_GROUPS = "EC2 API reference, CreatePlacementGroup: up to 255 ASCII characters, read 2026-11-26"
LOCAL_ZONES = "EKS docs local-zones, read 2026-11-26; awslabs/awsome-distributed-ai #1227"
PLACEMENT = "aws/aws-parallelcluster #6311, 2024-06-25: no placement group with CAPACITY_BLOCK"
KERNEL = "EKS AMI v20260818: kernel 6.18 for 1.36, 6.12 for 1.35; FSx docs searched 2026-11-27"
LUSTRE = "FSx for Lustre docs, deployment and storage class options; unverified, 2026-11"
LUSTRE_CLIENTS = "FSx for Lustre docs, configure-efa-clients, read 2026-11"
LUSTRE_EFA = "FSx for Lustre docs, EFA-enabled file systems; aws-fsx-csi-driver v1.9.0 example, read 2026-08"
LUSTRE_EFA_SIZES = "FSx for Lustre docs, increase-storage-capacity: 4800 GiB at 1000 MBps/TiB; read 2026-11-26"
PARTITIONS = "EKS docs add-ons-images: GovCloud and China have separate registries; zone ids unverified, 2026-11"
REGISTRIES = "KubeRay, NVIDIA and Cluster Autoscaler charts: images at quay.io, nvcr.io, registry.k8s.io; read 2026-11"
SUBNETS = "EKS docs network-reqs: subnets in at least two availability zones; unverified, 2026-11"

BANDWIDTH_OPTIMISED = ("p5.48xlarge", "p5e.48xlarge")
WITHOUT_STORAGE_EFA = ("p4d.24xlarge", "p4de.24xlarge")
FROM_ZERO = from_zero("eks")
LUSTRE_EFA_NODES = 128
LONGEST_GROUP = 255
NORMAL_ZONE = "choose an availability zone of the region"
ZONE = r"[a-z]{2}(-[a-z]+)+-\d+(-[a-z]{3}-\d)?[a-z]|[a-z]{3,5}\d(-[a-z]{3}\d)?-az\d"

NAME_LIMITS = (
    NameLimit("EKS cluster", 100, "", EKS_NAMES),
    # Node groups are named within their cluster; IAM roles are cut to fit (infra/eks/names.py).
    NameLimit("launch template", 128, "-system", EC2_NAMES),
    *KUBERNETES_LIMITS,
)


class EksSettings(CloudSettings):
    """Stack file of a cluster on AWS."""

    target: Literal["eks"]
    nodes: EksNodes
    fabric: Annotated[str, OneOf(fabrics_of("eks"))] = fabrics_of("eks")[0]
    ray: EksRay
    storage: EksStorage
    cluster: EksKubernetes
    monitoring: Literal["none", "operator", "annotations"] = "none"
    access: EksAccess
    network: EksNetwork

    @property
    def machine(self) -> EksMachine:
        """Catalog row of the nodes' machine type."""
        return EKS_CATALOG[self.nodes.machine]

    @property
    def on_users_network(self) -> bool:
        """Whether the nodes are in a network that the user has."""
        return bool(self.network.subnets) or not self.own_cluster

    @property
    def other_parts(self) -> Iterator[Part]:
        """The way out of the network, and the file system."""
        if not self.on_users_network and self.access.egress == "nat":
            yield Part("NAT gateway", 1, 1, price_of_item("eks nat", self.region))
            yield Part("address of NAT", 1, 1, price_of_item("eks address", self.region))
        elif not self.on_users_network:
            count = ZONES * len(ENDPOINT_SERVICES)
            yield Part("interface endpoints", count, count, price_of_item("eks endpoint", self.region))
        if self.storage.bucket is not None:
            speed = LUSTRE_EFA_THROUGHPUT if self.storage.efa else LUSTRE_THROUGHPUT
            price = price_of_item(f"eks lustre {speed}", self.region)
            yield Part("GiB of the file system", self.storage.capacity_gib, self.storage.capacity_gib, price)

    @property
    def of_cluster(self) -> tuple[tuple[str, bool], ...]:
        """Settings of a cluster that the stack makes: path, and whether it is set."""
        access = self.access
        return (
            ("access.administrators", bool(access.administrators)),
            ("access.publicEndpoint", access.public_endpoint),
            ("access.authorizedNetworks", bool(access.authorized_networks)),
            ("access.egress", access.egress != "nat"),
            ("hardening", self.hardening),
        )

    @property
    def addresses(self) -> EksAddresses:
        """Address plan of the stack."""
        base, public = IPv4Network(self.network.base_range), self.access.egress == "nat"
        return eks_addresses(base, self.nodes.max, self.cluster.system_nodes, public=public)

    @rule("location", source=EFA)
    def location_not_a_zone(self) -> Findings:
        return not_a_zone(self.location, ZONE, r"[a-z]{2}(-[a-z]+)+-\d+", "a", "us-east-1a, or its id such as use1-az1")

    @rule("location", source=PARTITIONS)
    def location_in_other_partition(self) -> Findings:
        if re.match(r"us-gov-|usg|cn-|cnn", self.location):
            yield Finding(
                f"{self.location} is in GovCloud or China, where ARNs and image registries differ: policies would not "
                "attach, and no GPU node would offer EFA.",
                "choose a zone of a commercial region, such as us-east-1a",
            )

    @rule("location", "network.secondZone", source=LOCAL_ZONES)
    def zone_without_control_plane(self) -> Findings:
        for zone in filter(is_local_zone, (self.location, self.network.second_zone)):
            region = zone_region(zone)
            fix = f"choose an availability zone of {region}, such as {region}a" if region else NORMAL_ZONE
            yield Finding(f"{zone} is a Local Zone, where no control plane can be: EKS rejects its subnet.", fix)

    @rule("nodes.reservation", "nodes.capacity", source=TOOLKIT)
    def reservation_missing_or_unused(self) -> Findings:
        capacity, named = self.nodes.capacity, self.nodes.reservation is not None
        reserved = capacity in ("reservation", "capacity-block")
        if reserved and not named:
            fix = "set nodes.reservation to the reservation's id, cr-…"
            yield Finding(
                f"Capacity {capacity} requires an id; without it, nodes are on demand or never start.", fix, BLOCKS
            )
        elif named and not reserved:
            fix = "remove nodes.reservation, or set nodes.capacity to reservation"
            yield Finding(f"{capacity} nodes do not use this reservation, which would cost money and stay idle.", fix)

    @rule("nodes.reservation", source=EC2_RESERVATIONS)
    def reservation_malformed(self) -> Findings:
        name = self.nodes.reservation
        group = r"arn:aws:resource-groups:[a-z0-9-]+:\d{12}:group/[\w.-]{1,300}"
        if name is not None and not re.fullmatch(rf"cr-[0-9a-f]{{8,17}}|{group}", name):
            fix = "write an id such as cr-0123456789abcdef0, or the ARN of a resource group of reservations"
            yield Finding(
                f"AWS cannot find {name}, which is neither the id of a reservation nor the ARN of a group.", fix
            )

    @rule("nodes.reservation", "nodes.capacity", source=BLOCKS)
    def group_of_blocks(self) -> Findings:
        if self.nodes.capacity == "capacity-block" and (self.nodes.reservation or "").startswith("arn:"):
            fix = "set nodes.reservation to the id of one block, cr-…, or nodes.capacity to reservation"
            yield Finding("The nodes of a Capacity Block belong to one block, which is named by its id.", fix)

    @rule("cluster.version", "storage.bucket", source=KERNEL, warning=True)
    def lustre_on_new_kernel(self) -> Findings:
        if self.cluster.version != EKS and self.storage.bucket is not None:
            fix = f"set cluster.version to {EKS}, or try one node first"
            yield Finding("Its nodes have kernel 6.18, on which no public source shows FSx for Lustre mounted.", fix)

    @rule("nodes.placementGroup", "nodes.capacity", source=PLACEMENT)
    def placement_group_of_block(self) -> Findings:
        if self.nodes.placement_group is not None and self.nodes.capacity == "capacity-block":
            fix = "remove nodes.placementGroup, or set nodes.capacity to reservation"
            yield Finding("EC2 itself places a Capacity Block close together, and rejects a placement group.", fix)

    @rule("nodes.placementGroup", source=EC2_GROUPS)
    def placement_group_malformed(self) -> Findings:
        group = self.nodes.placement_group or "group"
        if len(group) > LONGEST_GROUP or not group.isascii() or group.startswith("arn:"):
            fix = "write its name, such as training, or its id, such as pg-0123456789abcdef0"
            yield Finding(f"AWS cannot find {group}, which is neither the name nor the id of a placement group.", fix)

    @rule("nodes.min", "nodes.capacity", "fabric", source=BLOCKS)
    def capacity_block_not_static(self) -> Findings:
        if self.nodes.capacity == "capacity-block" and self.nodes.min > 0:
            least, also = self.nodes.min, f", and fabric to {FROM_ZERO}, which scales up from 0 nodes"
            fix = "set nodes.min to 0" + ("" if self.fabric_row.from_zero else also)
            yield Finding(f"EKS cannot create {least} nodes before a Capacity Block begins or after it ends.", fix)

    @rule("nodes.blockEnds", "nodes.capacity", source=BLOCKS)
    def block_end_without_block(self) -> Findings:
        if self.nodes.capacity != "capacity-block" and self.nodes.block_ends is not None:
            fix = "remove nodes.blockEnds, or set nodes.capacity to capacity-block"
            yield Finding(f"{self.nodes.capacity} machines do not end, so this would drain them for no reason.", fix)

    @rule("fabric", "nodes.min", "nodes.capacity", source=DRANET)
    def claims_from_zero_nodes(self) -> Findings:
        if not self.fabric_row.from_zero and self.nodes.min == 0:
            block = self.nodes.capacity == "capacity-block"
            fix = f"set fabric to {FROM_ZERO}" if block else f"set nodes.min to 1, or fabric to {FROM_ZERO}"
            yield Finding("The autoscaler learns the devices from a running node, so it never adds the first one.", fix)

    @rule("network.secondZone", "location", source=SUBNETS)
    def second_zone_wrong(self) -> Findings:
        zone, location = self.network.second_zone, self.location
        fix = "set network.secondZone to another zone of the region, written like location, or remove it"
        if not re.fullmatch(ZONE, location):
            return
        if zone == location:
            yield Finding(f"Both zones are {zone}: EKS rejects a control plane with subnets in one zone.", fix)
        elif not re.fullmatch(ZONE, zone):
            yield Finding(f"{zone} is not the name of a zone, so no resource could be created there.", fix)
        elif is_zone_id(zone) != is_zone_id(location):
            yield Finding(
                f"{zone} and {location} are a name and an id, and may mean the same zone of your account.", fix
            )
        elif len({zone_region(each) or each.rpartition("-az")[0] for each in (zone, location)}) == 2:
            yield Finding(f"{zone} and {location} are in two regions, but a VPC is in one.", fix)

    @rule("network.subnets", source=SUBNETS)
    def subnets_wrong(self) -> Findings:
        subnets = self.network.subnets
        wrong = [each for each in subnets if not re.fullmatch(r"subnet-[0-9a-f]{8,17}", each)]
        if wrong:
            yield Finding(
                f"AWS cannot find {wrong[0]}, which is not the id of a subnet.", "write ids such as subnet-0123abcd"
            )
        elif self.own_cluster and subnets and len({*subnets}) != 2:
            fix = "name two: one in location for the nodes, and one in another zone"
            yield Finding("A control plane needs subnets in two zones, and no node runs in a third.", fix)

    @rule("network.subnets", "cluster.existing", source=SUBNETS)
    def subnet_of_nodes_wrong(self) -> Findings:
        count = len(self.network.subnets)
        if not self.own_cluster and count != 1:
            fix = "name one private subnet of the cluster's VPC, in location"
            yield Finding(f"The nodes in your cluster are in one subnet, and {count or 'none'} are named.", fix)

    @rule("cluster.existing", source=EKS_NAMES)
    def existing_malformed(self) -> Findings:
        name = self.cluster.existing
        if name is not None and not re.fullmatch(r"[0-9A-Za-z][A-Za-z0-9_-]{0,99}", name):
            fix = "write its name as `aws eks list-clusters` shows it, not its ARN, such as training"
            yield Finding(f"EKS cannot find {name}, which is not the name of a cluster.", fix)

    @rule("access.egress", "network.subnets", source=SUBNETS)
    def endpoints_in_their_vpc(self) -> Findings:
        if self.own_cluster and self.network.subnets and self.access.egress == "endpoints":
            fix = "set access.egress to nat, or remove network.subnets"
            yield Finding("The stack makes no endpoint in your VPC, so its nodes need your NAT.", fix)

    @rule("hardening", "network.subnets", source=SUBNETS, warning=True)
    def flow_logs_not_ours(self) -> Findings:
        if self.hardening and self.network.subnets and self.own_cluster:
            fix = "turn on the flow logs of your VPC, and empty its default security group, yourself"
            yield Finding("The VPC is yours, so hardening changes nothing in it.", fix)

    @rule("network.interfaces", "nodes.machine", source=INTERFACES)
    def interfaces_unavailable(self) -> Findings:
        if self.network.interfaces == "bandwidth-optimised" and self.nodes.machine not in BANDWIDTH_OPTIMISED:
            fix = f"remove network.interfaces, or choose one of {', '.join(BANDWIDTH_OPTIMISED)}"
            yield Finding(f"AWS publishes no layout with IP on several network cards for {self.nodes.machine}.", fix)

    @rule("access.egress", "access.imageMirror", source=REGISTRIES)
    def endpoints_without_mirror(self) -> Findings:
        if self.access.egress == "endpoints" and self.access.image_mirror is None:
            yield Finding(
                "Endpoints reach AWS services only, but the images of KubeRay, the NVIDIA device plugin and the "
                "autoscaler are in other registries: no node would offer a GPU.",
                "copy them to an ECR registry and set access.imageMirror to it, or set access.egress to nat",
            )

    @rule("ray.image", "access.egress", source=REGISTRIES)
    def image_out_of_reach(self) -> Findings:
        if self.access.egress == "endpoints" and ".dkr.ecr." not in self.ray.image.partition("/")[0]:
            fix = "copy the image to a private ECR registry and set ray.image to that copy, or set access.egress to nat"
            yield Finding("Endpoints reach AWS services only: no pod could pull an image from this registry.", fix)

    @rule("access.administrators", source=ACCESS_ENTRIES)
    def administrator_malformed(self) -> Findings:
        for arn in self.access.administrators:
            if not re.fullmatch(r"arn:aws:iam::\d{12}:(role|user)/[\w+=,.@/-]+", arn):
                fix = "write the ARN of the role (not of a session), such as arn:aws:iam::111122223333:role/ops"
                yield Finding(f"EKS rejects an access entry for {arn}, which is not an IAM role or user.", fix)

    @rule("ray.policies", source=ACCESS_ENTRIES)
    def policy_malformed(self) -> Findings:
        for arn in self.ray.policies:
            if not re.fullmatch(r"arn:aws:iam::(\d{12}|aws):policy/[\w+=,.@/-]+", arn):
                fix = "write an ARN such as arn:aws:iam::111122223333:policy/checkpoints"
                yield Finding(f"{arn} is not the ARN of an IAM policy, so the role of Ray's pods cannot have it.", fix)

    @rule("ray.env", source=CHEATSHEET, warning=True)
    def variable_of_older_guides(self) -> Findings:
        for name, _ in pairs(self.ray.env):
            if name in OBSOLETE:
                why = f"aws-ofi-nccl chooses {name} by the instance type; a fixed value may slow it down."
                yield Finding(why, f"remove {name}, except to look for a fault")

    @rule("storage.bucket", source=BUCKETS)
    def bucket_malformed(self) -> Findings:
        name = self.storage.bucket or "bucket"
        accepted = re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", name) and ".." not in name
        accepted = accepted and not name.startswith(("xn--", "sthree-")) and not name.endswith("-s3alias")
        words = "S3: 3 to 63 of a-z, 0-9, - and ., with a letter or digit at both ends"
        return not_a_bucket(name, bool(accepted), words)

    @rule("storage.bucket", "storage.efa", "storage.capacityGib", "storage.exportDeletions", source=CONTRACT)
    def file_system_without_bucket(self) -> Findings:
        storage = self.storage
        unused = {
            "storage.efa": storage.efa,
            "storage.capacityGib": storage.capacity_gib != SMALLEST_GIB,
            "storage.exportDeletions": storage.export_deletions,
        }
        if storage.bucket is None and (path := next((path for path, changed in unused.items() if changed), None)):
            fix = f"set storage.bucket, or remove {path}"
            yield Finding("Without a bucket the stack has no file system, so nothing would use this setting.", fix)

    @rule("storage.capacityGib", "storage.efa", source=LUSTRE)
    def file_system_size(self) -> Findings:
        size, step, source = self.storage.capacity_gib, SMALLEST_EFA_GIB, f"{LUSTRE_EFA}; {LUSTRE_EFA_SIZES}"
        if self.storage.efa and size % step:
            fix = f"set storage.capacityGib to {-(-size // step) * step}, or remove storage.efa"
            yield Finding(f"A file system with EFA has a multiple of {step} GiB; FSx rejects {size}.", fix, source)
        elif size != SMALLEST_GIB and size % STEP_GIB:
            fix = f"set storage.capacityGib to {-(-size // STEP_GIB) * STEP_GIB}"
            yield Finding(f"FSx for Lustre has {SMALLEST_GIB} GiB or a multiple of {STEP_GIB}; it rejects {size}.", fix)

    @rule("storage.efa", "nodes.machine", source=LUSTRE_EFA)
    def file_system_without_efa_client(self) -> Findings:
        machine = self.nodes.machine
        if self.storage.efa and machine in WITHOUT_STORAGE_EFA:
            fix = "remove storage.efa, or choose a p5 or p6 machine"
            yield Finding(f"AWS publishes no Lustre client with EFA for {machine}; it would silently use TCP.", fix)

    @rule("nodes.max", "storage.efa", source=LUSTRE_CLIENTS)
    def file_system_devices_exceeded(self) -> Findings:
        if self.storage.efa and self.nodes.max > LUSTRE_EFA_NODES:
            fix = f"lower nodes.max to {LUSTRE_EFA_NODES}, or remove storage.efa"
            yield Finding(f"A file system takes 1,024 EFA devices, 8 from each of {LUSTRE_EFA_NODES} nodes.", fix)


def region_problems(location: str, region: str) -> list[Problem]:
    """Return the problem of a provider's region that is not the zone's."""
    here = region_of(location, region)
    if here == region:
        return []
    fix = f"pulumi config set aws:region {here or 'THE-REGION-OF-THE-ZONE'}"
    source = "pulumi-aws 7.51.1: provider configuration; EC2 docs, zone ids"
    finding = Finding(f"The zone is in {here or 'another region'}, but the provider creates in {region}.", fix, source)
    return [finding.problem(("aws:region", "location"), (region, location))]
