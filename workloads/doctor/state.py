"""Recorded state of a stack: its outputs, Kubernetes objects, Ray's state and a probe of every Ray node.

Plain data without secrets, so that a state can be kept, sent and checked again. A part that could not be read is in the
state with the reason: `unknown` after a failure, `absent` where the stack has no such part.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

import yaml
from pydantic import ConfigDict, Field, SecretStr

from infra.catalog.fabrics import TRANSPORTS
from infra.catalog.names import NODE_TYPE
from infra.outputs import Outputs
from workloads.client.api import JobsApi, UnreachableError
from workloads.client.connection import Connection
from workloads.client.kubectl import Kubectl
from workloads.client.placement_groups import NODES
from workloads.client.run import python_of, submit_driver
from workloads.client.stack import KINDS
from workloads.doctor.kept import Kept, metadata
from workloads.doctor.node_facts import KIND, NodeFacts
from workloads.doctor.objects import DAEMONS, is_true, labels, of_daemon, owner_of, trimmed
from workloads.doctor.others import FORBIDDEN, is_controller, of_stack
from workloads.doctor.redaction import MOST_LEARNED, Redactor
from workloads.exits import WorkloadError
from workloads.results.documents import ResultPart
from workloads.results.events import new_id, parse
from workloads.secrecy import REDACTED
from workloads.untrusted import MALFORMED

Json = dict[str, Any]
SYSTEM = "kube-system"
OPERATORS = (SYSTEM, "kuberay-system", "kueue-system")
"""Namespaces of the parts that the stack installs besides Ray."""
WORKLOAD = "doctor"
"""Metadata of the probe's job. Its record stays until the next probe."""
PROBE_S = 180
"""Seconds after which the probe's job counts as failed: it starts a process on every node."""
POLL_S = 0.5
LONGEST_REASON = 500  # characters
_OWN_ID = re.compile(rf"{WORKLOAD}-[0-9]{{8}}-[0-9]{{6}}-[0-9a-f]{{6}}")
UNREADABLE = (WorkloadError, OSError, yaml.YAMLError, *MALFORMED)
"""Errors raised by reading an unexpected answer or object."""
OLD_PROBES = 20
"""Records of probes that one command deletes."""
PARALLEL = 6  # kubectl processes at a time

# Kinds in Ray's namespace, with the API group where several have the name.
OWN = {
    "pods": "pods",
    "events": "events",
    "volume claims": "persistentvolumeclaims",
    "network policies": "networkpolicies.networking.k8s.io",
    "rayclusters": "rayclusters.ray.io",
    "rayjobs": "rayjobs.ray.io",
    "rayservices": "rayservices.ray.io",
    "jobs": "jobs.batch",
    "claims": "resourceclaims.resource.k8s.io",
    "workloads": "workloads.kueue.x-k8s.io",
    "local queues": "localqueues.kueue.x-k8s.io",
    "provisioning requests": "provisioningrequests.autoscaling.x-k8s.io",
}
EVERYWHERE = {
    "nodes": "nodes",
    "cluster queues": "clusterqueues.kueue.x-k8s.io",
    "networks": "networks.networking.gke.io",
    "network parameters": "gkenetworkparamsets.networking.gke.io",
    "device slices": "resourceslices.resource.k8s.io",
}
OF_SYSTEM = {
    "system pods": "pods",
    "system events": "events",
    "daemon sets": "daemonsets.apps",
    "autoscaler": "configmaps",
}
NOT_SERVED = "doesn't have a resource type"
"""Part of kubectl's message about a kind that the API server does not serve (kubectl 1.36)."""
AUTOSCALER_STATUS = "cluster-autoscaler-status"
"""ConfigMap with the autoscaler's view of its node groups (kubernetes/autoscaler: clusterstate/utils/status.go)."""

RAY_PATHS = {
    "version": "/api/version",
    "nodes": NODES,
    "jobs": "/api/jobs/",
    "placement groups": "/api/v0/placement_groups?detail=1&limit=10000",
    "actors": "/api/v0/actors?detail=1&limit=10000&filter_keys=state&filter_predicates=%3D&filter_values=ALIVE",
    "summary": "/nodes?view=summary",
    "status": "/api/cluster_status?format=1",
}


