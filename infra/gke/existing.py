"""The user's subnetwork for nodes, pods and Services: read and checked in a preview, never changed.

The setting is `network.subnetwork`; its project may be the host of a Shared VPC. What is not visible there, NAT and the
addresses that others use, docs/gke.md names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network

import pulumi_gcp as gcp

from infra.addresses import EXTRA_CPU_NODES, GKE_RESERVED, POD_PREFIX_PER_NODE, nodes_of_pods
from infra.gke.network import ClusterPlace
from infra.settings import GkeSettings, SettingsError
from infra.settings.problems import Finding, Problem

DOCS = "GKE docs, creating VPC-native clusters, flexible-pod-cidr and private-clusters, read 2026-11"
SUBNETWORK = "network.subnetwork"


@dataclass(frozen=True, kw_only=True)
class Subnetwork:
    """What Google Cloud states of a subnetwork: the path of its network, and its ranges, the secondary ones by name."""

    network: str
    nodes: IPv4Network
    secondary: Mapping[str, IPv4Network]
    private_access: bool


def existing_place(settings: GkeSettings, own_project: str) -> ClusterPlace:
    """Return the place of a cluster in the user's subnetwork. Raises `SettingsError` with everything that it lacks."""
    path = str(settings.network.subnetwork)
    project, region, name = settings.network.subnetwork_parts
    try:
        found = gcp.compute.get_subnetwork(project=project, region=region, name=name)
    except Exception as error:
        finding = Finding(f"Google Cloud does not show it: {error}", "check the path, and that you may read it", DOCS)
        raise SettingsError([finding.problem((SUBNETWORK,), (path,))], origin="The stack's network") from error
    subnetwork = Subnetwork(
        network=found.network[found.network.index("projects/") :],
        nodes=IPv4Network(found.ip_cidr_range),
        secondary={each.range_name: IPv4Network(each.ip_cidr_range) for each in found.secondary_ip_ranges},
        private_access=found.private_ip_google_access,
    )
    if lacks := list(problems(subnetwork, settings)):
        raise SettingsError(lacks, origin="The stack's network")
    return ClusterPlace(
        network=subnetwork.network,
        subnet=path,
        pods_range=settings.network.pods_range,
        services_range=settings.network.services_range,
        project=None if project == own_project else project,
    )


def problems(found: Subnetwork, settings: GkeSettings) -> Iterator[Problem]:
    """Yield what a subnetwork lacks for this stack, each with the command that adds it."""
    network = settings.network
    path = str(network.subnetwork)
    project, region, name = network.subnetwork_parts
    update = f"gcloud compute networks subnets update {name} --project {project} --region {region}"
    pools = 2 if settings.nodes.fallback else 1
    nodes = pools * settings.nodes.max + settings.cluster.system_nodes + EXTRA_CPU_NODES

    def problem(setting: str, value: str, message: str, fix: str) -> Problem:
        return Finding(message, fix, DOCS).problem((setting,), (value,))

    for setting, wanted in (
        ("network.podsRange", network.pods_range),
        ("network.servicesRange", network.services_range),
    ):
        if wanted not in found.secondary:
            there = ", ".join(found.secondary) or "none"
            message = f"The subnetwork has no secondary range of this name; it has {there}."
            yield problem(setting, wanted, message, f"{update} --add-secondary-ranges {wanted}=RANGE, or name another")
    if (pods := found.secondary.get(network.pods_range)) is not None:
        room = nodes_of_pods(pods)
        if room < nodes:
            prefix = POD_PREFIX_PER_NODE - (nodes - 1).bit_length()
            message = f"{pods} has room for the pods of {room} nodes, a /24 each; the stack has up to {nodes}."
            yield problem("network.podsRange", network.pods_range, message, f"use a /{prefix}, or lower nodes.max")
    if (room := found.nodes.num_addresses - GKE_RESERVED) < nodes:
        message = (
            f"{found.nodes} has {room} addresses for nodes, of which others may use some; the stack has up to {nodes}."
        )
        fix = f"gcloud compute networks subnets expand-ip-range {name} --project {project} --region {region}"
        yield problem(
            SUBNETWORK, path, message, f"{fix} --prefix-length {32 - (nodes + GKE_RESERVED - 1).bit_length()}"
        )
    if not found.private_access:
        message = (
            "Nodes have no public address, and without Private Google Access they reach no Google API or registry."
        )
        yield problem(SUBNETWORK, path, message, f"{update} --enable-private-ip-google-access")
    plane = settings.addresses.control_plane
    for cidr in (found.nodes, *found.secondary.values()):
        if cidr.overlaps(plane):
            message = (
                f"The control plane's range {plane}, a part of network.baseRange, overlaps the subnetwork's {cidr}."
            )
            yield problem(
                "network.baseRange", network.base_range, message, "choose a range that your network does not use"
            )
            break
