"""What each resource is imported by, where that follows from its inputs: names here are fixed.

What AWS gives an id of its own is not in these tables: it is found by its tags (`tools.aws_tags`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PendingCreate:
    """A create that was begun: the resource's URN, type and inputs."""

    urn: str
    type: str
    inputs: Mapping[str, Any]


GOOGLE_IMPORTS: Mapping[str, str] = {
    "gcp:compute/network:Network": "projects/{project}/global/networks/{name}",
    "gcp:compute/subnetwork:Subnetwork": "projects/{project}/regions/{region}/subnetworks/{name}",
    "gcp:compute/firewall:Firewall": "projects/{project}/global/firewalls/{name}",
    "gcp:compute/router:Router": "projects/{project}/regions/{region}/routers/{name}",
    "gcp:compute/routerNat:RouterNat": "{project}/{region}/{router}/{name}",
    "gcp:container/cluster:Cluster": "projects/{project}/locations/{location}/clusters/{name}",
    "gcp:container/nodePool:NodePool": "{project}/{location}/{cluster}/{name}",
    "gcp:serviceaccount/account:Account": (
        "projects/{project}/serviceAccounts/{accountId}@{project}.iam.gserviceaccount.com"
    ),
    # Members of a policy: with spaces, which is not how their ids are written.
    "gcp:projects/iAMMember:IAMMember": "{project} {role} {member}",
    "gcp:storage/bucketIAMMember:BucketIAMMember": "b/{bucket} {role} {member}",
}
"""What the Google provider imports by (pulumi-gcp 10.2.0, the Import section of each resource; read 2026-11)."""

AWS_IMPORTS: Mapping[str, str] = {
    "aws:ec2/placementGroup:PlacementGroup": "{name}",
    "aws:ec2/route:Route": "{routeTableId}_{destinationCidrBlock}",
    "aws:ec2/routeTableAssociation:RouteTableAssociation": "{subnetId}/{routeTableId}",
    "aws:autoscaling/tag:Tag": "{autoscalingGroupName},{tag[key]}",
    "aws:autoscaling/schedule:Schedule": "{autoscalingGroupName}/{scheduledActionName}",
    "aws:eks/cluster:Cluster": "{name}",
    "aws:eks/nodeGroup:NodeGroup": "{clusterName}:{nodeGroupName}",
    "aws:eks/addon:Addon": "{clusterName}:{addonName}",
    "aws:eks/accessEntry:AccessEntry": "{clusterName}:{principalArn}",
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": "{clusterName}#{principalArn}#{policyArn}",
    "aws:iam/role:Role": "{name}",
    "aws:iam/rolePolicy:RolePolicy": "{role}:{name}",
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": "{role}/{policyArn}",
    "aws:kms/alias:Alias": "{name}",
    "aws:cloudwatch/logGroup:LogGroup": "{name}",
}
"""What the AWS provider imports by (pulumi-aws 7.51.1, the Import section of each resource; read 2026-11)."""


def import_id(create: PendingCreate, project: str | None) -> str | None:
    """What the resource's provider imports it by, if that follows from its inputs; None if it does not."""
    if create.type.startswith("kubernetes:"):
        place = create.inputs if create.type == "kubernetes:helm.sh/v3:Release" else create.inputs["metadata"]
        return "/".join(part for part in (place.get("namespace"), place["name"]) if part)
    template = GOOGLE_IMPORTS.get(create.type) or AWS_IMPORTS.get(create.type)
    if template is None:
        return None
    return template.format_map({"project": project, **create.inputs})