class State(ResultPart):
    """State of a stack at one time.

    Attributes:
        time: Seconds since 1970 on the client, when the state was read.
        client: Version of Ray on the client; None without one, which commands do not need.
        kubernetes: Objects by section, such as `pods`; names only of Secrets.
        ray: Ray's answers by part, such as `jobs`; `any token` is whether it accepts another one.
        probes: What each Ray node has.
        unknown: Part to the reason why it could not be read: `pods`, `ray`, `ray jobs`, `probes`, `probe of 10.0.0.7`.
        absent: Part to the reason why this stack has no such part.
        cut: Part to a note about the entries left out, because it is larger than a state keeps.
    """

    model_config = ConfigDict(alias_generator=lambda name: name.rstrip("_"), populate_by_name=True)
    SCHEMA: ClassVar[str] = "rdma-ray/state/1"

    schema_: str = SCHEMA
    time: float
    client: str | None
    outputs: Outputs
    kubernetes: dict[str, list[Json]] = Field(default_factory=dict)
    ray: dict[str, Any] = Field(default_factory=dict)
    probes: list[NodeFacts] = Field(default_factory=list)
    unknown: dict[str, str] = Field(default_factory=dict)
    absent: dict[str, str] = Field(default_factory=dict)
    cut: dict[str, str] = Field(default_factory=dict)

    def objects(self, section: str) -> list[Json]:
        """Return the objects of a section; empty if it was not read."""
        return self.kubernetes.get(section, [])

    def age(self, moment: str | None) -> float:
        """Return the seconds since a time as Kubernetes writes it; 0 without one."""
        return max(0.0, self.time - seconds(moment)) if moment else 0.0

    def lacks(self, parts: Collection[str]) -> tuple[dict[str, str], dict[str, str]]:
        """Return which of these parts are unknown, and which are absent, with the reasons."""
        wanted = {*parts, *("ray" for part in parts if part.startswith("ray "))}
        unknown = {part: reason for part, reason in self.unknown.items() if part in wanted}
        return unknown, {part: reason for part, reason in self.absent.items() if part in wanted}


def seconds(moment: str) -> float:
    """Return seconds since 1970 of a time as Kubernetes writes it, such as `2026-11-23T11:09:07Z`."""
    return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


