"""Stack file of a cluster on Google Cloud: its rules. infra/settings/gke_sections.py has its sections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv4Network
from typing import Annotated, Literal

from pydantic import Field

from infra.addresses import GkeAddresses, gke_addresses
from infra.catalog.capacity import DWS, GKE_CAPACITIES, MAX_RUN_HOURS, QUEUED, TOOLKIT
from infra.catalog.fabrics import fabrics_of, from_zero
from infra.catalog.gcp import version_key
from infra.catalog.machines import GKE_CATALOG, GkeMachine
from infra.catalog.prices import price_of_item
from infra.settings.cloud import (
    KUBERNETES_LIMITS,
    MACHINES,
    CloudSettings,
    NameLimit,
    is_private,
    not_a_bucket,
    not_a_zone,
    not_available,
)
from infra.settings.cost import NAT_MACHINES, Part
from infra.settings.fields import Derived, Flag, OneOf
from infra.settings.gke_sections import COMPACT, GkeAccess, GkeBudget, GkeKubernetes, GkeNetwork, GkeNodes
from infra.settings.problems import CONTRACT, Finding, Findings, rule

BUCKETS = "Cloud Storage docs naming-buckets, read 2026-11"
CLAIMS = "GoogleCloudPlatform/cluster-autoscaler: gke/dynamicresources/network.go, 7d25050, 2026-08-21"
CONTROL_PLANE = "GKE docs concepts/network-isolation, read 2026-11"
COMPUTE_CLASS = "GKE docs ComputeClass CRD reference and concepts, 2026-04-13"
FLAVORS = "kubernetes-sigs/kueue 0.19.2: flavors are tried in their order, by quota (pkg/scheduler/flavorassigner)"
CLAIMS_OF_REQUESTS = (
    "GoogleCloudPlatform/cluster-autoscaler: provisioningrequests/pods, 7d25050, 2026-08-21; "
    "kubernetes/autoscaler: simulator/dynamicresources/snapshot, 1073b25"
)
GCE_NAMES = "Compute Engine docs, resource naming: at most 63 characters; unverified, 2026-11"
GKE_NAMES = "GKE docs, Cluster and NodePool REST resources: at most 40 characters; checked 2026-11"
GKE_VERSIONS = "GKE docs, versioning: MAJOR.MINOR.PATCH-gke.N; unverified, 2026-11"
KUEUE = "kubernetes-sigs/kueue 0.20.1: release notes, #16543; 0.19.2: pkg/workloadslicing, ff69552e, 2026-08-22"
PRIVATE_ENDPOINT = "GoogleCloudPlatform/gke-network-policy-demo #37, 2021-05-23: network is not a reserved network"
VPC_NATIVE = "GKE docs, creating VPC-native clusters and cluster-shared-vpc, read 2026-11"
ROCE = "Google Cloud docs rdma-network-profiles, read 2026-08: an RDMA network belongs to one zone"

NAME_LIMITS = (
    # Node pools are named within their cluster; the nodes' service account is cut to fit (infra/gke/names.py).
    NameLimit("GKE cluster", 40, "", GKE_NAMES),
    NameLimit("firewall rule", 63, "-gvnic-internal", GCE_NAMES),
    *KUBERNETES_LIMITS,
)


class GkeSettings(CloudSettings):
    """Stack file of a cluster on Google Cloud."""

    target: Literal["gke"]
    nodes: GkeNodes
    fabric: Annotated[
        Annotated[str, OneOf(fabrics_of("gke"))],
        Derived(
            lambda v: fabrics_of("gke")[0] if GKE_CATALOG[v["nodes.machine"]].rdma else "socket",
            f"{fabrics_of('gke')[0]}; socket for a machine without RDMA",
        ),
    ] = Field()
    compute_class: Flag = Field(
        False, description="gke: provision nodes through a ComputeClass, which can try a second kind of capacity."
    )
    cluster: GkeKubernetes
    monitoring: Literal["none", "google"] = "none"
    access: GkeAccess
    network: GkeNetwork
    budget: GkeBudget

    @property
    def machine(self) -> GkeMachine:
        """Catalog row of the nodes' machine type."""
        return GKE_CATALOG[self.nodes.machine]

    @property
    def minimum_version(self) -> str:
        """Oldest GKE version for the machine with the stack's kinds of capacity, fabric and own minimum."""
        features = {"nodes"}
        if set(self.nodes.capacities) & {"flex-start", "flex-start-queued"}:
            features.add("flex-start")
        versions = [self.machine.min_versions[name] for name in features & self.machine.min_versions.keys()]
        versions += [GKE_CAPACITIES[kind].min_version for kind in self.nodes.capacities]
        return max(*versions, self.fabric_row.min_version, self.cluster.min_version or "", key=version_key)

    @property
    def on_users_network(self) -> bool:
        """Whether the nodes are in a network that the user has."""
        return self.network.subnetwork is not None or not self.own_cluster

    @property
    def other_parts(self) -> Iterator[Part]:
        """NAT, which bills by machine and by address."""
        if not self.on_users_network:
            idle, most = (
                min(NAT_MACHINES, each) for each in (self.nodes.min + 1, self.nodes.max + self.cluster.system_nodes)
            )
            yield Part("NAT, by machine", idle, most, price_of_item("gke nat machine", self.region))
            yield Part("address of NAT", 1, 1, price_of_item("gke address", self.region))

    @property
    def of_cluster(self) -> tuple[tuple[str, bool], ...]:
        """Settings of a cluster that the stack makes: path, and whether it is set."""
        access = self.access
        return (
            ("cluster.minVersion", self.cluster.min_version is not None),
            ("cluster.channel", self.cluster.channel != "regular"),
            ("access.publicEndpoint", access.public_endpoint),
            ("access.authorizedNetworks", bool(access.authorized_networks)),
            ("network.subnetwork", self.network.subnetwork is not None),
            ("hardening", self.hardening),
        )

    @property
    def addresses(self) -> GkeAddresses:
        """Address plan of the networks and nodes that the stack makes."""
        nics = 0 if self.fabric_row.managed else self.machine.nics
        # A ComputeClass divides one maximum among its pools; each of Kueue's two flavors has a separate quota.
        pools = 2 if self.nodes.fallback is not None and not self.compute_class else 1
        base = IPv4Network(self.network.base_range)
        return gke_addresses(base, pools * self.nodes.max, nics, self.cluster.system_nodes)

    @rule("budget.billingAccount", "budget.email", source=CONTRACT)
    def budget_without_account(self) -> Findings:
        if (self.budget.billing_account is None) != (self.budget.email is None):
            fix = "set budget.monthly, budget.email and budget.billingAccount, or none of them"
            yield Finding("A budget needs a billing account and an address; without both, no email is sent.", fix)

    @rule("location", source=ROCE)
    def location_not_a_zone(self) -> Findings:
        return not_a_zone(self.location, r"[a-z]+-[a-z]+\d+-[a-z]", r"[a-z]+-[a-z]+\d+", "-b", "us-central1-b")

    @rule("fabric", "nodes.machine", source=MACHINES)
    def fabric_of_another_machine(self) -> Findings:
        machine, row = self.machine, self.fabric_row
        if machine.rdma and not row.transport.rdma:
            fix = f"set fabric to one of {', '.join(name for name in fabrics_of('gke') if name != row.name)}"
            yield Finding(f"The RDMA NICs of a {machine.name} would be paid for and not used.", fix)
        elif row.transport.rdma and not machine.rdma:
            fix = "set fabric to socket, or choose another machine"
            yield Finding(f"A {machine.name} has no RDMA NIC.", fix)

    @rule("network.subnetwork", "location", source=VPC_NATIVE)
    def subnetwork_wrong(self) -> Findings:
        path = self.network.subnetwork
        found = re.fullmatch(r"projects/[a-z0-9:.-]+/regions/([a-z0-9-]+)/subnetworks/[a-z0-9-]+", path or "")
        if path is not None and not found:
            fix = "write projects/PROJECT/regions/REGION/subnetworks/NAME, the end of its URI"
            yield Finding("Google Cloud finds a subnetwork of any project only by its whole path.", fix)
        elif found and found[1] != self.location.rpartition("-")[0]:
            fix = f"choose a subnetwork in {self.location.rpartition('-')[0]}"
            yield Finding(f"A cluster with nodes in {self.location} cannot use a subnetwork of {found[1]}.", fix)

    @rule("cluster.existing", "location", source=VPC_NATIVE)
    def existing_wrong(self) -> Findings:
        region, name = self.location.rpartition("-")[0], self.cluster.existing
        found = re.fullmatch(r"([a-z0-9-]+)/[a-z][a-z0-9-]{0,39}", name or "")
        if name is not None and not found:
            fix = f"write LOCATION/NAME as `gcloud container clusters list` shows them, such as {region}/training"
            yield Finding("Two clusters of a project may have one name in two locations.", fix)
        elif found and found[1] not in (region, self.location):
            fix = f"choose a cluster in {region}, or in {self.location}"
            yield Finding(f"A cluster in {found[1]} cannot have nodes in {self.location}.", fix)

    @rule("network.podsRange", "network.servicesRange", "network.subnetwork", source=VPC_NATIVE)
    def ranges_wrong(self) -> Findings:
        pods, services = self.network.pods_range, self.network.services_range
        if self.network.subnetwork is None and (pods, services) != ("pods", "services"):
            yield Finding(
                "They name ranges of your subnetwork, but none is set.", "set network.subnetwork, or remove them"
            )
        elif pods == services:
            yield Finding("GKE rejects one range for both pods and Services.", "name another range")

    @rule("hardening", "network.subnetwork", source=VPC_NATIVE, warning=True)
    def flow_logs_not_ours(self) -> Findings:
        if self.hardening and self.network.subnetwork is not None:
            fix = "turn its flow logs on yourself: gcloud compute networks subnets update NAME --enable-flow-logs"
            yield Finding("The subnetwork is yours, so hardening does not turn on its flow logs.", fix)

    @rule("cluster.minVersion", source=GKE_VERSIONS)
    def version_malformed(self) -> Findings:
        version = self.cluster.min_version
        if version is not None and not re.fullmatch(r"1\.\d+(\.\d+(-gke\.\d+)?)?", version):
            fix = 'write it in quotes, such as "1.36.5-gke.1032000", or only its first two or three numbers'
            yield Finding(f"{version} is not a version of GKE, so no cluster could be created with it.", fix)

    @rule("access.dnsEndpoint", "access.publicEndpoint", "access.authorizedNetworks", source=CONTROL_PLANE)
    def control_plane_out_of_reach(self) -> Findings:
        if not (self.access.dns_endpoint or self.access.public_endpoint or self.access.authorized_networks):
            fix = 'set access.authorizedNetworks to your VPN, such as ["10.1.0.0/16"], or access.dnsEndpoint to true'
            yield Finding("Nothing outside the cluster could reach its control plane, not even Pulumi.", fix)

    @rule("access.authorizedNetworks", "access.publicEndpoint", source=CONTROL_PLANE)
    def authorized_network_public(self) -> Findings:
        public = [cidr for cidr in self.access.authorized_networks if not is_private(IPv4Network(cidr))]
        if public and not self.access.public_endpoint:
            fix = "use private ranges, or set access.publicEndpoint to true"
            yield Finding(
                f"GKE rejects {public[0]}: a private endpoint accepts private ranges only.", fix, PRIVATE_ENDPOINT
            )

    @rule("nodes.fallback", "nodes.machine", source=TOOLKIT)
    def fallback_unavailable(self) -> Findings:
        if self.nodes.fallback is not None:
            yield from not_available(self.machine, self.nodes.fallback, "nodes.fallback")

    @rule("nodes.reservation", "nodes.capacity", "nodes.fallback", source=TOOLKIT)
    def reservation_missing_or_unused(self) -> Findings:
        capacity, named = self.nodes.capacity, self.nodes.reservation is not None
        if named == ("reservation" in self.nodes.capacities):
            return
        fix = "remove nodes.reservation, or set nodes.capacity to reservation"
        if not named:
            fix = "set nodes.reservation to the reservation's name"
            yield Finding("Capacity reservation requires a name; without it, nodes are on demand or never start.", fix)
        elif capacity.startswith("flex-start"):
            yield Finding(
                f"{capacity} nodes do not use reservations: GKE rejects the node pool unless its reservation affinity "
                "is none, and the reservation would cost money and stay idle.",
                fix,
                f"{TOOLKIT}; terraform-provider-google #18341",
            )
        else:
            yield Finding(f"{capacity} nodes do not use this reservation, which would cost money and stay idle.", fix)

    @rule("nodes.reservation", source=TOOLKIT)
    def reservation_malformed(self) -> Findings:
        part, name = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", self.nodes.reservation
        form = rf"(projects/[^/]+/reservations/)?{part}(/reservationBlocks/{part}(/reservationSubBlocks/{part})?)?"
        if name is not None and not re.fullmatch(form, name):
            fix = "write a name, or projects/PROJECT/reservations/NAME/reservationBlocks/BLOCK"
            yield Finding(f"Google Cloud cannot find {name}, which is not the name of a reservation.", fix)

    @rule("nodes.maxRunHours", "nodes.capacity", source=DWS)
    def run_time_wrong(self) -> Findings:
        hours = self.nodes.max_run_hours or 0
        if hours and "flex-start" not in f"{self.nodes.capacity} {self.nodes.fallback}":
            fix = "remove nodes.maxRunHours, or set nodes.capacity to flex-start"
            yield Finding(
                f"{self.nodes.capacity} nodes have no maximum run time: nothing ends them after {hours} hours.", fix
            )
        elif hours > MAX_RUN_HOURS:
            fix = f"set nodes.maxRunHours to {MAX_RUN_HOURS} or less, and let the training resume from checkpoints"
            yield Finding(f"A flex-start node ends after {MAX_RUN_HOURS} hours (seven days); GKE rejects {hours}.", fix)

    @rule("nodes.compact", "nodes.capacity", "nodes.fallback", source=TOOLKIT)
    def compact_without_policy(self) -> Findings:
        if self.nodes.compact and not set(self.nodes.capacities) & set(COMPACT):
            fix = f"remove nodes.compact, or set nodes.capacity to {' or '.join(COMPACT)}"
            yield Finding("GKE rejects a placement policy for queued nodes, and reservations fix where nodes are.", fix)

    @rule("nodes.min", "nodes.capacity", source=TOOLKIT)
    def flex_start_not_static(self) -> Findings:
        least, capacity, fix = self.nodes.min, self.nodes.capacity, "set nodes.min to 0"
        if capacity == "flex-start" and least > 0:
            yield Finding(f"Flex-start nodes end within seven days, so {least} nodes cannot stay up.", fix)
        elif capacity == "flex-start-queued" and least > 0:
            yield Finding("Queued nodes exist for one request only: GKE rejects a minimum above 0.", fix, QUEUED)

    @rule("nodes.fallback", "nodes.capacity", source=f"{FLAVORS}; {QUEUED}")
    def fallback_never_tried(self) -> Findings:
        first, second = self.nodes.capacity, self.nodes.fallback
        if second is not None and first == "flex-start-queued":
            fix = "remove nodes.fallback, or set nodes.capacity to flex-start and computeClass to true"
            yield Finding(f"A queued request waits for one pool, so {second} is never tried.", fix, QUEUED)
        elif first == second:
            fix = "choose another fallback, or remove it"
            yield Finding(
                f"Both choices are {second}: when one has no machine, the other has none either.", fix, COMPUTE_CLASS
            )
        elif second == "flex-start-queued" and not self.compute_class and first != "reservation":
            yield Finding(
                "Kueue tries queued nodes when the first choice's quota is in use. Only a reservation's quota stands "
                f"for machines that exist; with {first}, a job would wait although the quota is free.",
                "set nodes.capacity to reservation, or to flex-start-queued and remove nodes.fallback",
            )

    @rule("nodes.fallback", "computeClass", source=COMPUTE_CLASS)
    def fallback_without_order(self) -> Findings:
        first, second = self.nodes.capacity, self.nodes.fallback
        if second is None or first == "flex-start-queued":
            return
        if second == "flex-start-queued" and self.compute_class:
            yield Finding(
                "A ComputeClass cannot provision queued nodes, which start for a ProvisioningRequest only.",
                "set nodes.fallback to flex-start or spot, or computeClass to false with a reservation and Kueue",
                f"{COMPUTE_CLASS}; {QUEUED}",
            )
        elif second != "flex-start-queued" and not self.compute_class:
            fix = "set computeClass to true, or remove nodes.fallback"
            yield Finding("Without a ComputeClass the capacities have no order, so the second is never tried.", fix)

    @rule("nodes.capacity", "queue", source=QUEUED)
    def queued_without_kueue(self) -> Findings:
        if self.nodes.capacity == "flex-start-queued" and self.queue != "kueue":
            fix = "set queue to kueue, or nodes.capacity to flex-start"
            yield Finding("Only Kueue creates the ProvisioningRequest of queued nodes: pods would stay Pending.", fix)

    @rule("ray.minWorkers", "ray.maxWorkers", "nodes.capacity", "nodes.fallback", source=KUEUE)
    def queued_size_not_fixed(self) -> Findings:
        least, most = self.ray.min_workers, self.ray.max_workers
        elastic = self.queue == "kueue" and self.ray.mode == "cluster" and least < most
        if elastic and "flex-start-queued" in self.nodes.capacities:
            yield Finding(
                "A ProvisioningRequest is for all nodes of a workload at once. Kueue would create another one for each "
                "node that Ray's autoscaler adds, and its pods would wait for nodes of the first.",
                f"set ray.minWorkers to {most} (or remove it), or choose another capacity",
            )

    @rule("computeClass", "nodes.capacity", source=f"{COMPUTE_CLASS}; {QUEUED}")
    def queued_with_compute_class(self) -> Findings:
        if self.nodes.capacity == "flex-start-queued" and self.compute_class:
            fix = "set computeClass to false, or nodes.capacity to flex-start"
            yield Finding("A ProvisioningRequest cannot request nodes of a ComputeClass, so none would start.", fix)

    @rule("nodes.fallback", "queue", source=QUEUED)
    def queued_fallback_without_kueue(self) -> Findings:
        after_reservation = self.nodes.capacities == ("reservation", "flex-start-queued")
        if after_reservation and not self.compute_class and self.queue != "kueue":
            fix = "set queue to kueue, or remove nodes.fallback"
            yield Finding("Only Kueue requests queued nodes; without it, jobs wait for the reservation.", fix)

    @rule("fabric", "nodes.min", "nodes.capacity", "nodes.fallback", source=CLAIMS)
    def claims_from_zero_nodes(self) -> Findings:
        capacity, fallback = self.nodes.capacity, self.nodes.fallback
        flex_start = capacity.startswith("flex-start")
        if self.fabric_row.from_zero or (self.nodes.min and not fallback and not flex_start):
            return
        fix = "fabric to " + from_zero("gke", queued="queued" in f"{capacity} {fallback}")
        others = "remove nodes.fallback, or set" if fallback else "set nodes.min to 1, or"
        yield Finding(
            "GKE's autoscaler learns the NICs of open-source DRANET from a running node, or from a label that also "
            "starts Google's driver: a pool that begins with 0 nodes would stay empty.",
            f"set {fix}" if flex_start else f"{others} {fix}",
        )

    @rule("fabric", "nodes.capacity", "nodes.fallback", source=CLAIMS_OF_REQUESTS)
    def claims_of_queued_nodes(self) -> Findings:
        row = self.fabric_row
        if row.claim and row.from_zero and "flex-start-queued" in self.nodes.capacities:
            other = from_zero("gke", queued=True)
            fix = f"set fabric to {other}, or choose a capacity other than flex-start-queued"
            yield Finding("A ProvisioningRequest that claims NICs fails: a claim exists only after its pod does.", fix)

    @rule("storage.bucket", source=BUCKETS)
    def bucket_malformed(self) -> Findings:
        name = self.storage.bucket or "bucket"
        # A name with dots may be longer, as long as no part of it is.
        accepted = re.fullmatch(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]", name) and "google" not in name
        accepted = accepted and all(1 <= len(part) <= 63 for part in name.split(".")) and not name.startswith("goog")
        words = "Cloud Storage: 3 to 63 of a-z, 0-9, - _ and ., with a letter or digit at both ends, without google"
        return not_a_bucket(name, bool(accepted), words)
