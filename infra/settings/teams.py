"""The teams of a stack: the type of the setting, and its rules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator
from pydantic import WithJsonSchema as Schema

from infra.catalog.names import CLUSTER_QUEUE, NAMESPACE
from infra.settings.fields import rejected
from infra.settings.problems import CONTRACT, Finding, Findings, rule, shown

if TYPE_CHECKING:
    from infra.settings.common import CloudNodes, CloudRay

MOST_TEAMS, MOST_NODES = 20, 1000
HEADS_PER_TEAM = 2
"""Ray heads that are always a team's: that of its Ray cluster, and that of a RayJob."""
LABEL = r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?"
GROUP = r"(?!system:)[!-~]{1,253}"
FIELDS = {
    "name": {"type": "string", "pattern": f"^{LABEL}$"},
    "namespace": {"type": "string", "pattern": f"^{LABEL}$"},
    "quota": {"type": "integer", "minimum": 1, "maximum": MOST_NODES},
    "group": {"type": "string", "pattern": f"^{GROUP}$"},
}
OTHERS = re.compile(r"default|(kube|gke|gmp|amazon|aws)-.*|.*-system")
"""Namespaces of Kubernetes, of the clouds and of operators."""
POLICIES = re.compile(r".*-(limits|team)")
"""Names of a namespace's admission policies (infra/kubernetes/admission.py); the first one has the namespace's name."""
EXAMPLE = "{name: vision, quota: 2}"
TEAMS_SCHEMA = {
    "type": "array",
    "maxItems": MOST_TEAMS,
    "items": {"type": "object", "properties": FIELDS, "required": ["name", "quota"], "additionalProperties": False},
}


@dataclass(frozen=True)
class Team:
    """A team.

    Args:
        name: Name of its ClusterQueue.
        namespace: Namespace of its Ray cluster, which the stack makes.
        quota: GPU nodes that are always the team's.
        group: RBAC group that is bound to the team's Role; None for no RoleBinding.
    """

    name: str
    namespace: str
    quota: int
    group: str | None

    def __str__(self) -> str:
        """Return the name, as messages show a team."""
        return self.name


def nodes_of(teams: Sequence[Team]) -> int:
    """Return the GPU nodes that are always one of the teams'."""
    return sum(team.quota for team in teams)


def namespace_of(team: Team | None) -> str:
    """Return the namespace of a team's Ray, or of the stack's own."""
    return NAMESPACE if team is None else team.namespace


def _team(value: Any) -> Team:
    if isinstance(value, Team):
        return value
    if not isinstance(value, Mapping):
        raise rejected("Each team must be a map.", f"write {EXAMPLE}")
    if unknown := [str(key) for key in value if key not in FIELDS]:
        raise rejected(f"A team has no setting {shown(unknown[0])}.", f"choose of {', '.join(FIELDS)}")
    name: Any = value.get("name")
    quota = value.get("quota")
    namespace, group = value.get("namespace") or name, value.get("group")
    for key, text in (("name", name), ("namespace", namespace)):
        if not isinstance(text, str) or not re.fullmatch(LABEL, text):
            fix = "write at most 40 of a-z, 0-9 and -, beginning with a letter"
            raise rejected(f"The {key} of a team must be a DNS label.", fix, "RFC 1123")
    if isinstance(quota, bool) or not isinstance(quota, int) or not 1 <= quota <= MOST_NODES:
        raise rejected(f"The quota of team {name} must be a number of GPU nodes.", f"write 1 to {MOST_NODES}")
    if group is not None and (not isinstance(group, str) or not re.fullmatch(GROUP, group)):
        fix = "write a name without spaces that does not begin with system:"
        raise rejected(f"The group of team {name} must be one of your own groups.", fix)
    return Team(name, namespace, quota, group)


def _teams(value: Any) -> tuple[Team, ...]:
    if not isinstance(value, tuple):
        raise rejected("This setting must be a list of teams.", f"write a list, such as [{EXAMPLE}]")
    if len(value) > MOST_TEAMS:
        raise rejected(f"A stack has at most {MOST_TEAMS} teams.", "make another stack for the others")
    return tuple(map(_team, value))