class StateReader:
    """Reads a stack's state. Nothing that fails here is an error: the reason is in the state."""

    def __init__(self, stack: Connection, report: Callable[[str], None] = lambda _line: None) -> None:
        self.stack, self.outputs, self.report = stack, stack.outputs, report
        self.redactor = Redactor.of(stack.outputs)
        self.kubernetes: dict[str, list[Json]] = {}
        self.ray: dict[str, Any] = {}
        self.probes: list[NodeFacts] = []
        self.unknown: dict[str, str] = {}
        self.absent: dict[str, str] = {}
        self.kept = Kept()

    def collect(self) -> State:
        """Return the state of the stack now. It takes about ten seconds, most of them for the probe."""
        self._kubernetes()
        self._ray()
        for raw in (self.kubernetes, self.ray):
            self.redactor.learn(raw)
        if len(self.redactor.learned) >= MOST_LEARNED:
            self.kept.cut["secrets"] = f"more than {MOST_LEARNED}: text may show those of other objects"
        masked = SecretStr(REDACTED)
        tokens = {"token": masked} | ({"serve_token": masked} if self.outputs.ray.serve_token else {})
        ray = self.outputs.ray.model_copy(update=tokens)
        parts = {"ray": ray} | ({} if self.outputs.kubeconfig is None else {"kubeconfig": masked})
        return State(
            time=time.time(),
            client=_own_ray(),
            outputs=self.outputs.model_copy(update=parts),
            kubernetes={section: self.redactor.value(objects) for section, objects in self.kubernetes.items()},
            ray=self.redactor.value(self.ray),
            probes=sorted(self.probes, key=lambda probe: probe.ip),
            unknown={part: self.redactor.text(reason) for part, reason in self.unknown.items()},
            absent=self.absent,
            cut=self.kept.cut,
        )

    def _kubernetes(self) -> None:
        sections = [*OWN, *EVERYWHERE, *OF_SYSTEM, "operators", "secrets"]
        if not self.outputs.on_kubernetes:
            self.absent |= dict.fromkeys(sections, f"a stack of target {self.outputs.target} has no Kubernetes")
            return
        self.report("reading Kubernetes")
        try:
            kubectl = self.stack.kubectl
            kubectl.run("get", "--raw", "/version")
        except WorkloadError as error:
            self.unknown |= dict.fromkeys(sections, " ".join(str(error).split()))
            return
        reads: dict[str, Callable[[], list[Json]]] = {
            **{section: _get(kubectl, kind) for section, kind in (OWN | EVERYWHERE).items()},
            **{section: _get(kubectl, kind, f"--namespace={SYSTEM}") for section, kind in OF_SYSTEM.items()},
            "autoscaler": _get(
                kubectl, "configmaps", f"--namespace={SYSTEM}", "--field-selector", f"metadata.name={AUTOSCALER_STATUS}"
            ),
            "system pods": lambda: _system_pods(kubectl),
            "daemon sets": _get(kubectl, OF_SYSTEM["daemon sets"], "--all-namespaces"),
            "operators": _get(kubectl, "deployments.apps", "--all-namespaces"),
            "secrets": lambda: [{"name": line} for line in kubectl.run("get", "secrets", "--output=name").split()],
        }

        def kept(section: str) -> list[Json]:
            return self.kept.objects(section, [trimmed(each) for each in reads[section]()])

        with ThreadPoolExecutor(PARALLEL) as pool:
            for section, done in {section: pool.submit(kept, section) for section in reads}.items():
                with reading(self.unknown, section):
                    self.kubernetes[section] = done.result()
        for section in [section for section, reason in self.unknown.items() if NOT_SERVED in reason]:
            self.absent[section] = self.unknown.pop(section)
        if "operators" in self.kubernetes:
            operators = self.kubernetes["operators"]
            self.kubernetes["operators"] = [
                each for each in operators if metadata(each).get("namespace") in OPERATORS or is_controller(each)
            ]
        if self.outputs.context is not None:
            self.kubernetes = of_stack(self.outputs, self.kubernetes)
            # An account of a user's cluster may be limited to the namespace.
            for section in [each for each, reason in self.unknown.items() if FORBIDDEN in reason and each != "pods"]:
                self.absent[section] = self.unknown.pop(section)

    def _ray(self) -> None:
        self.report("reading Ray")
        if (reason := self._no_head()) is not None:
            self.absent |= dict.fromkeys(("ray", "probes"), reason)
            return
        try:
            api = self.stack.api
            self.ray["version"] = self.kept.ray("version", api.call(RAY_PATHS["version"]))
        except WorkloadError as error:
            self.unknown |= dict.fromkeys(("ray", "probes"), " ".join(str(error).split()))
            return
        for part, path in RAY_PATHS.items():
            with reading(self.unknown, f"ray {part}"):
                self.ray[part] = self.kept.ray(part, _result(api.call(path)))
        with reading(self.unknown, "ray any token"):
            self.ray["any token"] = accepts_any_token(api)
        if self.outputs.ray.mode in KINDS:
            self.absent["probes"] = f"the stack's Ray accepts no jobs: its ray.mode is {self.outputs.ray.mode}"
            return
        self.report("probing every Ray node")
        with reading(self.unknown, "probes"):
            self._probe(api)
        # A request that lasts is one for which there is no room. One reading would show every short task.
        with reading(self.unknown, "ray status"):
            lasting = demands(_result(api.call(RAY_PATHS["status"])))
            self.ray["demands"] = [line for line in demands(self.ray["status"]) if line in lasting]

    def _no_head(self) -> str | None:
        """Return why there is no Ray to read; None if there may be one."""
        if "pods" not in self.kubernetes:
            return None
        heads = [pod for pod in self.kubernetes["pods"] if labels(pod).get(NODE_TYPE) == "head"]
        if self.outputs.ray.mode == "indexed-job":
            return "an Indexed Job has no KubeRay head"
        if not any(is_true(pod, "Ready") for pod in heads):
            return "no head pod of Ray is ready"
        return None

    def _probe(self, api: JobsApi) -> None:
        # Ray's monitor of a job records one that is deleted as soon as it ends as failed (job_manager.py, Ray 2.60).
        old = [job for job in api.jobs() if _OWN_ID.fullmatch(job.id) and job.metadata.get("workload") == WORKLOAD]
        for job in [job for job in old if job.ended and time.time() - job.ended > PROBE_S][:OLD_PROBES]:
            api.forget(job.id)
        job_id = new_id(WORKLOAD)
        libraries = [library for row in TRANSPORTS.values() for library in row.libraries]
        words = [python_of(self.outputs), "-m", "workloads.doctor.probe", *libraries]
        submit_driver(api, job_id, words, {"workload": WORKLOAD})
        deadline = time.monotonic() + PROBE_S
        try:
            while not (job := api.job(job_id)).terminal:
                if time.monotonic() > deadline:
                    raise WorkloadError(f"the probe's job {job_id} does not end within {PROBE_S} s")
                time.sleep(POLL_S)
            lines = api.end_of_log(job)[0].splitlines()
        finally:
            with suppress(WorkloadError):
                api.stop(job_id)
        events = [event for event in map(parse, lines) if event is not None and event["kind"] == KIND]
        for event in self.kept.objects("probes", events):
            probed = event.get("probe")
            with reading(self.unknown, f"probe of {str(probed['node_id'] if probed else event.get('ip'))[:100]}"):
                if not probed:
                    raise WorkloadError(str(event.get("error")))
                self.probes.append(NodeFacts.model_validate(probed))
        if not events:
            reason = " … ".join(dict.fromkeys([*job.message.strip().splitlines()[:1], *lines[-1:]]))
            raise WorkloadError(f"the probe's job ended as {job.status} without a node's probe: {reason}")


