"""ClusterQueues of two teams in one cohort: what Kueue lets a team borrow, and how the other team gets it back.

Real: the API server, the Job controller and Kueue 0.19.2. The objects are written here, not by a stack. No pod needs a
node, because admission is Kueue's alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from infra.catalog.names import GPU, LOCAL_QUEUE
from infra.catalog.pins import KUEUE_API
from infra.kubernetes.queue_objects import QUEUE_LABEL
from tests.kubernetes.queries import WITHIN_S, condition
from tools.kubernetes.api import Api, Json, NotYet
from tools.kubernetes.control_plane import ControlPlane

TEAMS = ("team-vision", "team-nlp")
VISION, NLP = TEAMS
QUOTA = 2


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    """An API server with the queues of two teams, each in its namespace."""
    api = plane.api
    flavor = {"apiVersion": KUEUE_API, "kind": "ResourceFlavor", "metadata": {"name": "teams"}, "spec": {}}
    api.create(flavor)
    for team in TEAMS:
        api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}})
        quota = {"name": "teams", "resources": [{"name": GPU, "nominalQuota": str(QUOTA)}]}
        spec = {
            "cohortName": "teams",
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": team}},
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "Never"},
            "resourceGroups": [{"coveredResources": [GPU], "flavors": [quota]}],
        }
        api.create({"apiVersion": KUEUE_API, "kind": "ClusterQueue", "metadata": {"name": team}, "spec": spec})
        queue = {"metadata": {"name": LOCAL_QUEUE, "namespace": team}, "spec": {"clusterQueue": team}}
        api.create({"apiVersion": KUEUE_API, "kind": "LocalQueue", **queue})
    yield api
    for team in TEAMS:
        for job in api.list("batch/v1", "Job", team):
            api.delete("batch/v1", "Job", job["metadata"]["name"], team, propagation="Background")
        api.until("no workload", partial(no_workload, api, team), WITHIN_S)
        api.delete(KUEUE_API, "LocalQueue", LOCAL_QUEUE, team)
        api.delete(KUEUE_API, "ClusterQueue", team)
    api.delete(KUEUE_API, "ResourceFlavor", "teams")
    api.until("no queue", lambda: not api.get(KUEUE_API, "ResourceFlavor", "teams"), WITHIN_S)


def no_workload(api: Api, team: str) -> bool:
    return not api.list(KUEUE_API, "Workload", team)


def submit(api: Api, team: str, name: str, nodes: int) -> None:
    """Create a Job of one pod with one GPU per node."""
    container = {"name": "work", "image": "work", "resources": {"requests": {GPU: "1"}, "limits": {GPU: "1"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    metadata = {"name": name, "namespace": team, "labels": {QUEUE_LABEL: LOCAL_QUEUE}}
    spec = {"suspend": True, "parallelism": nodes, "completions": nodes, "template": template}
    api.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})


def workload_of(api: Api, team: str, name: str) -> Json:
    found = (each for each in api.list(KUEUE_API, "Workload", team) if f"job-{name}-" in each["metadata"]["name"])
    return next(found, {})


def until_admitted(api: Api, team: str, name: str) -> None:
    def admitted() -> bool:
        found = workload_of(api, team, name)
        if condition(found, "Admitted").get("status") == "True":
            return True
        raise NotYet(str(found.get("status")))

    api.until(f"{name} admitted", admitted, WITHIN_S)


def test_quota_is_borrowed_and_reclaimed(api: Api) -> None:
    """vision borrows all nodes, nlp's job evicts it, and it runs again after nlp's job."""
    submit(api, VISION, "large", 2 * QUOTA)
    until_admitted(api, VISION, "large")
    submit(api, NLP, "owner", QUOTA)
    until_admitted(api, NLP, "owner")
    evicted = workload_of(api, VISION, "large")
    assert condition(evicted, "Preempted")["reason"] == "InCohortReclamation"
    assert condition(evicted, "QuotaReserved")["status"] == "False"
    api.delete("batch/v1", "Job", "owner", NLP, propagation="Background")
    until_admitted(api, VISION, "large")


def test_use_within_quota_is_not_preempted(api: Api) -> None:
    """A team that wants more than is unused waits, and evicts no job that is within another team's quota."""
    submit(api, VISION, "own", QUOTA)
    until_admitted(api, VISION, "own")
    submit(api, NLP, "greedy", QUOTA + 1)

    def refused() -> bool:
        found = condition(workload_of(api, NLP, "greedy"), "QuotaReserved")
        if found.get("status") == "False":
            return True
        raise NotYet(str(found))

    api.until("Kueue's answer", refused, WITHIN_S)
    submit(api, NLP, "fits", QUOTA)
    until_admitted(api, NLP, "fits")
    mine = workload_of(api, VISION, "own")
    assert condition(mine, "Admitted")["status"] == "True"
    assert "Evicted" not in [each["type"] for each in mine["status"]["conditions"]]
