"""What a team's Ray cluster is made of: its quota, its size and its namespace. `tests/rehearsal` deploys teams."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from infra.catalog.names import GPU
from infra.gke.workload import ray_args
from infra.kubernetes.admission import limit_policy
from infra.kubernetes.client_access import client_role
from infra.kubernetes.queue_objects import cluster_queue, times, total
from infra.kubernetes.workload_objects import every_object, workload
from infra.project import PROJECT
from infra.settings.cloud import CloudSettings
from infra.settings.teams import Team
from tests.unit.stacks import eks, gke

TEAMS = [
    {"name": "vision", "quota": 2, "group": "vision@example.com"},
    {"name": "nlp", "quota": 1, "namespace": "text"},
]
SHARED = {"queue": "kueue", "nodes.max": 8, "ray.maxWorkers": 4, "cluster.systemNodes": 5, "teams": TEAMS}


def quotas(queue: dict[str, Any]) -> dict[str, dict[str, str]]:
    (group,) = queue["spec"]["resourceGroups"]
    return {one["name"]: {each["name"]: each["nominalQuota"] for each in one["resources"]} for one in group["flavors"]}


def test_quotas_of_the_stack_and_its_teams_are_all_nodes_and_heads() -> None:
    settings = gke(SHARED)
    args = ray_args(settings, "a-ray").queue
    assert args is not None
    queues = [cluster_queue(args), *(cluster_queue(args, team) for team in settings.teams)]
    assert [quotas(one)["gpu"][GPU] for one in queues] == [times("8", 5), times("8", 2), times("8", 1)]
    assert [quotas(one)["system"]["cpu"] for one in queues] == [str(4 * (settings.heads - 4)), "8", "8"]
    assert [one["metadata"]["name"] for one in queues] == ["gpu", "vision", "nlp"]
    namespaces = [one["spec"]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for one in queues]
    assert namespaces == ["ray", "vision", "text"]
    assert {one["spec"]["cohortName"] for one in queues} == {"nodes"}


def test_queue_without_teams_is_in_no_cohort() -> None:
    args = ray_args(gke({"queue": "kueue"}), "a-ray").queue
    assert args is not None
    assert {"cohortName", "preemption"}.isdisjoint(cluster_queue(args)["spec"])


@pytest.mark.parametrize(
    ("fewest", "quota", "size"), [(None, 2, (2, 2)), (1, 2, (1, 2)), (3, 2, (1, 2)), (1, 1, (0, 1)), (0, 3, (0, 3))]
)
def test_cluster_of_a_team_has_its_quota_and_is_elastic_if_the_stacks_is(
    fewest: int | None, quota: int, size: tuple[int, int]
) -> None:
    """Nodes are chosen by topology for clusters of a fixed size only, and all of them share the flavors."""
    settings = gke({**SHARED, "nodes.capacity": "spot", "ray.minWorkers": fewest})
    team = Team("vision", "vision", quota, None)
    own, args = ray_args(settings, "a-ray"), ray_args(settings.for_team(team), "a-ray")
    (group,) = workload(args)["spec"]["workerGroupSpecs"]
    assert (group["minReplicas"], group["maxReplicas"]) == size
    assert (args.elastic, args.pod) == (own.elastic, own.pod)


def test_head_of_an_elastic_cluster_has_quota_for_its_autoscaler() -> None:
    """Kueue counts all containers of a pod."""
    args = ray_args(gke({**SHARED, "nodes.capacity": "spot", "ray.minWorkers": 0}), "a-ray")
    assert args.queue is not None
    spec = workload(args)["spec"]
    head = spec["headGroupSpec"]["template"]["spec"]["containers"]
    needs = [*(each["resources"]["requests"] for each in head), spec["autoscalerOptions"]["resources"]["requests"]]
    for name in ("cpu", "memory"):
        assert args.queue.head[name] == total(*((each[name], 1) for each in needs))


def test_team_sees_no_name_of_another_namespace_and_one_secret() -> None:
    settings = gke({**SHARED, "storage.bucket": "ours", "ray.cpuWorkers": 1, "cluster.systemNodes": 6})
    args = ray_args(settings.for_team(settings.teams[1]), "a-ray")
    objects = every_object(args)
    assert {each["metadata"].get("namespace", "text") for each in objects} == {"text"}
    text = json.dumps(objects)
    assert "gcsfuse" not in text
    assert "cpu-group" not in text
    secrets = [rule["resourceNames"] for rule in client_role(args)["rules"] if "secrets" in rule["resources"]]
    assert secrets == [["a-ray-outputs"]]


def test_limit_of_a_team_is_for_accounts_of_its_namespace() -> None:
    policy, binding = limit_policy("text")
    assert "system:serviceaccount:text:" in json.dumps(policy)
    assert "serviceaccount:ray:" not in json.dumps(policy)
    assert binding["spec"]["matchResources"]["namespaceSelector"]["matchLabels"] == {
        "kubernetes.io/metadata.name": "text"
    }


@pytest.mark.parametrize("stack", [gke, eks])
def test_setup_of_the_page_is_valid(stack: Callable[..., CloudSettings]) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", (PROJECT / "docs" / "teams.md").read_text(encoding="utf-8"), re.DOTALL)
    given = {key.removeprefix("rdma-ray:"): value for key, value in yaml.safe_load(block).items()}
    changes = {
        f"{key}.{name}" if name else key: one
        for key, value in given.items()
        for name, one in (value.items() if isinstance(value, dict) else [("", value)])
    }
    settings = stack(changes)
    assert ([team.quota for team in settings.teams], settings.ray.max_workers) == ([4, 2], 2)
