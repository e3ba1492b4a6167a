"""Time that each resource type takes to create and to delete, with the source of each figure.

The clouds publish no such figures, so most are medians of public logs. They predict which resources dominate an `up`,
not its exact time. The wait for GPU capacity is not included: a node pool without nodes is created in minutes, its
capacity may take days.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

Confidence = Literal["published", "field report", "unverified", "own estimate"]


@dataclass(frozen=True)
class Figure:
    """Duration in seconds, its source, the date of the source, and how reliable it is."""

    seconds: float
    source: str
    date: str
    confidence: Confidence


@dataclass(frozen=True)
class Duration:
    """Time to create and to delete a resource."""

    create: Figure
    delete: Figure


class UnknownDurationError(LookupError):
    """The table has no row for a resource type."""


# Logs of `terraform apply` and `terraform destroy` in public issues and repositories. The engine's providers call the
# same APIs. A log found by text search is named by the project and location that it shows.
_EUROPE_WEST2 = "log of project global-cluster, europe-west2: regional GKE 1.16, separate node pool"
_US_CENTRAL1 = "log of project resolute-sky, us-central1: NAT, router, subnet, network"
_OPEA = "opea-project/GenAIInfra #977"
_AIRBYTE = "log of project tcb-project, europe-west1: Airbyte behind NAT"


def _seen(seconds: float, source: str, date: str) -> Figure:
    return Figure(seconds, source, date, "field report")


def _guess(seconds: float, because: str) -> Figure:
    return Figure(seconds, because, "2026-11", "own estimate")


_NHWY = "DevopsArtFactory/terraform-provisioning PRs #46 and #47: EKS 1.30 in ap-northeast-2"
_SELF_MANAGED = "terraform-aws-modules/terraform-aws-eks #2203"
_AGONES = "agones-dev/agones PR #1790: destroy of an EKS stack"
_STEAMPIPE = "turbot/steampipe-plugin-aws PR #693: VPC, subnet and a scratch file system"

_POLICY_WRITE = "as creation: read, change and write a policy"
_OBJECT = "one request to the API server"

DURATIONS: Mapping[str, Duration] = {
    "gcp:compute/network:Network": Duration(
        _seen(22, f"{_OPEA}; 23 s in the {_EUROPE_WEST2}", "2025-04-16"),
        # One project waited 5 minutes in 2017: hashicorp/terraform-provider-google #675.
        _seen(22, f"{_US_CENTRAL1}; 11 s in the {_EUROPE_WEST2}", "2026-08-14"),
    ),
    "gcp:compute/subnetwork:Subnetwork": Duration(
        _seen(
            16,
            f"median of 11 to 34 s in six logs: {_EUROPE_WEST2} (13 s), {_AIRBYTE} (23 s),"
            " terraform-google-modules/terraform-google-kubernetes-engine #609 (34 s), three more",
            "2020-12 to 2026-08",
        ),
        _seen(13, f"{_US_CENTRAL1} (14 s); {_EUROPE_WEST2} (12 s)", "2026-08-14"),
    ),
    "gcp:compute/firewall:Firewall": Duration(
        _seen(12, _AIRBYTE, "2023-10-03"),
        _seen(17, "terraform-google-modules/terraform-google-container-vm #31 (17 and 27 s)", "read 2026-11"),
    ),
    "gcp:compute/router:Router": Duration(_seen(12, _AIRBYTE, "2023-10-03"), _seen(13, _US_CENTRAL1, "2026-08-14")),
    "gcp:compute/routerNat:RouterNat": Duration(
        _seen(12, f"{_AIRBYTE}; 23 s at most in five logs", "2023-10-03"), _seen(4, _US_CENTRAL1, "2026-08-14")
    ),
    "gcp:serviceaccount/account:Account": Duration(
        _seen(2, "log of project hellok8s, us-east1: GKE with a service account", "2021-03"),
        _seen(2, _US_CENTRAL1, "2026-08-14"),
    ),
    "gcp:projects/iAMMember:IAMMember": Duration(
        _seen(
            8,
            "hashicorp/terraform-provider-google #7814 (7 to 8 s each); GoogleCloudPlatform/ai-on-gke #53 (7 s):"
            " iam_binding, which writes the same policy",
            "2023-09-28",
        ),
        _guess(8, _POLICY_WRITE),
    ),
    "gcp:storage/bucketIAMMember:BucketIAMMember": Duration(
        _guess(5, "a policy with few other writers, so less than a project's"), _guess(5, _POLICY_WRITE)
    ),
    "gcp:container/cluster:Cluster": Duration(
        # hellok8s had a cluster after 3 min 21 s, eclipse-theia/theia-cloud #336 had none after 8 min 21 s.
        _seen(373, f"{_EUROPE_WEST2}: 6 min 13 s with the default pool removed", "2020-12-02"),
        _seen(204, f"median of 164 s ({_EUROPE_WEST2}), 189, 220 and 495 s in three more logs", "2020-12 to 2026"),
    ),
    "gcp:container/nodePool:NodePool": Duration(
        _seen(94, f"median of 64 s ({_EUROPE_WEST2}), 82, 106 and 116 s in three more logs", "2020-12 to 2026"),
        _seen(257, f"{_EUROPE_WEST2}: 4 min 17 s with a node in each of three zones", "2020-12-02"),
    ),
    "aws:ec2/vpc:Vpc": Duration(
        _seen(12, f"{_SELF_MANAGED}; 17 s in {_STEAMPIPE}", "2022-08-16"), _guess(2, "as a subnet, after it is empty")
    ),
    "aws:ec2/subnet:Subnet": Duration(_seen(4, _STEAMPIPE, "2021-09"), _seen(2, _AGONES, "2020-09-15")),
    "aws:ec2/routeTable:RouteTable": Duration(_seen(1, _SELF_MANAGED, "2022-08-16"), _guess(1, "one request")),
    "aws:ec2/securityGroup:SecurityGroup": Duration(
        _guess(3, "two requests: create it, remove its default egress rule"), _seen(2, _AGONES, "2020-09-15")
    ),
    "aws:vpc/*": Duration(_guess(1, "one request"), _seen(2, f"{_AGONES} (2 and 4 s)", "2020-09-15")),
    "aws:ec2/natGateway:NatGateway": Duration(
        _guess(105, "one to two minutes until it is available"),
        _guess(60, "one minute until its interface is deleted"),
    ),
    "aws:ec2/vpcEndpoint:VpcEndpoint": Duration(
        _guess(90, "one interface per subnet; a gateway endpoint takes seconds"),
        _guess(60, "one interface per subnet is deleted"),
    ),
    "aws:ec2/internetGateway:InternetGateway": Duration(
        _guess(1, "two requests"), _guess(15, "waits until it is detached")
    ),
    "aws:ec2/launchTemplate:LaunchTemplate": Duration(
        _guess(6, "becomes visible after some seconds"), _guess(1, "a request")
    ),
    "aws:ec2/*": Duration(_guess(2, "a few requests"), _guess(2, "a few requests")),
    "aws:eks/cluster:Cluster": Duration(
        _seen(513, f"{_NHWY}: 8 min 33 s; 748 s with add-ons in pulumi/pulumi-eks #1819", "2024-10"),
        # hashicorp/terraform-provider-aws #9101 (2019) was not finished after 10 min.
        _guess(180, "a few minutes after its node groups are deleted"),
    ),
    "aws:eks/nodeGroup:NodeGroup": Duration(
        _seen(115, f"{_NHWY}: 1 min 48 s and 1 min 59 s, CPU nodes", "2024-10"),
        _guess(240, "nodes are drained and terminated first"),
    ),
    "aws:eks/addon:Addon": Duration(
        # With nodes; aws-ia/terraform-aws-eks-blueprints #642 waited 15 min for coredns in 2022.
        _guess(25, "until its pods are ready"),
        _guess(15, "until its objects are deleted"),
    ),
    "aws:eks/*": Duration(_guess(2, "one request, and one read"), _guess(2, "a request")),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": Duration(
        _seen(1, _SELF_MANAGED, "2022-08-16"), _seen(1, _AGONES, "2020-09-15")
    ),
    "aws:iam/role:Role": Duration(_guess(1, "one request"), _seen(3, _AGONES, "2020-09-15")),
    "aws:iam/*": Duration(_guess(1, "one request"), _guess(1, "one request")),
    "aws:kms/key:Key": Duration(
        _guess(12, "waits until its policy is effective everywhere; more than 10 s in terraform-aws-eks #2203"),
        _guess(1, "only schedules the deletion"),
    ),
    "aws:cloudwatch/logGroup:LogGroup": Duration(_seen(1, _SELF_MANAGED, "2022-08-16"), _guess(1, "one request")),
    "aws:fsx/lustreFileSystem:LustreFileSystem": Duration(
        # hashicorp/terraform-provider-aws PR #7074 created and deleted one in 506 s in total, in 2019.
        _seen(600, "aws-samples/aws-hpc-tutorials PR #289: about 10 min", "2022-09-15"),
        _guess(180, "a few minutes, without a final backup"),
    ),
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": Duration(
        # aws-samples/amazon-eks-machine-learning-with-terraform-and-kubeflow #112: more than 10 min in some cases.
        _guess(420, "lists the objects; more of them take longer"),
        _guess(120, "it is unlinked"),
    ),
    "aws:*": Duration(_guess(2, "a few requests"), _guess(2, "a few requests")),
    "kubernetes:helm.sh/v3:Release": Duration(
        _guess(45, "pulls one image on a new node and waits until the pod is ready"),
        _guess(10, "waits until the chart's objects are deleted"),
    ),
    "kubernetes:ray.io/v1:RayCluster": Duration(
        _guess(1, f"{_OBJECT}; the provider does not wait for Ray"), _guess(40, "pods have a grace period of 30 s")
    ),
    "kubernetes:ray.io/v1:RayJob": Duration(
        _guess(1, f"{_OBJECT}; the provider does not wait for its end"),
        _guess(40, "the operator stops the job, then pods have a grace period of 30 s"),
    ),
    "kubernetes:kueue.x-k8s.io/*": Duration(_guess(1, _OBJECT), _guess(2, "waits until Kueue removes its finalizer")),
    "kubernetes:batch/v1:Job": Duration(
        _guess(1, f"{_OBJECT}; the provider does not wait for the Job"),
        _guess(40, "pods have a grace period of 90 s and need half of it"),
    ),
    "kubernetes:core/v1:Namespace": Duration(
        _seen(1, "log of project devops-candidate-1, us-central1-a: namespace and secret", "read 2026-11"),
        _guess(10, "waits until its objects are deleted"),
    ),
    "kubernetes:core/v1:Secret": Duration(
        _seen(1, "log of project devops-candidate-1, us-central1-a: namespace and secret", "read 2026-11"),
        _guess(1, _OBJECT),
    ),
    "kubernetes:*": Duration(_guess(1, _OBJECT), _guess(1, _OBJECT)),
    "random:*": Duration(_guess(0.1, "computed in the plugin"), _guess(0.1, "nothing to delete")),
}


def duration(type_: str) -> Duration:
    """Return the durations of a resource type, from its own row or the first pattern that matches.

    Raises:
        UnknownDurationError: no row matches. A missing figure must not count as zero.
    """
    if type_ in DURATIONS:
        return DURATIONS[type_]
    for pattern, row in DURATIONS.items():
        if fnmatchcase(type_, pattern):
            return row
    raise UnknownDurationError(f"no duration is known for {type_}: add a row with its source to rehearsal/durations.py")
