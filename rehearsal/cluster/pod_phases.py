"""Phases of a rehearsal of depth `pods` inside the cluster: submit a job, as a user does, and wait.

Ray is real: the job requests whole nodes, Ray's autoscaler scales the workers up through the operator, and scales
them down when they have been idle for the (shortened) timeout.
"""

from __future__ import annotations

import base64
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import SecretStr
from ray.job_submission import JobSubmissionClient

from infra.catalog.pins import RAY_API
from infra.kubernetes.pods import TOKEN_KEY
from rehearsal.cluster.environment import Environment
from rehearsal.cluster.objects import place_of
from rehearsal.cluster.phases import GPUS, RAY_JOB, WORKERS, ClusterPhases, PhaseError, display_name, group, keeps
from rehearsal.cluster.scaling import Scale
from rehearsal.engine.kind import Json, value_at
from rehearsal.graph import GraphNode
from tools.kubernetes.kubectl import ForwardError, forwarded
from workloads.client.api import JobsApi

SECONDS = {"idleTimeoutSeconds": 20, "ttlSecondsAfterFinished": 10}
"""Settings of idle times in seconds, with their shortened values."""
_LOOK_S = 1.0
_REQUEST_S = 60.0
_WORD = "ADDRESSES"
_CODE = textwrap.dedent(
    """
    import ray
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Within
    ray.init()
    nodes, share = {nodes}, {share}
    group = placement_group([share] * nodes, strategy="STRICT_SPREAD")
    ray.get(group.ready())
    @ray.remote(num_gpus=share.get("GPU", 0), num_cpus=share.get("CPU", 0))
    def where():
        return ray.util.get_node_ip_address()
    found = [where.options(scheduling_strategy=Within(group, index)).remote() for index in range(nodes)]
    print("{word}", *sorted(set(ray.get(found))))
    """
)


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
    ends = (PhaseError, ForwardError)

    def __init__(self, environment: Environment, traces: Callable[[], list[str]]) -> None:
        super().__init__(environment)
        self.traces = traces
        """Returns the host resources that stopped nodes left behind, one line each."""

    def _want(self, node: GraphNode) -> None:
        self._head_alone(node)
        live = self._live(node)
        self._job(node, live, min(WORKERS, int(group(live).get("maxReplicas", WORKERS))))

    def _wait(self, node: GraphNode) -> None:
        super()._wait(node)
        live = self._live(node)
        if live["kind"] == "RayCluster":
            self._job(node, live, int(group(live).get("replicas", WORKERS)))
        elif node.type == RAY_JOB:
            self._until(
                f"{display_name(node)} ends", lambda: self._ended(node), self.comes_s, lambda: self._status(node)
            )

    def _let_go(self, node: GraphNode, workers: Sequence[str]) -> None:
        """Do nothing: Ray's autoscaler scales down."""

    def _keeping(self, node: GraphNode) -> str:
        live = self._live(node)
        # Its nodes are released a few seconds after its end, by the shortened timeout.
        return "" if node.type == RAY_JOB and live["spec"].get("shutdownAfterJobFinishes") else keeps(live)

    def _job(self, node: GraphNode, live: Json, nodes: int) -> None:
        """Submit a gang of whole nodes and wait for its end; it must have run on that many nodes."""
        say = self.environment.timeline.said
        with self._connected(live) as api:
            # Ray writes the command into the log, where it must not look like output.
            program = base64.b64encode(gang_program(nodes, _gpus(live)).encode()).decode()
            try:
                id_ = JobSubmissionClient(api.address, headers=api.headers).submit_job(
                    entrypoint=f"python -c \"import base64; exec(base64.b64decode('{program}'))\"",
                    submission_id=f"rehearsal-{uuid.uuid4().hex[:6]}",
                )
            except RuntimeError as problem:
                raise PhaseError(f"Ray refused the job: {problem}") from problem
            say(f"{display_name(node)}: job {id_} requests {nodes} whole nodes")
            began, status_before = time.monotonic(), ""
            while not (job := api.job(id_)).terminal:
                self.environment.controllers.check()
                if job.status != status_before:
                    say(f"{display_name(node)}: job {id_} is {job.status}")
                    status_before = job.status
                if time.monotonic() - began > self.comes_s:
                    raise PhaseError(f"job {id_} is {job.status} after {self.comes_s:.0f} s:\n{api.logs(id_)}")
                time.sleep(_LOOK_S)
            say(f"{display_name(node)}: job {id_} is {job.status}")
            log = api.logs(id_)
        addresses = addresses_in(log)
        if job.status != "SUCCEEDED" or len(addresses) != nodes:
            raise PhaseError(f"job {id_} is {job.status}, and ran on {len(addresses)} of {nodes} nodes:\n{log}")
        after_s = time.monotonic() - began
        say(f"{display_name(node)}: job {id_} ran on {', '.join(addresses)} and ended after {after_s:.0f} s")

    @contextmanager
    def _connected(self, cluster: Json) -> Iterator[JobsApi]:
        """Connect to the job API of a RayCluster, with its token."""
        service, namespace = str(value_at(cluster, "status.head.serviceName")), str(cluster["metadata"]["namespace"])
        name = value_at(cluster, "spec.authOptions.secretName") or cluster["metadata"]["name"]
        secret = self.environment.api.get("v1", "Secret", str(name), namespace)
        token = SecretStr(base64.b64decode((value_at(secret, "data") or {}).get(TOKEN_KEY) or "").decode())
        with forwarded(self.environment.plane.kubeconfig, namespace, f"svc/{service}") as port:
            yield JobsApi(f"http://127.0.0.1:{port}", token, cluster=service, timeout_s=_REQUEST_S)

    def _ended(self, node: GraphNode) -> bool:
        status = self._status(node)
        if status.get("jobDeploymentStatus") == "Failed" or status.get("jobStatus") in ("FAILED", "STOPPED"):
            raise PhaseError(f"{display_name(node)} failed: {status.get('message') or status}\n{self._log_of(node)}")
        return status.get("jobDeploymentStatus") == "Complete"

    def _log_of(self, node: GraphNode) -> str:
        """Return the output of a RayJob's job while its head exists."""
        status, namespace = self._status(node), place_of(node.id)[1]
        cluster = self.environment.api.get(RAY_API, "RayCluster", str(status.get("rayClusterName")), namespace)
        if cluster is None:
            return "(its cluster and its log are deleted)"
        with self._connected(cluster) as api:
            return api.logs(str(status.get("jobId")))
        raise AssertionError


def _gpus(live: Json) -> int:
    container = group(live)["template"]["spec"]["containers"][0]
    return int((value_at(container, "resources.limits") or {}).get(GPUS, 0))


def gang_program(nodes: int, gpus: int) -> str:
    """Return a program with one task per node, which takes all of its GPUs, and prints the nodes' addresses."""
    return _CODE.format(nodes=nodes, share={"GPU": gpus} if gpus else {"CPU": 1}, word=_WORD)


def addresses_in(log: str) -> list[str]:
    """Return the distinct addresses that the program printed; empty if it did not get that far."""
    lines = [line.split()[1:] for line in log.splitlines() if line.startswith(f"{_WORD} ")]
    return lines[-1] if lines else []