def _own_ray() -> str | None:
    """Return the version of Ray on this machine."""
    with suppress(PackageNotFoundError):
        return version("ray")
    return None


@contextmanager
def reading(unknown: dict[str, str], part: str) -> Iterator[None]:
    """Record why a part cannot be read."""
    try:
        yield
    except UNREADABLE as error:
        unknown[part] = " ".join(str(error).split())[:LONGEST_REASON] or type(error).__name__


def _get(kubectl: Kubectl, kind: str, *arguments: str) -> Callable[[], list[Json]]:
    return lambda: kubectl.get(kind, *arguments)


def _system_pods(kubectl: Kubectl) -> list[Json]:
    """Return the pods of kube-system, and of DaemonSets and the kubelet's own pods in all namespaces.

    GKE's drivers have separate namespaces, such as gke-managed-networking-dra-driver.
    """
    own = kubectl.get("pods", f"--namespace={SYSTEM}")
    others = kubectl.get("pods", "--all-namespaces", f"--field-selector=metadata.namespace!={SYSTEM}")
    pods = [pod for pod in (*own, *others) if owner_of(pod, *DAEMONS)]
    return [*map(of_daemon, pods), *(pod for pod in own if not owner_of(pod, *DAEMONS))]


def _result(answer: Any) -> Any:
    """Return the content of an answer of Ray's dashboard, whose modules wrap it in different ways."""
    if not isinstance(answer, dict) or "data" not in answer:
        return answer
    data = answer["data"]
    for key in ("result", "summary", "clusterStatus"):
        if key in data:
            return data[key]["result"] if key == "result" else data[key]
    return data


def accepts_any_token(api: JobsApi) -> bool:
    """Return whether Ray answers a request with another token, as it does without authentication."""
    try:
        replace(api, token=SecretStr("not-the-token")).call("/api/jobs/")
    except UnreachableError:
        raise
    except WorkloadError:
        return False
    return True


def demands(status: str) -> list[str]:
    """Return the requests for resources that Ray cannot meet now, from the text of `ray status`."""
    _, _, rest = status.partition("Pending Demands:\n")
    lines = [line.strip() for line in rest.splitlines()]
    # `bundle_group_…` is how Ray checks whether a placement group is ready.
    return [line for line in lines if line.startswith("{") and "bundle_group_" not in line]


def dumped(state: State) -> Json:
    """Return the state as JSON."""
    document: Json = json.loads(state.model_dump_json(by_alias=True))
    return document
