"""The head of the gke stack's RayJob is lost while its entry point runs: the entry point does not start again.

Real: API server, KubeRay, RBAC, the init container's command as the head's account. Simulated: nodes and pods (kwok),
and Ray's dashboard, which forgets the jobs of a lost head. The test runs the two commands that a pod would run.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

from infra.catalog.pins import RAY as RAY_VERSION
from infra.catalog.pins import RAY_API
from infra.kubernetes.pods import ACCOUNT_FOLDER, HEAD_ACCOUNT
from infra.kubernetes.start_once import LOST, MARK, REFUSAL
from rehearsal.cluster.controllers.cloud_controllers import CloudControllers
from tests.kubernetes.queries import RAY, WITHIN_S, head, name, pods, rules
from tests.kubernetes.running_stack import RunningStack
from tools.kubernetes.api import Json, NotYet

IMAGE = f"example/ray:{RAY_VERSION}-py311-cu130"
POOL, HEAD = "gpu", "ray.io/node-type=head"


def prepared(controllers: CloudControllers) -> None:
    """There are no GPU nodes yet, and the entry point ends on request of the test."""
    controllers.autoscaler.out_of_stock.add(POOL)
    controllers.dashboard.manual = True


class HeadPod:
    """What the pod of the current head runs. `folder` replaces its volume."""

    def __init__(self, stack: RunningStack, folder: Path) -> None:
        self.stack, self.pod, self._folder = stack, head(stack.api), folder
        folder.mkdir()
        (check,) = self.pod["spec"]["initContainers"]
        self._check = [*check["command"], *map(self._here, check["args"])]

    def _here(self, text: str) -> str:
        return text.replace(ACCOUNT_FOLDER, str(self._folder)).replace(MARK, shlex.quote(str(self._folder / "mark")))

    def check(self) -> None:
        """Run its init container, as its account."""
        path = f"/api/v1/namespaces/{RAY}/serviceaccounts/{self.pod['spec']['serviceAccountName']}/token"
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = self.stack.api.request("POST", path, body=asked)["status"]["token"]
        (self._folder / "token").write_text(token)
        (self._folder / "ca.crt").write_bytes(Path(self.stack.plane.authority).read_bytes())
        host, _, port = self.stack.plane.url.removeprefix("https://").partition(":")
        there = os.environ | {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        done = subprocess.run(self._check, env=there, capture_output=True, text=True, timeout=150)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run the entry point, as Ray does."""
        return subprocess.run(self._here(line), shell=True, capture_output=True, text=True, timeout=60)


def test_entry_point_does_not_start_again_when_the_head_is_lost(
    run_stack: Callable[..., RunningStack], tmp_path: Path
) -> None:
    """A head that is lost while the workers wait for nodes is replaced, and the entry point starts. After that, KubeRay
    submits it again to the new head, whatever backoffLimit says; there it is refused, the RayJob fails with the reason,
    and its cluster is deleted."""
    ray = {"mode": "job", "entrypoint": "echo STARTED", "image": IMAGE}
    stack = run_stack("gke", before=prepared, nodes={"max": 1}, ray=ray)
    api, dashboard = stack.api, stack.controllers.dashboard

    def rayjob() -> Json:
        (found,) = api.list(RAY_API, "RayJob", RAY)
        return found

    def until(field: str, wanted: str) -> Json:
        def look() -> Json:
            status: Json = rayjob()["status"]
            if status.get(field) == wanted:
                return status
            raise NotYet(str(status))

        return api.until(f"{field} {wanted}", look, WITHIN_S)

    def lose(lost: HeadPod) -> None:
        api.delete("v1", "Pod", name(lost.pod), RAY)
        known = lost.pod["metadata"]["uid"]
        api.until("another head", lambda: any(pod["metadata"]["uid"] != known for pod in pods(api, HEAD)), WITHIN_S)

    until("jobDeploymentStatus", "Initializing")
    api.until("the head", lambda: pods(api, HEAD) or None, WITHIN_S)
    assert rules(stack.plane, HEAD_ACCOUNT) == {f"get ray.io/rayjobs {name(rayjob())}"}
    early = HeadPod(stack, tmp_path / "early")
    lose(early)
    first = HeadPod(stack, tmp_path / "first")
    first.check()
    stack.controllers.autoscaler.out_of_stock.clear()

    (job,) = api.until("the entry point to be submitted", lambda: dashboard.jobs or None, 2 * WITHIN_S)
    started = first.start(job.request["entrypoint"])
    assert (started.returncode, started.stdout, started.stderr) == (0, "STARTED\n", "")
    dashboard.change(job.id, "RUNNING", "Job is currently running.")
    until("jobStatus", "RUNNING")

    lose(first)
    second = HeadPod(stack, tmp_path / "second")
    second.check()
    again = api.until(
        "it to be submitted again", lambda: next((each for each in dashboard.jobs if each is not job), None), WITHIN_S
    )
    assert again.id == job.id
    refused = second.start(again.request["entrypoint"])
    assert (refused.returncode, refused.stdout) == (LOST, "")
    assert REFUSAL in refused.stderr
    dashboard.change(job.id, "FAILED", f"Job entrypoint command failed with exit code {LOST}: {refused.stderr}")
    status = until("jobDeploymentStatus", "Failed")
    assert (status["failed"], REFUSAL in status["message"]) == (1, True)
