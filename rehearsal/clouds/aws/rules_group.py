"""Rules of managed node groups: cluster, role, subnets, template, image, size, labels and taints."""

from __future__ import annotations

import re

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.node_group import scaling_group_of
from rehearsal.clouds.aws.offerings import AMI_TYPES, VERSIONS, instance_type, key
from rehearsal.clouds.aws.references import (
    cluster_of,
    role,
    strings,
    template_data,
    template_of,
    trusts,
    types_of,
)
from rehearsal.clouds.aws.refusals import (
    AUTO_SCALING,
    EKS_API,
    MARKET_OPTIONS,
    PROVIDER_GROUP,
    TYPES_TWICE,
    invalid,
    missing,
    refused,
    unfit,
)
from rehearsal.clouds.kind import Call, Refusal, on, value_at

EFFECTS = ("NO_SCHEDULE", "NO_EXECUTE", "PREFER_NO_SCHEDULE")
RESERVED = ("kubernetes.io", "k8s.io", "eks.amazonaws.com")


@on("create", "update")
def cluster_missing(call: Call) -> Refusal | None:
    """The cluster exists."""
    if cluster_of(call) is not None:
        return None
    return missing(f"No cluster found for name: {call.inputs.get('clusterName')}.", EKS_API)


@on("create")
def group_name_invalid(call: Call) -> Refusal | None:
    """A node group's name has at most 63 characters: letters, digits, hyphens and underscores."""
    name = call.id.partition(":")[2]
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", name):
        return None
    words = "The nodegroup name can have only alphanumeric characters and hyphens, and no more than 63 of them"
    return invalid(f"{words}: {name}", EKS_API)


@on("create")
def node_role_untrusted(call: Call) -> Refusal | None:
    """The nodes' role exists, and EC2 may assume it."""
    arn = call.inputs.get("nodeRoleArn")
    live = role(call.state, arn)
    if live is None:
        return invalid(f"The role with name {str(arn).rpartition('/')[2]} cannot be found. (NoSuchEntity)", EKS_API)
    if trusts(live, "ec2.amazonaws.com"):
        return None
    words = "Following required service principals [ec2.amazonaws.com] were not found in the trust relationships of"
    return invalid(f"{words} nodeRole {arn}", EKS_API)


@on("create")
def subnets_elsewhere(call: Call) -> Refusal | None:
    """The nodes' subnets exist, in the VPC of the cluster."""
    vpc = value_at(cluster_of(call) or {}, "vpcConfig.vpcId")
    for subnet in strings(call.inputs.get("subnetIds")):
        live = call.state.get(tokens.SUBNET, subnet)
        if live is None:
            return invalid(f"The subnet ID '{subnet}' does not exist (InvalidSubnetID.NotFound)", EKS_API)
        if live.get("vpcId") != vpc:
            return invalid(f"Subnet {subnet} is not in the VPC of the cluster, {vpc}", EKS_API)
    return None


@on("create", "update")
def template_missing(call: Call) -> Refusal | None:
    """A node group's launch template exists in the requested version."""
    asked = call.inputs.get("launchTemplate")
    if not asked:
        return None
    found = template_of(call.state, call.inputs)
    if found is None:
        words = f"Launch template {asked.get('id') or asked.get('name')} does not exist"
        return invalid(f"{words} (InvalidLaunchTemplateId.NotFound)", EKS_API)
    version, latest = str(asked.get("version")), int(found[1].get("latestVersion") or 1)
    if version in ("$Latest", "$Default") or (version.isdigit() and 1 <= int(version) <= latest):
        return None
    words = f"Could not find the specified version {version} for the launch template with ID {found[0]}."
    return invalid(f"{words} (InvalidLaunchTemplateId.VersionNotFound)", EKS_API)


