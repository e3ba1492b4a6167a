"""`nodes.maxHours` of each workload that a CronJob ends: its script, as its own account, against the real API server.

Real: Pulumi's engine, the API server with RBAC, the CronJob and Job controllers, the scheduler, KubeRay 1.6.2 and Kueue
0.19.2. Simulated: nodes, the clouds' autoscalers, and the pods of the CronJob: the test runs their command. The hours
pass in the annotation in which the script keeps its count.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.pins import RAY_API
from infra.kubernetes.time_limit_objects import ACCOUNT_FOLDER
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
from tools.kubernetes.api import Json, NotYet

HOURS = 24
CLUSTER = {"mode": "cluster", "entrypoint": None}
SEEN = {"list /pods"}


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

    def look(self) -> str:
        """Run the command of the CronJob's pods as their account; return its line."""
        (job,) = self.api.list("batch/v1", "CronJob", RAY)
        pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        path = f"/api/v1/namespaces/{RAY}/serviceaccounts/{pod['serviceAccountName']}/token"
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = self.api.request("POST", path, body=asked)["status"]["token"]
        (self._folder / "token").write_text(token)
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
        begin = datetime.now(UTC) - timedelta(hours=hours)
        body = {"metadata": {"annotations": {SINCE: f"{begin:%Y-%m-%dT%H:%M:%SZ}"}}}
        self.api.patch(RAY_API, self.kind, name(self.workload), RAY, body, type="merge")

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


def test_cluster_is_suspended_and_the_next_up_resumes_it(limited: Callable[..., Any]) -> None:
    with limited("gke", "RayCluster") as it:
        until_ready(it.api, 0)
        assert "no worker" in it.look()
        scale(it.api, 2)
        assert rules(it.stack.plane, "gke-ray-time-limit") == SEEN | {
            f"{verb} ray.io/rayclusters gke-ray" for verb in ("get", "patch")
        }
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
        count_and_end(it)
        it.until_workers(0)
        until_reserved(it.api, 0)
        evicted = condition(workload(it.api, name(it.workload)), "Evicted")
        assert evicted["reason"] == "Deactivated"
        assert it.stack.engine.preview("--refresh").ok


def test_job_fails_and_does_not_run_again(limited: Callable[..., Any]) -> None:
    with limited("gke-dws", "RayJob") as it:
        it.until_workers(2)
        count_and_end(it)

        def failed() -> bool:
            return bool(it.workload["status"]["jobDeploymentStatus"] == "Failed")

        it.api.until("the failed RayJob", failed, WITHIN_S)
        assert it.workload["status"]["reason"] == "DeadlineExceeded"
        it.until_workers(0)
        until_reserved(it.api, 0)
        assert it.stack.engine.preview("--refresh").ok
