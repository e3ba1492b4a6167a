"""`nodes.maxHours` of each workload that a CronJob ends: its script, as its own account, against the real API server.

Real: Pulumi's engine, the API server with RBAC, the CronJob and Job controllers, the scheduler, KubeRay 1.6.2 and Kueue
0.19.2. Simulated: nodes, the clouds' autoscalers, and the pods of the CronJob: the test runs their command. The hours
pass in the annotation in which the script keeps its count.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.pins import KUEUE_API, RAY_API
from infra.kubernetes.pods import ACCOUNT_FOLDER
from infra.kubernetes.time_limit_pod import ENDED, SINCE
from infra.settings import CloudSettings
from rehearsal.cluster.controllers.cloud_controllers import CloudControllers
from rehearsal.fork_server import ForkServer
from tests.kubernetes.queries import (
    RAY,
    WITHIN_S,
    condition,
    gpu_nodes,
    is_ready,
    name,
    pods,
    rules,
    scale,
    until_ready,
    until_reserved,
    workers,
    workload,
)
from tests.kubernetes.running_stack import RunningStack, running_stack
from tools.kubernetes.api import Api, ApiError, Json, NotYet
from tools.kubernetes.control_plane import ControlPlane

HOURS = 24
CLUSTER = {"mode": "cluster", "entrypoint": None}
SEEN = {"list /pods"}
DRY_RUN = {"dryRun": "All"}


class Limited:
    """A running stack with nodes.maxHours, and its CronJob."""

    def __init__(self, stack: RunningStack, folder: Path, kind: str) -> None:
        self.stack, self.api, self.kind, self._folder = stack, stack.api, kind, folder

    @property
    def workload(self) -> Json:
        """The RayCluster or RayJob."""
        (found,) = self.api.list(RAY_API, self.kind, RAY)
        return found

    @property
    def notes(self) -> Json:
        """The script's annotations."""
        return {key: value for key, value in self.workload["metadata"]["annotations"].items() if key in (SINCE, ENDED)}

    @property
    def pod(self) -> Json:
        """The spec of the CronJob's pods."""
        (job,) = self.api.list("batch/v1", "CronJob", RAY)
        spec: Json = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        return spec

    @property
    def token(self) -> str:
        """A token of the account of the CronJob's pods."""
        path = f"/api/v1/namespaces/{RAY}/serviceaccounts/{self.pod['serviceAccountName']}/token"
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        return str(self.api.request("POST", path, body=asked)["status"]["token"])

    @cached_property
    def account(self) -> Api:
        """The API server, as that account."""
        return Api(self.stack.plane.url, self.token, self.stack.plane.authority)

    def look(self) -> str:
        """Run the command of the CronJob's pods as their account; return its line."""
        (container,) = self.pod["containers"]
        (self._folder / "token").write_text(self.token)
        (self._folder / "ca.crt").write_bytes(Path(self.stack.plane.authority).read_bytes())
        host, _, port = self.stack.plane.url.removeprefix("https://").partition(":")
        line = [*container["command"], *(each.replace(ACCOUNT_FOLDER, str(self._folder)) for each in container["args"])]
        there = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        done = subprocess.run(line, env=os.environ | there, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        (said,) = done.stdout.splitlines()
        return said

    def pass_hours(self, hours: float) -> None:
        """Move the begin of the count into the past."""
        self.annotate(f"{datetime.now(UTC) - timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}")

    def annotate(self, since: str) -> None:
        """Write the begin of the count, as any user may who may change the workload."""
        body = {"metadata": {"annotations": {SINCE: since}}}
        self.api.patch(RAY_API, self.kind, name(self.workload), RAY, body, type="merge")

    def attempt(self, path: str, *patch: Json) -> tuple[str, Json]:
        """Return the API server's refusal of a JSON patch by the account, in a dry run, or "" and the object."""
        json_patch = "application/json-patch+json"
        try:
            return "", self.account.request("PATCH", path, query=DRY_RUN, body=list(patch), content_type=json_patch)
        except ApiError as problem:
            return problem.message, {}

    def until_workers(self, count: int) -> list[Json]:
        """Wait until that many workers are ready, or no pod of Ray and no GPU node is left."""

        def look() -> list[Json] | None:
            found = workers(self.api)
            gone = count or not (pods(self.api, "ray.io/node-type") or gpu_nodes(self.api))
            if len(found) == count and all(map(is_ready, found)) and gone:
                return found or [{}]
            raise NotYet(f"{list(map(name, pods(self.api)))}, {list(map(name, gpu_nodes(self.api)))}")

        return self.api.until(f"{count} workers", look, 2 * WITHIN_S)


@pytest.fixture
def limited(fork_server: ForkServer, tmp_path: Path) -> Callable[..., Any]:
    """Return a function that runs a stack file with nodes.maxHours and other settings."""

    def silent(controllers: CloudControllers) -> None:
        # A RayJob's entry point does not end.
        controllers.dashboard.manual = True

    @contextmanager
    def run(stack: str, kind: str, **settings: Any) -> Any:
        changes = settings | {"nodes": {"max": 2, "maxHours": HOURS}}
        with running_stack(stack, tmp_path / "stack", fork_server.bin, silent, changes) as running:
            assert isinstance(running.settings, CloudSettings)
            yield Limited(running, tmp_path, kind)

    return run


def count_and_end(it: Limited) -> None:
    """Run the script before the limit, with a recreated worker, and after it."""
    first = workers(it.api)[0]
    assert "the count begins" in it.look()
    begun = it.notes[SINCE]
    assert begun == min(pod["status"]["startTime"] for pod in workers(it.api))
    for since in ("2099-01-01T00:00:00Z", "soon"):
        it.annotate(since)
        assert f"ignored '{since}'" in it.look()
        assert it.notes == {SINCE: begun}
    it.pass_hours(HOURS - 0.1)
    begun = it.notes[SINCE]
    it.api.delete("v1", "Pod", name(first), RAY)
    it.until_workers(2)
    assert f"the limit is {HOURS} hours" in it.look()
    assert it.notes == {SINCE: begun}
    it.pass_hours(HOURS + 0.1)
    assert "ended" in it.look()
    assert set(it.notes) == {ENDED}
    assert f"nodes.maxHours={HOURS}" in it.notes[ENDED]


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of an object that are not objects, and their JSON pointers."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}")
    else:
        yield path, value


