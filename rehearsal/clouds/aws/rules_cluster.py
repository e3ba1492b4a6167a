"""Rules of EKS clusters."""

from __future__ import annotations

import re
from ipaddress import IPv4Network

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.offerings import VERSIONS, key, quota
from rehearsal.clouds.aws.references import (
    cidr,
    groups_of,
    last,
    policies_of,
    role,
    security_group,
    strings,
    trusts,
    zone_of,
)
from rehearsal.clouds.aws.refusals import EKS_API, PROVIDER_CLUSTER, QUOTAS, UNVERIFIED, invalid, refused, unfit
from rehearsal.clouds.kind import Call, Refusal, on, value_at

LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")
MODES = ("CONFIG_MAP", "API_AND_CONFIG_MAP", "API")
"""From the old to the new mode; the reverse is impossible."""
FULL_ZONES = ("us-east-1e", "us-west-1b", "ca-central-1d")
"""Zones without control planes in most accounts: use1-az3, usw1-az2, cac1-az3 (EKS docs; unverified, 2026-11)."""
_PRIVATE = [IPv4Network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")]


@on("create")
def cluster_name_invalid(call: Call) -> Refusal | None:
    """A cluster's name has at most 100 letters, digits, hyphens and underscores."""
    if re.fullmatch(r"[0-9A-Za-z][A-Za-z0-9_-]{0,99}", call.id):
        return None
    words = '"name" doesn\'t comply with restrictions ("^[0-9A-Za-z][A-Za-z0-9\\-_]*$"):'
    return unfit(f'{words} "{call.id}"', PROVIDER_CLUSTER)


@on("create")
def cluster_role_untrusted(call: Call) -> Refusal | None:
    """The control plane's role exists, EKS may assume it, and it has EKS's policy."""
    arn = call.inputs.get("roleArn")
    live = role(call.state, arn)
    if live is None:
        return invalid(f"Role with arn: {arn}, could not be assumed because it does not exist", PROVIDER_CLUSTER)
    if not trusts(live, "eks.amazonaws.com"):
        words = "Role could not be assumed because the trusted entity is not correct"
        return invalid(words, PROVIDER_CLUSTER)
    if "AmazonEKSClusterPolicy" in policies_of(call.state, arn):
        return None
    words = "The provided role doesn't have the Amazon EKS Managed Policies associated with it. Please ensure the"
    return invalid(f"{words} following policies are attached: [AmazonEKSClusterPolicy]", PROVIDER_CLUSTER)


@on("create", "update")
def version_unknown(call: Call) -> Refusal | None:
    """EKS has the Kubernetes version."""
    if call.inputs.get("version") in (None, *VERSIONS):
        return None
    return invalid("unsupported Kubernetes version", EKS_API)


@on("update")
def version_skipped(call: Call) -> Refusal | None:
    """A cluster is upgraded by one minor version, and never downgraded."""
    now, asked = str(call.live.get("version")), str(call.inputs.get("version") or call.live.get("version"))
    if key(asked) in (key(now), (key(now)[0], key(now)[1] + 1)):
        return None
    return invalid(f"Unsupported Kubernetes minor version update from {now} to {asked}", EKS_API)


@on("create")
def subnets_missing(call: Call) -> Refusal | None:
    """The control plane's subnets exist, all in one VPC."""
    vpcs = set()
    for subnet in strings(value_at(call.inputs, "vpcConfig.subnetIds")):
        live = call.state.get(tokens.SUBNET, subnet)
        if live is None:
            words = (
                f"The subnet ID '{subnet}' does not exist (Service: AmazonEC2; Error Code: InvalidSubnetID.NotFound)"
            )
            return invalid(words, EKS_API)
        vpcs.add(live.get("vpcId"))
    if len(vpcs) < 2:
        return None
    return invalid("Subnets specified must belong to the same VPC", EKS_API)


@on("create", "update")
def one_zone_only(call: Call) -> Refusal | None:
    """The control plane's subnets are in at least two zones."""
    subnets = strings(value_at(call.inputs, "vpcConfig.subnetIds"))
    if len({zone_of(call.state, subnet) for subnet in subnets}) > 1:
        return None
    return invalid("Subnets specified must be in at least two different AZs", EKS_API)


@on("create")
def zone_without_control_planes(call: Call) -> Refusal | None:
    """Some zones do not support control planes."""
    for subnet in strings(value_at(call.inputs, "vpcConfig.subnetIds")):
        zone = zone_of(call.state, subnet)
        if zone in FULL_ZONES:
            words = (
                f"Cannot create cluster '{call.id}' because {zone}, the targeted availability zone, does not currently"
            )
            return refused(
                "UnsupportedAvailabilityZoneException",
                f"{words} have sufficient capacity to support the cluster.",
                EKS_API,
            )
    return None


@on("create", "update")
def no_endpoint(call: Call) -> Refusal | None:
    """The control plane has a private or a public endpoint."""
    config = call.inputs.get("vpcConfig") or {}
    if config.get("endpointPublicAccess", True) or config.get("endpointPrivateAccess", False):
        return None
    return invalid("Private and public endpoint access cannot both be false", EKS_API)


@on("create", "update")
def private_endpoint_without_dns(call: Call) -> Refusal | None:
    """A private endpoint resolves by DNS, so both DNS attributes of the VPC are on."""
    config = call.inputs.get("vpcConfig") or {}
    subnets = strings(config.get("subnetIds"))
    vpc = str((call.state.get(tokens.SUBNET, subnets[0]) or {}).get("vpcId")) if subnets else ""
    live = call.state.get(tokens.VPC, vpc) or {}
    if not config.get("endpointPrivateAccess") or (live.get("enableDnsSupport") and live.get("enableDnsHostnames")):
        return None
    words = f"Private endpoint access needs the attributes enableDnsSupport and enableDnsHostnames of {vpc} set to true"
    return invalid(words, f"EKS docs, cluster endpoint; wording {UNVERIFIED}")


@on("create", "update")
def public_ranges_invalid(call: Call) -> Refusal | None:
    """Access to the public endpoint is limited by public ranges, and only if there is one."""
    config = call.inputs.get("vpcConfig") or {}
    ranges = strings(config.get("publicAccessCidrs"))
    if ranges and not config.get("endpointPublicAccess", True):
        words = "publicAccessCidrs cannot be specified when public endpoint access is disabled"
        return invalid(words, EKS_API)
    for text in ranges:
        block = cidr(text)
        if block is None:
            return unfit(f'"{text}" is not a valid CIDR block', PROVIDER_CLUSTER)
        if any(block.subnet_of(private) for private in _PRIVATE):
            return invalid(f"The following CIDRs are invalid in publicAccessCidrs: [{text}]", EKS_API)
    return None


@on("create", "update")
def mode_unknown(call: Call) -> Refusal | None:
    """The authentication mode is one of three, and changes in one direction."""
    asked = value_at(call.inputs, "accessConfig.authenticationMode")
    if asked not in (None, *MODES):
        words = f"expected access_config.0.authentication_mode to be one of {list(MODES)}, got {asked}"
        return unfit(words, PROVIDER_CLUSTER)
    now = value_at(call.live, "accessConfig.authenticationMode")
    if call.verb == "create" or asked is None or now is None or MODES.index(asked) >= MODES.index(now):
        return None
    return invalid(f"Unsupported authentication mode update from {now} to {asked}", EKS_API)


@on("create")
def mode_without_creator(call: Call) -> Refusal | None:
    """With the ConfigMap alone, the creator needs access: otherwise no identity would have it."""
    access = call.inputs.get("accessConfig") or {}
    mode = access.get("authenticationMode") or "CONFIG_MAP"
    if mode != "CONFIG_MAP" or access.get("bootstrapClusterCreatorAdminPermissions") is not False:
        return None
    words = "bootstrapClusterCreatorAdminPermissions must be true if cluster authentication mode is set to CONFIG_MAP"
    return invalid(words, EKS_API)


@on("create", "update")
def log_type_unknown(call: Call) -> Refusal | None:
    """There are five types of control plane logs."""
    for kind in strings(call.inputs.get("enabledClusterLogTypes")):
        if kind not in LOG_TYPES:
            words = f"expected enabled_cluster_log_types to be one of {list(LOG_TYPES)}, got {kind}"
            return unfit(words, PROVIDER_CLUSTER)
    return None


@on("create", "update")
def encryption_key_invalid(call: Call) -> Refusal | None:
    """Only Secrets are encrypted with a customer managed key, which exists and is given by ARN."""
    asked = call.inputs.get("encryptionConfig") or {}
    if not asked:
        return None
    if strings(asked.get("resources")) != ["secrets"]:
        words = f'expected encryption_config.0.resources to be one of ["secrets"], got {asked.get("resources")}'
        return unfit(words, PROVIDER_CLUSTER)
    arn = str(value_at(asked, "provider.keyArn") or "")
    if not re.fullmatch(r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[0-9a-f-]+", arn):
        return invalid("The keyArn in encryptionConfig provider is invalid", EKS_API)
    if call.state.get(tokens.KEY, last(arn)) is not None:
        return None
    return invalid(f"Key '{arn}' does not exist (NotFoundException)", EKS_API)


@on("create", "update")
def groups_missing(call: Call) -> Refusal | None:
    """Additional security groups of the control plane exist, and there are at most five."""
    groups = strings(value_at(call.inputs, "vpcConfig.securityGroupIds"))
    for group in groups:
        if security_group(call.state, group) is None:
            words = f"Security group(s) [{group}] do not exist (InvalidGroup.NotFound)"
            return invalid(words, EKS_API)
    if len(groups) <= 5:
        return None
    return invalid("You can specify at most 5 security groups", EKS_API)


@on("create")
def service_range_invalid(call: Call) -> Refusal | None:
    """Services have a private range between /12 and /24 outside of the VPC's."""
    text = value_at(call.inputs, "kubernetesNetworkConfig.serviceIpv4Cidr")
    block = cidr(text)
    if text is None:
        return None
    if block is None or not 12 <= block.prefixlen <= 24 or not any(block.subnet_of(one) for one in _PRIVATE):
        words = 'expected "service_ipv4_cidr" to be a private range with between 12 and 24 significant bits, got'
        return unfit(f"{words}: {text}", PROVIDER_CLUSTER)
    for subnet in strings(value_at(call.inputs, "vpcConfig.subnetIds")):
        vpc = (call.state.get(tokens.SUBNET, subnet) or {}).get("vpcId")
        whole = cidr((call.state.get(tokens.VPC, str(vpc)) or {}).get("cidrBlock"))
        if whole is not None and whole.overlaps(block):
            return invalid(f"serviceIpv4Cidr {text} overlaps with the range {whole} of {vpc}", EKS_API)
    return None


@on("create", "update")
def support_type_unknown(call: Call) -> Refusal | None:
    """The support type is STANDARD or EXTENDED."""
    asked = value_at(call.inputs, "upgradePolicy.supportType")
    if asked in (None, "STANDARD", "EXTENDED"):
        return None
    words = 'expected upgrade_policy.0.support_type to be one of ["STANDARD" "EXTENDED"], got'
    return unfit(f"{words} {asked}", PROVIDER_CLUSTER)


@on("create")
def cluster_quota(call: Call) -> Refusal | None:
    """The number of clusters in a region is within the quota."""
    limit = quota(call.state, "clusters")
    if limit is None or sum(1 for _ in call.state.all(tokens.CLUSTER)) < limit:
        return None
    return refused("ResourceLimitExceededException", f"Cluster limit exceeded: {limit}", QUOTAS)


@on("delete")
def cluster_has_node_groups(call: Call) -> Refusal | None:
    """A cluster is deleted after its node groups."""
    if not groups_of(call.state, call.id):
        return None
    return refused("ResourceInUseException", "Cluster has nodegroups attached", EKS_API)


@on("delete")
def cluster_protected(call: Call) -> Refusal | None:
    """A protected cluster is not deleted."""
    if not call.live.get("deletionProtection"):
        return None
    words = f"Cluster {call.id} cannot be deleted because deletion protection is enabled."
    return refused("InvalidRequestException", words, EKS_API)
