"""Phases of a rehearsal of depth `pods` inside the cluster: submit a job, as a user does, and wait.

Ray is real: the job requests whole nodes, Ray's own autoscaler scales the workers up through the operator, and scales
them down when they have been idle for the (shortened) timeout.
"""

from __future__ import annotations

import base64
import time
from pathlib import Path

from infra.catalog.pins import RAY_API
from infra.kubernetes.pods import TOKEN_KEY
from rehearsal.clouds.kind import Json, value_at
from rehearsal.cluster import gang
from rehearsal.cluster.objects import place_of
from rehearsal.cluster.phases import GPUS, RAY_JOB, WORKERS, ClusterPhases, PhaseError, display_name, group, keeps
from rehearsal.cluster.scaling import Scale
from rehearsal.graph import Node
from tools.kubernetes.kubectl import forwarded

SECONDS = {"idleTimeoutSeconds": 20, "ttlSecondsAfterFinished": 10}
"""Settings of idle times in seconds, with their shortened values."""
_LOOK_S = 1.0


def scale_in(shared: Path) -> Scale:
    """Return the scale of a rehearsal: small pods for two processors, short idle times, and a shared folder."""
    shared.mkdir()
    # The user in the pods has another user id.
    shared.chmod(0o777)
    return Scale(shared=shared, seconds=SECONDS)


class PodPhases(ClusterPhases):
    """Cluster of a stack that is up, with real pods."""

    # A head starts in seconds, or in minutes if the shared processors are busy.
    comes_s = 400.0
    goes_s = 300.0

    def _want(self, node: Node, began: float) -> None:
        self._head_alone(node, began)
        live = self._live(node)
        self._job(node, live, min(WORKERS, int(group(live).get("maxReplicas", WORKERS))))

    def _wait(self, node: Node) -> None:
        super()._wait(node)
        live = self._live(node)
        if live["kind"] == "RayCluster":
            self._job(node, live, int(group(live).get("replicas", WORKERS)))
        elif node.type == RAY_JOB:
            self._until(
                f"{display_name(node)} ends", lambda: self._ended(node), self.comes_s, lambda: self._status(node)
            )

    def _let_go(self, node: Node) -> None:
        """Do nothing: Ray's autoscaler scales up."""

    def _forget(self, node: Node) -> None:
        """Do nothing: Ray's autoscaler scales down."""

    def _keeping(self, node: Node) -> str:
        live = self._live(node)
        # Its nodes are released a few seconds after its end, by the shortened timeout.
        return "" if node.type == RAY_JOB and live["spec"].get("shutdownAfterJobFinishes") else keeps(live)

    def _job(self, node: Node, live: Json, nodes: int) -> None:
        """Submit a gang of whole nodes and wait for its end; it must have run on that many nodes."""
        service = str(value_at(live, "status.head.serviceName"))
        namespace = str(live["metadata"]["namespace"])
        say = self.environment.timeline.said
        with forwarded(self.environment.plane.kubeconfig, namespace, f"svc/{service}") as port:
            job = gang.Job(port, self._token(live), gang.code(nodes, _gpus(live)))
            say(f"{display_name(node)}: job {job.id} requests {nodes} whole nodes")
            began, status_before = time.monotonic(), ""
            while True:
                self.environment.check()
                status = job.status()
                if status != status_before:
                    say(f"{display_name(node)}: job {job.id} is {status}")
                    status_before = status
                if status in gang.FINAL:
                    break
                if time.monotonic() - began > self.comes_s:
                    raise PhaseError(f"job {job.id} is {status} after {self.comes_s:.0f} s:\n{job.log()}")
                time.sleep(_LOOK_S)
            log = job.log()
        addresses = gang.addresses(log)
        if status != "SUCCEEDED" or len(addresses) != nodes:
            raise PhaseError(f"job {job.id} is {status}, and ran on {len(addresses)} of {nodes} nodes:\n{log}")
        after_s = time.monotonic() - began
        say(f"{display_name(node)}: job {job.id} ran on {', '.join(addresses)} and ended after {after_s:.0f} s")

    def _token(self, live: Json) -> str:
        name = value_at(live, "spec.authOptions.secretName") or live["metadata"]["name"]
        secret = self.environment.api.get("v1", "Secret", str(name), live["metadata"]["namespace"])
        return base64.b64decode((value_at(secret, "data") or {}).get(TOKEN_KEY) or "").decode()

    def _ended(self, node: Node) -> bool:
        status = self._status(node)
        if status.get("jobDeploymentStatus") == "Failed" or status.get("jobStatus") in ("FAILED", "STOPPED"):
            raise PhaseError(f"{display_name(node)} failed: {status.get('message') or status}\n{self._log_of(node)}")
        return status.get("jobDeploymentStatus") == "Complete"

    def _status(self, node: Node) -> Json:
        found: Json = self._live(node).get("status") or {}
        return found

    def _log_of(self, node: Node) -> str:
        """Return the output of a RayJob's job while its head exists."""
        live, status = self._live(node), self._status(node)
        namespace = str(place_of(node.id)[1])
        cluster = self.environment.api.get(RAY_API, "RayCluster", str(status.get("rayClusterName")), namespace)
        if cluster is None:
            return "(its cluster and its log are deleted)"
        service = str(value_at(cluster, "status.head.serviceName"))
        with forwarded(self.environment.plane.kubeconfig, namespace, f"svc/{service}") as port:
            return gang.log_of(port, self._token(cluster), str(value_at(live, "status.jobId")))


def _gpus(live: Json) -> int:
    container = group(live)["template"]["spec"]["containers"][0]
    return int((value_at(container, "resources.limits") or {}).get(GPUS, 0))