def only_ends(it: Limited, *allowed: str) -> None:
    """The account may change no field of the workload but those that end it, not even those that a release adds."""
    workload = it.workload
    path = it.api.path(RAY_API, it.kind, RAY, name(workload))
    for field, value in leaves(workload["spec"], "/spec"):
        other = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else f"{value}1"
        for patch in ({"op": "replace", "path": field, "value": other}, {"op": "remove", "path": field}):
            said, changed = it.attempt(path, patch)
            # The kind's own schema refuses some first, and sets others again.
            refused = "account of a time limit may only end" in said or "is invalid" in said
            assert refused or field in allowed or changed["spec"] == workload["spec"], (patch, said)
    more: tuple[tuple[str, Any], ...] = (
        ("/spec/autoscalerOptions", {"image": "other"})
        if it.kind == "RayCluster"
        else ("/spec/runtimeEnvYAML", "pip: [other]"),
        ("/metadata/annotations/ray.io~1overwrite-container-cmd", "true"),
        ("/metadata/labels", {"a": "b"}),
        ("/metadata/finalizers", ["example.com/none"]),
        ("/metadata/ownerReferences", [{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "a"}]),
    )
    for field, value in more:
        said, _ = it.attempt(path, {"op": "add", "path": field, "value": value})
        assert "account of a time limit may" in said, (field, said)
    for note in (SINCE, ENDED):
        added = {"op": "add", "path": f"/metadata/annotations/{note.replace('/', '~1')}", "value": "a"}
        assert it.attempt(path, added)[0] == ""