@on("create")
def types_twice(call: Call) -> Refusal | None:
    """The instance type is in the launch template or in the node group."""
    template = template_data(call.state, call.inputs)
    if not template.get("instanceType") or not call.inputs.get("instanceTypes"):
        return None
    words = "Cannot specify instance types in launch template and API request"
    return refused("InvalidRequestException", words, TYPES_TWICE)


@on("create")
def type_unknown(call: Call) -> Refusal | None:
    """Instance types exist."""
    unknown = [name for name in types_of(call.state, call.inputs) if instance_type(name) is None]
    if not unknown:
        return None
    return invalid(f"The following supplied instance types do not exist: [{', '.join(unknown)}]", EKS_API)


@on("create")
def disk_with_template(call: Call) -> Refusal | None:
    """With a launch template, the disk is set there."""
    if not call.inputs.get("launchTemplate") or not call.inputs.get("diskSize"):
        return None
    return invalid("Disk size must be specified within the launch template.", EKS_API)


@on("create")
def remote_access_with_template(call: Call) -> Refusal | None:
    """With a launch template, SSH keys and their security groups are set there."""
    if not call.inputs.get("launchTemplate") or not call.inputs.get("remoteAccess"):
        return None
    words = "Remote access configuration cannot be specified with a launch template."
    return invalid(words, EKS_API)


@on("create", "update")
def spot_in_template(call: Call) -> Refusal | None:
    """Spot is set in the node group, not in its launch template."""
    market = value_at(template_data(call.state, call.inputs), "instanceMarketOptions.marketType")
    if market != "spot":
        return None
    return invalid("Instance market options are not supported with the launch template.", MARKET_OPTIONS)


@on("create")
def profile_in_template(call: Call) -> Refusal | None:
    """EKS sets the nodes' role, so the launch template has no instance profile."""
    if not template_data(call.state, call.inputs).get("iamInstanceProfile"):
        return None
    words = "IAM instance profile should not be specified in the launch template."
    return invalid(words, EKS_API)


@on("create")
def ami_type_unknown(call: Call) -> Refusal | None:
    """The AMI type is one of EKS's."""
    asked = call.inputs.get("amiType")
    if asked is None or asked in AMI_TYPES or str(asked).startswith("WINDOWS_"):
        return None
    if str(asked).startswith("AL2_"):
        return invalid(f"AMI Type {asked} is only supported for kubernetes versions 1.32 or earlier", EKS_API)
    return unfit(f"expected ami_type to be one of {sorted(AMI_TYPES)}, got {asked}", PROVIDER_GROUP)


@on("create")
def ami_of_other_machines(call: Call) -> Refusal | None:
    """An image matches the processor architecture, and one for GPUs needs GPUs."""
    asked = str(call.inputs.get("amiType") or "AL2023_x86_64_STANDARD")
    for name in types_of(call.state, call.inputs):
        machine = instance_type(name)
        if machine is None or asked == "CUSTOM":
            continue
        fits = machine.arm == ("ARM_64" in asked) and (machine.accelerated or "NVIDIA" not in asked)
        if not fits:
            return invalid(f"[{name}] is not a valid instance type for requested amiType {asked}", EKS_API)
    return None


@on("create", "update")
def image_named_twice(call: Call) -> Refusal | None:
    """With a custom image, the group sets no AMI type, version or release."""
    if not template_data(call.state, call.inputs).get("imageId"):
        return None
    for asked, word in (("releaseVersion", "releaseVersion"), ("version", "version"), ("amiType", "amiType")):
        if call.inputs.get(asked) and call.inputs.get(asked) != "CUSTOM":
            words = f"You cannot specify the field {word} when using custom AMIs."
            return invalid(words, EKS_API)
    return None


@on("create", "update")
def version_not_the_clusters(call: Call) -> Refusal | None:
    """Nodes have an existing Kubernetes version, not newer than the cluster's."""
    asked = call.inputs.get("version")
    cluster = str((cluster_of(call) or {}).get("version") or VERSIONS[0])
    if not asked or (asked in VERSIONS and key(str(asked)) <= key(cluster)):
        return None
    return invalid(f"Nodegroup Kubernetes version {asked} is not supported for cluster version {cluster}", EKS_API)


