"""Time that resources take to create and to delete, where somebody published it.

The clouds publish no such figures; these are medians of public logs of `terraform apply` and `terraform destroy`, which
call the same APIs. The wait for GPU capacity is not included: a node pool without nodes is created in minutes, but
its capacity may take days. A type without a row has no known duration.

Runs of this program that users sent are beside them: the documents that `make accept` adds to `rehearsal/sent_back/`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Literal


@dataclass(frozen=True)
class Figure:
    """Duration in seconds, its source, and the date of the source."""

    seconds: float
    source: str
    date: str


@dataclass(frozen=True)
class Duration:
    """Time to create and to delete a resource; None if it is not published."""

    create: Figure | None = None
    delete: Figure | None = None


# A log found by text search is named by the project and location that it shows.
_EUROPE_WEST2 = "log of project global-cluster, europe-west2: regional GKE 1.16, separate node pool"
_US_CENTRAL1 = "log of project resolute-sky, us-central1: NAT, router, subnet, network"
_OPEA = "opea-project/GenAIInfra #977"
_AIRBYTE = "log of project tcb-project, europe-west1: Airbyte behind NAT"
_DEVOPS = "log of project devops-candidate-1, us-central1-a: namespace and secret"
_NHWY = "DevopsArtFactory/terraform-provisioning PRs #46 and #47: EKS 1.30 in ap-northeast-2"
_SELF_MANAGED = "terraform-aws-modules/terraform-aws-eks #2203"
_AGONES = "agones-dev/agones PR #1790: destroy of an EKS stack"
_STEAMPIPE = "turbot/steampipe-plugin-aws PR #693: VPC, subnet and a scratch file system"

DURATIONS: Mapping[str, Duration] = {
    "gcp:compute/network:Network": Duration(
        Figure(22, f"{_OPEA}; 23 s in the {_EUROPE_WEST2}", "2025-04-16"),
        Figure(22, f"{_US_CENTRAL1}; 11 s in the {_EUROPE_WEST2}", "2026-08-14"),
    ),
    "gcp:compute/subnetwork:Subnetwork": Duration(
        Figure(
            16,
            f"median of 11 to 34 s in six logs: {_EUROPE_WEST2} (13 s), {_AIRBYTE} (23 s),"
            " terraform-google-modules/terraform-google-kubernetes-engine #609 (34 s), three more",
            "2020-12 to 2026-08",
        ),
        Figure(13, f"{_US_CENTRAL1} (14 s); {_EUROPE_WEST2} (12 s)", "2026-08-14"),
    ),
    "gcp:compute/firewall:Firewall": Duration(
        Figure(12, _AIRBYTE, "2023-10-03"),
        Figure(17, "terraform-google-modules/terraform-google-container-vm #31 (17 and 27 s)", "read 2026-11"),
    ),
    "gcp:compute/router:Router": Duration(Figure(12, _AIRBYTE, "2023-10-03"), Figure(13, _US_CENTRAL1, "2026-08-14")),
    "gcp:compute/routerNat:RouterNat": Duration(
        Figure(12, f"{_AIRBYTE}; 23 s at most in five logs", "2023-10-03"), Figure(4, _US_CENTRAL1, "2026-08-14")
    ),
    "gcp:serviceaccount/account:Account": Duration(
        Figure(2, "log of project hellok8s, us-east1: GKE with a service account", "2021-03"),
        Figure(2, _US_CENTRAL1, "2026-08-14"),
    ),
    "gcp:projects/iAMMember:IAMMember": Duration(
        Figure(
            8,
            "hashicorp/terraform-provider-google #7814 (7 to 8 s each); GoogleCloudPlatform/ai-on-gke #53 (7 s):"
            " iam_binding, which writes the same policy",
            "2023-09-28",
        )
    ),
    "gcp:container/cluster:Cluster": Duration(
        # hellok8s had a cluster after 3 min 21 s, eclipse-theia/theia-cloud #336 had none after 8 min 21 s.
        Figure(373, f"{_EUROPE_WEST2}: 6 min 13 s with the default pool removed", "2020-12-02"),
        Figure(204, f"median of 164 s ({_EUROPE_WEST2}), 189, 220 and 495 s in three more logs", "2020-12 to 2026"),
    ),
    "gcp:container/nodePool:NodePool": Duration(
        Figure(94, f"median of 64 s ({_EUROPE_WEST2}), 82, 106 and 116 s in three more logs", "2020-12 to 2026"),
        Figure(257, f"{_EUROPE_WEST2}: 4 min 17 s with a node in each of three zones", "2020-12-02"),
    ),
    "aws:ec2/vpc:Vpc": Duration(Figure(12, f"{_SELF_MANAGED}; 17 s in {_STEAMPIPE}", "2022-08-16")),
    "aws:ec2/subnet:Subnet": Duration(Figure(4, _STEAMPIPE, "2021-09"), Figure(2, _AGONES, "2020-09-15")),
    "aws:ec2/routeTable:RouteTable": Duration(Figure(1, _SELF_MANAGED, "2022-08-16")),
    "aws:ec2/securityGroup:SecurityGroup": Duration(delete=Figure(2, _AGONES, "2020-09-15")),
    "aws:eks/cluster:Cluster": Duration(
        Figure(513, f"{_NHWY}: 8 min 33 s; 748 s with add-ons in pulumi/pulumi-eks #1819", "2024-10")
    ),
    "aws:eks/nodeGroup:NodeGroup": Duration(Figure(115, f"{_NHWY}: 1 min 48 s and 1 min 59 s, CPU nodes", "2024-10")),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": Duration(
        Figure(1, _SELF_MANAGED, "2022-08-16"), Figure(1, _AGONES, "2020-09-15")
    ),
    "aws:iam/role:Role": Duration(delete=Figure(3, _AGONES, "2020-09-15")),
    "aws:cloudwatch/logGroup:LogGroup": Duration(Figure(1, _SELF_MANAGED, "2022-08-16")),
    "aws:fsx/lustreFileSystem:LustreFileSystem": Duration(
        # hashicorp/terraform-provider-aws PR #7074 created and deleted one in 506 s in total, in 2019.
        Figure(600, "aws-samples/aws-hpc-tutorials PR #289: about 10 min", "2022-09-15")
    ),
    "kubernetes:core/v1:Namespace": Duration(Figure(1, _DEVOPS, "read 2026-11")),
    "kubernetes:core/v1:Secret": Duration(Figure(1, _DEVOPS, "read 2026-11")),
}

LONGEST: Mapping[str, Mapping[str, Figure]] = {
    "gcp:container/cluster:Cluster": {
        "create": Figure(501, "eclipse-theia/theia-cloud #336: not finished after 8 min 21 s", "read 2026-11"),
        "delete": Figure(495, "one of the logs above", "2020-12 to 2026"),
    },
    "gcp:container/nodePool:NodePool": {
        "update": Figure(
            4500, "GoogleCloudPlatform/magic-modules #18250: 1 h 15 min for a change of nodes", "2026-07-10"
        ),
    },
    "aws:eks/cluster:Cluster": {"create": Figure(748, "pulumi/pulumi-eks #1819", "2024-10")},
    "aws:eks/nodeGroup:NodeGroup": {"update": Figure(3600, "convox/convox #889: about an hour", "2025-05-07")},
    "aws:fsx/lustreFileSystem:LustreFileSystem": {
        "create": Figure(
            1776, "hashicorp/terraform-provider-aws #33245: TestAcc…_exportPath, with its deletion", "2023"
        )
    },
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": {
        "create": Figure(
            3600, "aws/aws-parallelcluster #4211: over an hour for a bucket of 4 million objects", "2022-07-22"
        )
    },
}
"""The longest published time of a request that takes minutes, by verb: time-outs are above it."""

TIMEOUTS: Mapping[str, Mapping[str, float]] = {
    "gcp:container/cluster:Cluster": {"create": 2400, "update": 3600, "delete": 2400},
    # Two hours from 2026-07 on (magic-modules #18250).
    "gcp:container/nodePool:NodePool": {"create": 1800, "update": 1800, "delete": 1800},
    "aws:eks/nodeGroup:NodeGroup": {"create": 3600, "update": 3600, "delete": 3600},
    "aws:fsx/lustreFileSystem:LustreFileSystem": {"create": 1800, "update": 1800, "delete": 1800},
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": {"create": 600, "update": 600, "delete": 600},
}
"""Default time-outs of the providers, in seconds (hashicorp/terraform-provider-google-beta 003e704f, 2025;
hashicorp/terraform-provider-aws 012e0a32). For a kind that is not listed, the program sets its own."""


SENT_BACK = Path(__file__).parents[1] / "sent_back"
"""Documents of `rdma-ray evidence` that were accepted."""


@cache
def sent_back(folder: Path = SENT_BACK) -> Mapping[tuple[str, str], list[Figure]]:
    """Return the figures of the accepted documents by type and verb: for each document the median."""
    found: dict[tuple[str, str], list[Figure]] = defaultdict(list)
    for file in sorted(folder.glob("*.json")):
        document = json.loads(file.read_text(encoding="utf-8"))
        seconds: dict[tuple[str, str], list[int]] = defaultdict(list)
        for each in (each for run in document["runs"] for each in run["operations"]):
            seconds[each["type"], each["op"]].append(each["seconds"])
        for key, values in seconds.items():
            source = f"sent back by a user: {len(values)} on {document['target']}, {document['region']}"
            found[key].append(Figure(median(values), source, document["date"]))
    return found


def published_seconds(type_: str, verb: Literal["create", "delete"], folder: Path = SENT_BACK) -> float | None:
    """Return the time to create or to delete a resource of this type, or None if nobody published or sent one.

    The median of what users sent has priority: it is of this program's resources.
    """
    if own := sent_back(folder).get((type_, verb)):
        return median(figure.seconds for figure in own)
    figure: Figure | None = getattr(DURATIONS.get(type_), verb, None)
    return figure.seconds if figure else None
