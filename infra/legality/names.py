"""Rules about the stack's name: names of resources are made from it, and every system has its own limit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infra.legality.ray import KUBERAY
from infra.problems import Problem

if TYPE_CHECKING:
    from infra.settings import Settings

GKE_NAMES = "GKE docs, Cluster and NodePool REST resources: at most 40 characters; checked 2026-11"
GCE_NAMES = "Compute Engine docs, resource naming: at most 63 characters; from memory, 2026-11"
EKS_NAMES = "EKS API reference: cluster name at most 100; from memory, 2026-11"
EC2_NAMES = "EC2 API reference: launch template name at most 128, of a-z, A-Z, 0-9, ( ) . / and _; from memory, 2026-11"


@dataclass(frozen=True)
class Limit:
    """A kind of resource, the room (characters) its system gives a name, and the longest suffix we append."""

    kind: str
    characters: int
    suffix: str
    source: str


KUBERNETES_LIMITS = (
    # 47 characters: its clusters are called after it, with a dash and five letters.
    Limit("RayJob", 47, "-ray", KUBERAY),
    Limit("RayCluster", 53, "-ray", KUBERAY),
)
LIMITS: dict[str, tuple[Limit, ...]] = {
    "local": (),
    "gke": (
        Limit("GKE cluster", 40, "", GKE_NAMES),
        # Node pools are named within their cluster; the nodes' service account is cut to fit (infra/gke/names.py).
        Limit("firewall rule", 63, "-gvnic-internal", GCE_NAMES),
        *KUBERNETES_LIMITS,
    ),
    "eks": (
        Limit("EKS cluster", 100, "", EKS_NAMES),
        # Node groups are named within their cluster; IAM roles are cut to fit (infra/eks/names.py).
        Limit("launch template", 128, "-system", EC2_NAMES),
        *KUBERNETES_LIMITS,
    ),
}


def longest_stack_name(target: str) -> int:
    """The most characters a stack's name may have on a target; 100 (Pulumi's own limit) on local."""
    return min((limit.characters - len(limit.suffix) for limit in LIMITS[target]), default=100)


def stack_name_unfit(s: Settings, stack: str) -> Problem | None:
    """Names made from the stack's name would be refused."""
    if s.target == "local":
        return None
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", stack):
        return Problem(
            settings=("target",),
            says=f"The stack is called {stack}. Its clusters and networks are named after it, and such names have "
            "a-z, 0-9 and - only, with a letter in front.",
            fix="make a stack with such a name: pulumi stack init NAME --copy-config-from " + stack,
            source=f"{GCE_NAMES}; {KUBERAY}",
        )
    tightest = min(LIMITS[s.target], key=lambda limit: limit.characters - len(limit.suffix))
    if len(stack) <= longest_stack_name(s.target):
        return None
    return Problem(
        settings=("target",),
        says=f"The stack's name {stack} has {len(stack)} characters. The {tightest.kind} {stack}{tightest.suffix} "
        f"would have {len(stack) + len(tightest.suffix)}, and {tightest.characters} are allowed.",
        fix=f"make a stack with a name of at most {longest_stack_name(s.target)} characters",
        source=tightest.source,
    )