# The validator returns the value itself, so no other type is asked for.
Teams = Annotated[Any, BeforeValidator(_teams), Schema(TEAMS_SCHEMA)]


def ray_of(team: Team, ray: CloudRay) -> dict[str, Any]:
    """Return what is different for a team: the size of its RayCluster (not of a job, which borrows), and rights."""
    without: dict[str, Any] = {"cpu_workers": 0, **({"policies": ()} if "policies" in type(ray).model_fields else {})}
    if ray.mode != "cluster":
        return without
    # Elastic like the stack's own: with it, flavors have a topology or not.
    least = min(ray.min_workers, team.quota - 1) if ray.min_workers < ray.max_workers else team.quota
    return without | {"min_workers": least, "max_workers": team.quota}


class TeamRules:
    """Rules about the teams of a stack on a cloud."""

    if TYPE_CHECKING:
        teams: Teams
        queue: str
        nodes: CloudNodes
        ray: CloudRay

        @property
        def heads(self) -> int:
            """Ray heads that the CPU nodes have room for."""

    @property
    def team_nodes(self) -> int:
        """GPU nodes that are always a team's."""
        return nodes_of(self.teams)

    @rule("teams", "queue", source=CONTRACT)
    def teams_without_queue(self) -> Findings:
        if self.teams and self.queue != "kueue":
            yield Finding("Only Kueue keeps a team's nodes for it.", "set queue to kueue, or remove teams")

    @rule("teams", "ray.mode", source=CONTRACT)
    def teams_without_clusters(self) -> Findings:
        if self.teams and self.ray.mode != "cluster":
            fix = "set ray.mode to cluster, or remove teams"
            yield Finding(f"Each team has a RayCluster, which mode {self.ray.mode} does not make.", fix)

    @rule("teams", source=CONTRACT)
    def teams_alike(self) -> Findings:
        for what in ("name", "namespace"):
            every = [getattr(team, what) for team in self.teams]
            if twice := next((each for each in every if every.count(each) > 1), None):
                yield Finding(f"Two teams have the {what} {twice}.", f"give each team another {what}")
                return
        for team in self.teams:
            if team.name == CLUSTER_QUEUE:
                yield Finding(f"{CLUSTER_QUEUE} is the ClusterQueue of the stack.", "choose another name")
                return
            space, fix = team.namespace, "choose another namespace, such as vision"
            if space == NAMESPACE:
                yield Finding(f"{space} is the namespace of the stack's own Ray.", fix)
                return
            if OTHERS.fullmatch(space):
                yield Finding(f"{space} is, or may be, a namespace of Kubernetes, the cloud or an operator.", fix)
                return
            if POLICIES.fullmatch(space):
                yield Finding(f"{space} may be the name of another namespace's admission policy.", fix)
                return

    @rule("teams", "ray.maxWorkers", "nodes.max", source=CONTRACT)
    def teams_above_nodes(self) -> Findings:
        left = self.nodes.max - self.team_nodes
        if not self.teams or self.ray.max_workers <= left:
            return
        if left < 1:
            fix = f"raise nodes.max to {self.team_nodes + 1}, or lower the quotas"
            yield Finding(f"The teams' {self.team_nodes} nodes leave none for the stack's own Ray cluster.", fix)
        else:
            fix = f"lower ray.maxWorkers to {left}, or raise nodes.max"
            yield Finding(
                "The stack's own Ray cluster would borrow nodes of the teams, and be evicted when they need them.", fix
            )

    @rule("teams", "cluster.systemNodes", source=CONTRACT)
    def teams_without_heads(self) -> Findings:
        needed = HEADS_PER_TEAM * len(self.teams) + 1
        if self.teams and self.heads < needed:
            yield Finding(
                f"The CPU nodes have room for {self.heads} Ray heads, but the stack needs one and each team"
                f" {HEADS_PER_TEAM}, for its cluster and for a RayJob: {needed}.",
                "raise cluster.systemNodes, or choose a larger cluster.systemMachine",
            )