@on("create", "update")
def release_of_other_version(call: Call) -> Refusal | None:
    """The image's release belongs to the Kubernetes version of the group."""
    asked = call.inputs.get("releaseVersion")
    version = str(call.inputs.get("version") or (cluster_of(call) or {}).get("version") or "")
    bottlerocket = str(call.inputs.get("amiType")).startswith("BOTTLEROCKET")
    pattern = r"\d+\.\d+\.\d+-[0-9a-f]{8}" if bottlerocket else rf"{re.escape(version)}\.\d+-20\d{{6}}"
    if not asked or not version or re.fullmatch(pattern, str(asked)):
        return None
    return invalid(f"Requested release version {asked} is not valid for kubernetes version {version}.", EKS_API)


@on("create", "update")
def sizes_reversed(call: Call) -> Refusal | None:
    """A group's maximum is at least one, and its desired size is within its limits."""
    scaling = (call.now or call.inputs).get("scalingConfig") or {}
    least, now, most = (int(scaling.get(name) or 0) for name in ("minSize", "desiredSize", "maxSize"))
    if most < 1:
        return unfit(f"expected scaling_config.0.max_size to be at least (1), got {most}", PROVIDER_GROUP)
    if least > most:
        return invalid(f"Minimum capacity {least} can't be greater than maximum size {most}", EKS_API)
    if least > now:
        return invalid(f"Minimum capacity {least} can't be greater than desired size {now}", EKS_API)
    if now > most:
        return invalid(f"desired capacity {now} can't be greater than max size {most}", EKS_API)
    return None


@on("create", "update")
def update_limits_unclear(call: Call) -> Refusal | None:
    """An update takes a number of nodes or a percentage, from 1 to 100."""
    config = call.inputs.get("updateConfig") or {}
    given = [config[name] for name in ("maxUnavailable", "maxUnavailablePercentage") if name in config]
    if not config or (len(given) == 1 and 1 <= int(given[0]) <= 100) or (not given and "updateStrategy" in config):
        return None
    words = '"update_config.0.max_unavailable": only one of `update_config.0.max_unavailable,'
    return unfit(f"{words}update_config.0.max_unavailable_percentage` can be specified, from 1 to 100", PROVIDER_GROUP)


@on("create", "update")
def taint_invalid(call: Call) -> Refusal | None:
    """Taints have EKS's effects in EKS's spelling, and there are at most 50."""
    taints = call.inputs.get("taints") or []
    for taint in taints:
        if taint.get("effect") not in EFFECTS:
            words = f"expected effect to be one of {list(EFFECTS)}, got {taint.get('effect')}"
            return unfit(words, PROVIDER_GROUP)
    if len(taints) <= 50:
        return None
    return unfit(f"Too many taint blocks: no more than 50 are allowed, got {len(taints)}", PROVIDER_GROUP)


@on("create", "update")
def label_reserved(call: Call) -> Refusal | None:
    """Labels of Kubernetes and EKS are reserved."""
    for name in call.inputs.get("labels") or {}:
        if str(name).partition("/")[0] in RESERVED and "/" in str(name):
            words = "Label cannot contain reserved prefixes [kubernetes.io/, k8s.io/, eks.amazonaws.com/]"
            return invalid(words, EKS_API)
    return None


@on("create", "update")
def scaling_group_missing(call: Call) -> Refusal | None:
    """The Auto Scaling group of a tag or action exists, such as that of a node group."""
    name = str(call.inputs.get("autoscalingGroupName"))
    if any(scaling_group_of(live) == name for _, _, live in call.state.all(tokens.NODE_GROUP)):
        return None
    words = "AutoScalingGroup name not found - null"
    return refused("ValidationError", words, AUTO_SCALING)