def test_cluster_is_suspended_and_the_next_up_resumes_it(limited: Callable[..., Any]) -> None:
    with limited("gke", "RayCluster") as it:
        until_ready(it.api, 0)
        assert "no worker" in it.look()
        scale(it.api, 2)
        assert rules(it.stack.plane, "gke-ray-time-limit") == SEEN | {
            f"{verb} ray.io/rayclusters gke-ray" for verb in ("get", "patch")
        }
        only_ends(it, "/spec/suspend", "/spec/workerGroupSpecs/0/replicas")
        count_and_end(it)
        it.until_workers(0)
        assert it.workload["status"]["state"] == "suspended"
        assert "no worker" in it.look()
        engine = it.stack.engine
        assert engine.must("up", "--yes", "--skip-preview", "--refresh", stack=True).ok
        until_ready(it.api, 0)
        assert engine.preview("--refresh").ok


def test_cluster_in_a_queue_releases_its_quota(limited: Callable[..., Any]) -> None:
    with limited("gke-dws", "RayCluster", ray=CLUSTER) as it:
        it.until_workers(2)
        assert rules(it.stack.plane, "gke-dws-ray-time-limit") == SEEN | {
            *(f"{verb} ray.io/rayclusters gke-dws-ray" for verb in ("get", "patch")),
            *(f"{verb} kueue.x-k8s.io/workloads" for verb in ("list", "patch")),
        }
        only_ends(it, "/spec/suspend", "/spec/workerGroupSpecs/0/replicas")
        own = workload(it.api, name(it.workload))
        assert own is not None
        other = {
            "apiVersion": KUEUE_API,
            "kind": "Workload",
            "metadata": {"name": "other", "namespace": RAY},
            "spec": {"podSets": own["spec"]["podSets"], "queueName": "none", "active": True},
        }
        it.api.create(other)
        for each, active, said in (
            (own, False, ""),
            (own, True, ""),
            (other, False, "only the Workload of its RayCluster"),
        ):
            patch = {"op": "add", "path": "/spec/active", "value": active}
            refusal, _ = it.attempt(it.api.path(KUEUE_API, "Workload", RAY, name(each)), patch)
            assert (bool(refusal), said in refusal) == (bool(said), True)
        priority = {"op": "add", "path": "/spec/priority", "value": 1000}
        assert "may only end" in it.attempt(it.api.path(KUEUE_API, "Workload", RAY, name(own)), priority)[0]
        it.api.delete(KUEUE_API, "Workload", "other", RAY)
        count_and_end(it)
        it.until_workers(0)
        until_reserved(it.api, 0)
        evicted = condition(workload(it.api, name(it.workload)), "Evicted")
        assert evicted["reason"] == "Deactivated"
        assert it.stack.engine.preview("--refresh").ok


def test_job_fails_and_does_not_run_again(limited: Callable[..., Any]) -> None:
    with limited("gke-dws", "RayJob") as it:
        it.until_workers(2)
        only_ends(it, "/spec/suspend")
        count_and_end(it)

        def failed() -> bool:
            return bool(it.workload["status"]["jobDeploymentStatus"] == "Failed")

        it.api.until("the failed RayJob", failed, WITHIN_S)
        assert it.workload["status"]["reason"] == "DeadlineExceeded"
        it.until_workers(0)
        until_reserved(it.api, 0)
        assert it.stack.engine.preview("--refresh").ok


def test_deadline_of_a_pod_cannot_be_moved(plane: ControlPlane) -> None:
    """That of an Indexed Job's pods, which no CronJob ends: a user may shorten it only, and the kubelet counts."""
    container = {"name": "a", "image": "a"}
    spec = {"schedulerName": "none", "activeDeadlineSeconds": 3600 * HOURS, "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "limited", "namespace": "default"}, "spec": spec}
    plane.api.until(
        "the account of its pods", lambda: plane.api.get("v1", "ServiceAccount", "default", "default"), WITHIN_S
    )
    plane.api.create(pod)
    try:
        for deadline in (3600 * HOURS + 1, None, 0, -1, 2**40):
            with pytest.raises(ApiError, match="activeDeadlineSeconds"):
                plane.api.patch("v1", "Pod", "limited", "default", {"spec": {"activeDeadlineSeconds": deadline}})
        plane.api.patch("v1", "Pod", "limited", "default", {"spec": {"activeDeadlineSeconds": 1}})
    finally:
        plane.api.delete("v1", "Pod", "limited", "default")
