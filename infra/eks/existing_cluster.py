"""The user's EKS cluster, in which a stack makes node groups: read and checked in a preview, never changed.

The setting is `cluster.existing`, with the subnet of the nodes in `network.subnets`. Only EKS itself adds something to
the cluster: the access entry of the nodes' role, which it creates with a managed node group in authentication modes API
and API_AND_CONFIG_MAP (terraform-aws-modules/terraform-aws-eks: docs, access entries; read 2026-11-28).

A cluster in EKS Auto Mode may have managed node groups as well (EKS docs, associate-workload, read 2026-11-28). Its own
nodes have no label of a node group, so that no pod of the stack is on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pulumi_aws as aws
from pulumi_aws.eks import GetClusterResult, GetNodeGroupResult

from infra.catalog.pins import EKS_RELEASES
from infra.eks.cluster import TheirEksCluster, kubeconfig
from infra.eks.existing import (
    SUBNETS,
    Subnet,
    addresses_of_nodes,
    groups_of,
    node_subnet_problems,
    read_subnet,
    sizes,
)
from infra.eks.existing_components import component_problems
from infra.eks.names import EksNames
from infra.eks.network import VpcPlace
from infra.eks.storage import VOLUME
from infra.eks.workload import ray_args
from infra.existing.cloud import EXISTING, Inside, outside_namespace
from infra.existing.questions import made_by
from infra.naming import OWNER, STACK
from infra.settings import EksSettings, SettingsError
from infra.settings.problems import Finding, Problem

DOCS = "EKS API reference, Cluster and Nodegroup; EKS docs, access-entries and launch-templates; read 2026-11"
ORIGIN = "The stack's cluster"


def existing_cluster(settings: EksSettings, names: EksNames) -> TheirEksCluster:
    """Return the user's cluster. Raises `SettingsError` with everything for which the stack cannot be in it."""
    name = str(settings.cluster.existing)
    try:
        found = aws.eks.get_cluster(name=name)
        groups = groups_of(name)
    except Exception as error:
        fix = "`aws eks list-clusters` names those of the region; check that you may read it"
        finding = Finding(f"AWS does not show it: {error}", fix, DOCS)
        raise SettingsError([finding.problem((EXISTING,), (name,))], origin=ORIGIN) from error
    if found.status != "ACTIVE":
        # It may have no endpoint yet.
        finding = Finding(f"Its status is {found.status}.", f"wait: aws eks wait cluster-active --name {name}", DOCS)
        raise SettingsError([finding.problem((EXISTING,), (name,))], origin=ORIGIN)
    lacks = [*problems(found, groups, settings, names.stack)]
    [named] = settings.network.subnets
    try:
        subnet = read_subnet(named)
        vpc = aws.ec2.get_vpc(id=subnet.vpc)
    except Exception as error:
        finding = Finding(f"AWS does not show it: {error}", "check the id, the region and your permissions", DOCS)
        lacks.append(finding.problem((SUBNETS,), (named,)))
    else:
        dns = vpc.enable_dns_hostnames and vpc.enable_dns_support
        lacks += subnet_problems(subnet, found, groups, settings, dns=dns)
    access = kubeconfig(name, names.region, found.endpoint, found.certificate_authorities[0].data)
    ours = outside_namespace(ray_args(settings, names.named("ray")))
    ours += [f"/api/v1/persistentvolumes/{names.named(VOLUME)}"] if settings.storage.bucket else []
    inside = Inside(access, settings, names.stack, ours, lambda asked: component_problems(asked, settings))
    if lacks := [*lacks, *inside.problems]:
        raise SettingsError(lacks, origin=ORIGIN)
    return TheirEksCluster(
        name=name,
        endpoint=found.endpoint,
        kubeconfig=access,
        security_group=found.vpc_config.cluster_security_group_id,
        place=VpcPlace(vpc=found.vpc_config.vpc_id, gpu=named, private=[named]),
        owners={**inside.owners, **{f"node group {name}": str(its.tags.get(OWNER)) for name, its in groups.items()}},
    )


def problems(
    found: GetClusterResult, groups: Mapping[str, GetNodeGroupResult], settings: EksSettings, stack: str
) -> Iterator[Problem]:
    """Yield why the stack cannot be in the cluster, each with the command that changes it, if there is one.

    Args:
        groups: Node groups of the cluster that have a name of the stack's, by name.
    """
    name, version = str(settings.cluster.existing), settings.cluster.version

    def problem(message: str, fix: str, setting: str = EXISTING, value: str = "") -> Problem:
        return Finding(message, fix, DOCS).problem((setting,), (value or name,))

    mode = found.access_configs[0].authentication_mode if found.access_configs else "CONFIG_MAP"
    if mode == "CONFIG_MAP":
        yield problem(
            "Its authentication mode is CONFIG_MAP, in which EKS would write the nodes' role into your ConfigMap "
            "aws-auth, and whoever changes that could lock the nodes out.",
            f"aws eks update-cluster-config --name {name} --access-config authenticationMode=API_AND_CONFIG_MAP",
        )
    if found.version != version and found.version in EKS_RELEASES:
        message = f"Its control plane is {found.version}, and nodes have the version of their control plane."
        yield problem(message, f'set cluster.version to "{found.version}"', "cluster.version", version)
    elif found.version != version:
        older = [int(each) for each in found.version.split(".")] < [int(each) for each in version.split(".")]
        upgrade = f"aws eks update-cluster-version --name {name} --kubernetes-version {version}, one version at a time"
        message = f"Its control plane is {found.version}, for which the stack has no node image."
        yield problem(message, upgrade if older else f"name a cluster of version {', '.join(EKS_RELEASES)}")
    services = found.kubernetes_network_configs
    if services and services[0].ip_family == "ipv6":
        yield problem("Its pods have IPv6 addresses, which the stack does not support.", "name a cluster with IPv4")
    for group, its in groups.items():
        maker = its.tags.get(STACK)
        if maker != stack:
            message = f"It has a node group {group}, {made_by(maker)}."
            yield problem(message, "use another cluster: a stack's node groups have fixed names")


def subnet_problems(
    subnet: Subnet,
    found: GetClusterResult,
    groups: Mapping[str, GetNodeGroupResult],
    settings: EksSettings,
    *,
    dns: bool,
) -> Iterator[Problem]:
    """Yield what the subnet of the nodes lacks. Nodes of the stack that run have their addresses."""
    if subnet.vpc != found.vpc_config.vpc_id:
        message = f"The subnet is in {subnet.vpc}, and the cluster in {found.vpc_config.vpc_id}."
        fix = f"name a private subnet of that VPC, in {settings.location}"
        yield Finding(message, fix, DOCS).problem((SUBNETS,), (subnet.id,))
    yield from node_subnet_problems(subnet, settings, needs=addresses_of_nodes(settings, sizes(groups)), dns=dns)
